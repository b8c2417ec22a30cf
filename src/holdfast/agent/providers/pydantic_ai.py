"""`PydanticAIProvider`: models of every service that pydantic-ai knows. Importing this module loads that library.

A call is one attempt: the retries of the services' own libraries are switched off, because `retry` does that for all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

import msgspec

from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.providers.faults import MESSAGE_CHARS, ErrorReply, fault_of, says_too_long
from holdfast.agent.providers.provider import (
    Fault,
    ModelReply,
    ModelRequest,
    ProviderError,
    ReasoningDelta,
    Stop,
    StreamItem,
    TextDelta,
)
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Usage
from holdfast.core.values import Json, check_value

try:
    from pydantic_ai import exceptions as errors
    from pydantic_ai import messages as theirs
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.models import Model, ModelRequestParameters, infer_model, parse_model_id
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
except ModuleNotFoundError as missing:  # it comes with an extra
    raise ImportError("this needs the extra 'providers': pip install 'holdfast[providers]'") from missing

from holdfast.agent.providers import pydantic_ai_messages as converting

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

_STOPS: dict[str, Stop] = {"stop": "end", "length": "length", "content_filter": "refusal", "tool_call": "tool_use"}

_NEVER_SAY = frozenset(["ollama", "snowflake", "test", "function"])
"""Services whose streams give no reason for their end, and the library's test models."""

_FAULTS: tuple[tuple[type[Exception], Fault], ...] = (
    (errors.ModelRateLimitError, "rate_limit"),
    (errors.ModelQuotaExceededError, "auth"),  # waiting does not help: the account needs credit
    (errors.ModelUnavailableError, "overloaded"),
    (errors.ModelServerError, "overloaded"),
    (errors.ModelTimeoutError, "timeout"),
    (errors.ModelRequestTimeout, "timeout"),
    (errors.ModelConnectionError, "network"),
    (errors.ModelContextWindowExceededError, "context_length"),
    (errors.ModelAuthenticationError, "auth"),
    (errors.ModelRequestRejectedError, "invalid_request"),
    (errors.ContentFilterError, "invalid_request"),
    (errors.UnexpectedModelBehavior, "bad_stream"),
    (errors.UserError, "invalid_request"),
    (TimeoutError, "timeout"),
    (OSError, "network"),
)
"""The class of an error by their exception; the first match counts, so subclasses come before their bases."""


