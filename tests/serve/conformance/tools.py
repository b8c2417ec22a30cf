"""The tools that the conformance suite calls by name. Where the suite lets it, a tool is a session of our own that asks
and is answered through the server's pause; the others do by hand what no session does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.programs.lookup import find_program
from holdfast.programs.registry import Strategy
from holdfast.serve.mcp import sessions
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, NoParams, Object, Params, about

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8Dwn4EIwDiqkL4KAcT9GO0U4BxoAAAAAElFTkSuQmCC"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

GivenAnswer: TypeAlias = Object | types.InputRequiredResult
Handler: TypeAlias = Callable[[McpCall, Any], Awaitable[GivenAnswer]]

TOOLS: list[McpTool[Any]] = []


def tool(name: str, params: type[Params] = NoParams) -> Callable[[Handler], Handler]:
    """Offer a function under the name that the suite wants."""

    def offered(handler: Handler) -> Handler:
        TOOLS.append(McpTool(name, name, f"For the conformance suite: {name}.", params, handler))
        return handler

    return offered


def session_tool(name: str, strategy: Strategy) -> None:
    """Offer a strategy: the tool starts a session of it, and pauses when that does."""

    async def run(call: McpCall, params: NoParams) -> GivenAnswer:
        return await sessions.run(call, lambda: find_program(strategy), None)

    TOOLS.append(McpTool(name, name, f"For the conformance suite: a session of {strategy.name}.", NoParams, run))


# --- sessions --------------------------------------------------------------------------------------


@holdfast.strategy
async def steps(ctx: holdfast.Context) -> str:
    for step in (0, 50, 100):
        ctx.progress(step, 100)
        await ctx.sleep(0.05)
    return "all steps taken"


@holdfast.strategy
async def confirm(ctx: holdfast.Context) -> Any:
    return {"state-ok": await ctx.ask("Please confirm")}


@holdfast.strategy
async def capital(ctx: holdfast.Context) -> str:
    said: str = await ctx.llm("What is the capital of France?", max_tokens=100)
    return said


@holdfast.strategy
async def two_rounds(ctx: holdfast.Context) -> list[Any]:
    return [await ctx.ask("Step 1: What is your name?"), await ctx.ask("Step 2: What is your favourite colour?")]


session_tool("test_tool_with_progress", steps)
session_tool("test_streaming_elicitation", confirm)
session_tool("test_input_required_result_request_state", confirm)
session_tool("test_input_required_result_tampered_state", confirm)
session_tool("test_input_required_result_sampling", capital)
session_tool("test_input_required_result_capabilities", capital)
session_tool("test_input_required_result_multi_round", two_rounds)


# --- plain results ---------------------------------------------------------------------------------


@tool("test_simple_text")
async def simple_text(call: McpCall, params: NoParams) -> GivenAnswer:
    return {"text": "This is a simple text response for testing."}


@tool("test_error_handling")
async def fails(call: McpCall, params: NoParams) -> GivenAnswer:
    raise McpToolError("This tool intentionally returns an error for testing")


@dataclass(frozen=True)
class ContentTool(McpTool[NoParams]):
    """A tool whose result is content that no tool of ours gives: pictures, sounds, resources."""

    content: tuple[types.ContentBlock, ...] = ()

    async def call(self, call: McpCall, arguments: Object) -> types.CallToolResult | types.InputRequiredResult:
        given = await super().call(call, arguments)
        return given.model_copy(update={"content": list(self.content)})


async def nothing(call: McpCall, params: NoParams) -> GivenAnswer:
    return {}


def content_tool(name: str, *content: types.ContentBlock) -> None:
    told = f"For the conformance suite: {name}."
    TOOLS.append(ContentTool(name, name, told, NoParams, nothing, content=content))


def _resource(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


_IMAGE = types.ImageContent(data=PNG, mime_type="image/png")
content_tool("test_image_content", _IMAGE)
content_tool("test_audio_content", types.AudioContent(data=WAV, mime_type="audio/wav"))
content_tool("test_embedded_resource", _resource("test://embedded-resource", "text/plain", "This is embedded."))
content_tool(
    "test_multiple_content_types",
    types.TextContent(text="Multiple content types test:"),
    _IMAGE,
    _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
)


# --- schemas and headers ---------------------------------------------------------------------------


class HeaderParams(Params):
    region: Annotated[
        str, msgspec.Meta(description="Sent as a header too.", extra_json_schema={"x-mcp-header": "Region"})
    ]


@tool("test_x_mcp_header", HeaderParams)
async def header(call: McpCall, params: HeaderParams) -> GivenAnswer:
    return {"region": params.region}


class RichSchemaTool(McpTool[NoParams]):
    """A tool with a schema that says more than our own parameters can."""

    def declared(self) -> types.Tool:
        return super().declared().model_copy(update={"input_schema": RICH_SCHEMA})


RICH_SCHEMA: Object = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
TOOLS.append(RichSchemaTool("json_schema_2020_12_tool", "Schema", "For the conformance suite.", NoParams, nothing))


# --- logs, and what the server asks in mid-call (revisions with a handshake) ------------------------


async def _log(call: McpCall) -> GivenAnswer:
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.context.session.send_log_message("info", message, related_request_id=call.context.request_id)
        await asyncio.sleep(0.05)
    return {"logged": 3}


@tool("test_tool_with_logging")
async def logs(call: McpCall, params: NoParams) -> GivenAnswer:
    return await _log(call)


@tool("test_logging_tool")
async def logs_if_wanted(call: McpCall, params: NoParams) -> GivenAnswer:
    return await _log(call)


class PromptParams(Params):
    prompt: Annotated[str, about("What to ask the model.")]


@tool("test_sampling", PromptParams)
async def samples(call: McpCall, params: PromptParams) -> GivenAnswer:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=params.prompt))
    said = await call.context.session.create_message(
        [message], max_tokens=100, related_request_id=call.context.request_id
    )
    assert isinstance(said.content, types.TextContent)
    return {"text": f"LLM response: {said.content.text}"}


class MessageParams(Params):
    message: Annotated[str, about("What to ask the person.")]


async def _elicit(call: McpCall, message: str, properties: Object, required: list[str]) -> GivenAnswer:
    schema = {"type": "object", "properties": properties, "required": required}
    said = await call.context.session.elicit_form(message, schema, call.context.request_id)
    return {"text": f"Elicitation completed: action={said.action}, content={said.content}"}


@tool("test_elicitation", MessageParams)
async def elicits(call: McpCall, params: MessageParams) -> GivenAnswer:
    fields = {name: {"type": "string", "description": name} for name in ("username", "email")}
    return await _elicit(call, params.message, fields, ["username", "email"])


@tool("test_elicitation_sep1034_defaults")
async def elicits_with_defaults(call: McpCall, params: NoParams) -> GivenAnswer:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _elicit(call, "Please look through the form", fields, [])


@tool("test_elicitation_sep1330_enums")
async def elicits_choices(call: McpCall, params: NoParams) -> GivenAnswer:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _elicit(call, "Please choose", fields, [])


# --- required input, by hand (the stateless revision) -----------------------------------------------


def form(message: str, name: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


@tool("test_missing_capability")
async def needs_sampling(call: McpCall, params: NoParams) -> GivenAnswer:
    if not call.context.session.check_client_capability(types.ClientCapabilities(sampling=types.SamplingCapability())):
        needed: Object = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", data=needed)
    return {}


@tool("test_input_required_result_elicitation")
async def requires_a_name(call: McpCall, params: NoParams) -> GivenAnswer:
    match (call.responses or {}).get("user_name"):
        case types.ElicitResult(action="accept", content={"name": name}):
            return {"text": f"Hello, {name}!"}
        case _:
            return types.InputRequiredResult(input_requests={"user_name": form("What is your name?", "name")})


@tool("test_input_required_result_list_roots")
async def requires_roots(call: McpCall, params: NoParams) -> GivenAnswer:
    match (call.responses or {}).get("client_roots"):
        case types.ListRootsResult(roots=roots):
            return {"roots": [str(root.uri) for root in roots]}
        case _:
            return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})


@tool("test_input_required_result_multiple_inputs")
async def requires_three(call: McpCall, params: NoParams) -> GivenAnswer:
    if call.state is not None and call.responses is not None:
        return {"given": sorted(call.responses)}
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Generate a greeting"))
    greeting = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=50))
    return types.InputRequiredResult(
        input_requests={
            "user_name": form("What is your name?", "name"),
            "greeting": greeting,
            "client_roots": types.ListRootsRequest(),
        },
        request_state="asked",
    )
