"""The pause on the wire of MCP's stateless revision: what a session asks becomes input that the host has to give, and
the host's repeated call brings the answers. Models are asked as sampling where the host can, people by a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec

from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.core.decide import GivenAnswer
from holdfast.core.events import PausedEvent
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, ToolQuery, Value
from holdfast.core.values import encode
from holdfast.serve.mcp.tools import McpCall

STATELESS = "2026-07-28"
"""The first revision of the protocol in which a call may end in required input."""

_FIELD = "response"


def can_pause(call: McpCall, event: PausedEvent) -> bool:
    """Whether the host takes required input, and has a way to give all that is asked."""
    if call.context.protocol_version < STATELESS:
        return False
    forms, samples = _ways(call)
    return all(forms or (samples and isinstance(query, LlmQuery)) for query in event.queries)


def required_input(call: McpCall, event: PausedEvent) -> types.InputRequiredResult:
    """What the host must provide to resume the session. The state is the session's id, which is not a secret."""
    _, samples = _ways(call)
    requests: dict[str, Any] = {query.id: _request(query, samples) for query in event.queries}
    return types.InputRequiredResult(input_requests=requests, request_state=event.session_id)


def _ways(call: McpCall) -> tuple[bool, bool]:
    """Whether the host shows forms, and whether it asks a model."""
    can = call.context.session.client_capabilities
    if can is None:
        return False, False
    # Without details, what is meant is a form: other ways to ask a person came later.
    forms = can.elicitation is not None and (can.elicitation.form is not None or can.elicitation.url is None)
    return forms, can.sampling is not None


def answers_in(responses: Mapping[str, Any]) -> dict[str, GivenAnswer]:
    """The answers in what the host gave: what was declined or cancelled is a failure."""
    return {asked: GivenAnswer(_answer(response), asked) for asked, response in responses.items()}


def _request(query: Query, samples: bool) -> types.CreateMessageRequest | types.ElicitRequest:
    if isinstance(query, LlmQuery) and samples:
        message = types.SamplingMessage(role="user", content=types.TextContent(text=query.prompt))
        return types.CreateMessageRequest(
            params=types.CreateMessageRequestParams(
                messages=[message],
                system_prompt=query.system,
                max_tokens=query.max_tokens,
                temperature=_temperature(query),
            )
        )
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if isinstance(query, HumanQuery) and query.choices:
        field["enum"] = query.choices
    schema = {"type": "object", "properties": {_FIELD: field}, "required": [_FIELD]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=_message(query), requested_schema=schema))


def _temperature(query: LlmQuery) -> float | None:
    wanted = query.options.get("temperature")
    return float(wanted) if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) else None


def _message(query: Query) -> str:
    match query:
        case LlmQuery(system=str() as system):
            return f"{system}\n\n{query.prompt}"
        case ApprovalQuery(approves=asked):
            arguments = msgspec.json.format(encode(asked.arguments), indent=2).decode()
            return "\n".join(part for part in (query.prompt, asked.reason, arguments) if part)
        case LlmQuery() | HumanQuery():
            return query.prompt
        case ToolQuery():
            return f"Call the tool {query.name} with {encode(query.arguments).decode()}, and give its result."
        case _:
            return encode(query).decode()


def _answer(response: Any) -> Value | Failure:
    match response:
        case types.ElicitResult(action="accept", content=dict() as content):
            return Value(value=content.get(_FIELD, content))
        case types.ElicitResult(action=action):
            return Failure(f"the host answered with '{action}'", "refused")
        case types.CreateMessageResult(content=types.TextContent(text=text)):
            return Value(value=text)
        case types.CreateMessageResult() | types.CreateMessageResultWithTools():
            return Failure("the model's answer holds no text", "failed")
        case _:
            return Failure("the host's answer is of no known kind", "failed")