class PydanticAIProvider:
    """A service that pydantic-ai knows: by the name of one of its models, such as `anthropic:claude-…`, or a `Model`.

    Made by name, the provider serves all models of that service. Made from a `Model` object, it serves only that
    model. Params of a request are pydantic-ai's model settings.
    """

    def __init__(self, model: str | Model) -> None:
        """Raises `ProviderError` if the model is not available here, for instance without a key or a library."""
        found = _infer(model)
        named, name = parse_model_id(model) if isinstance(model, str) else (None, found.model_name)
        self.id = named or found.system
        self.model = name
        """The model for requests that name none."""
        self._by_name = {name: found}
        self._is_service = named is not None

    def __repr__(self) -> str:
        return f"PydanticAIProvider({self.id!r}, model={self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Call the model once; see `Provider.stream`."""
        model = self._model(request.model or self.model)
        parameters = ModelRequestParameters(
            function_tools=[
                ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
                for tool in request.tools
            ]
        )
        try:
            messages = converting.to_theirs(request, model.system)
            async with model_request_stream(
                model,
                messages,
                model_settings=_settings(request, model),
                model_request_parameters=parameters,
            ) as response:
                async for event in response:
                    delta = _delta(event)
                    if delta is not None:
                        yield delta
                reply = self._reply(response.get(), model)
        except ProviderError:
            raise
        except Exception as error:
            raise self._error(error) from error
        yield reply

    def _model(self, name: str) -> Model:
        if name not in self._by_name:
            if not self._is_service:
                message = f"{self.id}: this provider only serves the model '{self.model}', not '{name}'"
                raise ProviderError(message, fault="invalid_request")
            self._by_name[name] = _infer(f"{self.id}:{name}")
        return self._by_name[name]

    def _reply(self, response: theirs.ModelResponse, model: Model) -> ModelReply:
        is_broken = response.state in ("incomplete", "interrupted") or response.finish_reason == "error"
        if is_broken or not _is_ended(response, model):
            raise ProviderError(f"{self.id}: the answer broke off before its end", fault="bad_stream")
        content = converting.from_theirs(response)
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        is_plain = response.finish_reason is None and not (response.provider_details or {}).get("finish_reason")
        stop = "end" if is_plain else _STOPS.get(response.finish_reason or "", "other")
        if response.state == "suspended":
            stop = "other"
        if calls and stop in ("end", "other"):
            stop = "tool_use"
        reply = ModelReply(content=content, stop=stop, usage=_usage(response.usage), model=response.model_name or "")
        try:
            plain = msgspec.to_builtins(reply)
            check_value(plain, "answer")
            msgspec.convert(plain, ModelReply)  # the library does not check types
        except (InvalidValueError, msgspec.ValidationError) as error:
            raise ProviderError(f"{self.id}: the answer cannot be kept: {error}", fault="bad_stream") from error
        return reply

    def _error(self, error: Exception) -> ProviderError:
        status = error.status_code if isinstance(error, errors.ModelHTTPError) else None
        fault = next((fault for kind, fault in _FAULTS if isinstance(error, kind)), None)
        if fault is None:
            fault = "other" if status is None else fault_of(status, ErrorReply(str(error)))
        if fault == "invalid_request" and says_too_long(str(error)):
            fault = "context_length"  # the library does not recognize the message of every service
        message = f"{self.id}: {str(error)[:MESSAGE_CHARS] or type(error).__name__}"
        retry_after_s = error.retry_after if isinstance(error, errors.ModelAPIError) else None
        return ProviderError(message, fault=fault, status=status, retry_after_s=retry_after_s)


def _infer(model: str | Model) -> Model:
    try:
        return infer_model(model)
    except (ImportError, errors.UserError, ValueError) as error:
        raise ProviderError(f"{model}: {error}", fault="other") from error


def _is_ended(response: theirs.ModelResponse, model: Model) -> bool:
    """Whether the service has said that the reply is complete, and the stream did not just stop.

    The library treats both as the end. Most services' own reason is in the details; otherwise the library's reason
    counts, except for the one class of models for which the library invents it.
    """
    if response.provider_name is None or response.provider_name in _NEVER_SAY:
        return True
    details = response.provider_details or {}
    is_made_up = any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__)
    return bool(details.get("finish_reason") or details.get("refusal") or (response.finish_reason and not is_made_up))


def _settings(request: ModelRequest, model: Model) -> ModelSettings:
    settings: dict[str, Json] = dict(request.params)
    ours = {"max_retries": 0, "extra_headers": {"Idempotency-Key": request.key} if request.key else {}}
    for name, value in ours.items():
        if name not in model.unsupported_settings:
            settings[name] = {**value, **settings.get(name, {})} if isinstance(value, dict) else value
    return cast(ModelSettings, settings)


def _delta(event: theirs.ModelResponseStreamEvent) -> TextDelta | ReasoningDelta | None:
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=str(text))) if text:
            return TextDelta(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=str(text))) if text:
            return ReasoningDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=str(text))) if text:
            return TextDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=str(text))) if text:
            return ReasoningDelta(text)
        case _:
            return None


def _usage(reported: RequestUsage) -> Usage | None:
    if reported.unmeasured_requests or not reported.has_values():
        return None
    return Usage(
        prompt_tokens=reported.input_tokens,
        completion_tokens=reported.output_tokens,
        cache_read_tokens=reported.cache_read_tokens or None,
        cache_write_tokens=reported.cache_write_tokens or None,
        reasoning_tokens=reported.output_reasoning_tokens or None,
    )
