"""What a tool of the server is: a name, typed parameters, a description for models, and a function.

Parameters are msgspec structs, so that a tool's schema and the check of its arguments cannot differ. A tool gives an
object or a list, which is sent both as JSON text and as structured content; or it raises, which is a tool error in
plain text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext

from holdfast.core.distinct_keys import check_distinct_keys
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Usage
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast
from holdfast.serve.mcp.allowed import AllowedCode
from holdfast.serve.mcp.pins import ProjectPins

Object: TypeAlias = dict[str, Json]
P = TypeVar("P", bound=msgspec.Struct)


class McpToolError(HoldfastError):
    """A call that cannot be carried out. The text is what the host's model reads."""

    kind = "tool"


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of a tool."""


class NoParams(Params):
    """A tool without parameters."""


def about(description: str) -> msgspec.Meta:
    """The description of a parameter, for `Annotated`."""
    return msgspec.Meta(description=description)


_PROJECT_NAMES = ("project", "project_root")
"""What tools call the project that they work in."""

ProjectRoot: TypeAlias = Annotated[
    str | None, about("The project's directory (with holdfast.toml or alc.toml); else the nearest above the server's.")
]
SessionId: TypeAlias = Annotated[str, about("The session's id.")]


class UsageParams(msgspec.Struct, kw_only=True):
    """What an answer cost. Hosts send more than these two; the rest is passed over."""

    prompt_tokens: Annotated[int | None, about("Tokens of the prompt.")] = None
    completion_tokens: Annotated[int | None, about("Tokens of the answer.")] = None

    def kept(self) -> Usage:
        return Usage(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens)


@dataclass(frozen=True)
class McpCall:
    """One call of a tool."""

    holdfast: Holdfast
    context: ServerRequestContext[Any, Any]
    cancelled: Callable[[], bool] = lambda: False
    """Whether the host has cancelled this call. A connection that broke is no cancellation."""
    responses: dict[str, Any] | None = None
    """What the host answered to the input that an earlier round of this call required."""
    state: str | None = None
    """What that earlier round left to find itself again."""
    code_directories: Sequence[Path] = ()
    """Where the files of code may be that a call names."""
    allowed: AllowedCode = field(default_factory=AllowedCode)
    """What the operator allows to programs."""
    pins: ProjectPins = field(default_factory=ProjectPins)
    """The projects that hosts have pinned for their connections."""

    async def progress(self, step: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the host how far the call is; nothing where it did not ask to know."""
        await self.context.session.report_progress(step, total, message)


Handler: TypeAlias = "Callable[[McpCall, P], Awaitable[Object | list[Json] | types.InputRequiredResult]]"


@dataclass(frozen=True)
class McpTool(Generic[P]):
    """A tool of the server."""

    name: str
    title: str
    description: str
    params: type[P]
    handler: Handler[P]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """Whether it reaches beyond the machine."""
    is_lenient: bool = False
    """Whether arguments that it does not know are passed over, and named in the result, instead of refused."""
    output: Object = field(default_factory=lambda: {"type": "object"})

    def declared(self) -> types.Tool:
        """The tool as it is declared to hosts."""
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self._schema(),
            output_schema=self.output,
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=self.open_world,
            ),
        )

    def _schema(self) -> Object:
        schema = schema_of(self.params)
        if self.is_lenient:
            schema.pop("additionalProperties", None)
        return schema

    async def call(self, call: McpCall, arguments: Object) -> types.CallToolResult | types.InputRequiredResult:
        """Check the arguments, then do it."""
        ignored: list[str] = []
        if self.is_lenient:
            known = self.params.__struct_fields__
            ignored = sorted(name for name in arguments if name not in known)
            arguments = {name: value for name, value in arguments.items() if name in known}
        if (pinned := call.pins.of(call.context)) is not None:
            for name in _PROJECT_NAMES:
                if name in self.params.__struct_fields__ and arguments.get(name) is None:
                    arguments = {**arguments, name: str(pinned)}
        try:
            params = msgspec.convert(arguments, self.params)
        except msgspec.ValidationError as error:
            return refused(f"{self.name}: {error}")
        try:
            given = await self.handler(call, params)
        except HoldfastError as error:
            return refused(str(error))
        if isinstance(given, types.InputRequiredResult):
            return given
        if isinstance(given, list):
            return accepted_list(given)
        return accepted({**given, "ignored_arguments": ignored} if ignored else given)


def accepted(given: Object) -> types.CallToolResult:
    """A result: one text that holds JSON, and the same as structured content."""
    text = msgspec.json.encode(given).decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=given)


def accepted_list(given: list[Json]) -> types.CallToolResult:
    """A result that is a list: structured content has to be an object in the older protocol, so it stands in one."""
    text = msgspec.json.encode(given).decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"result": given})


def refused(why: str) -> types.CallToolResult:
    """A tool error, in plain text."""
    return types.CallToolResult(content=[types.TextContent(text=why)], is_error=True)


def schema_of(params: type[msgspec.Struct]) -> Object:
    """The JSON schema of a tool's parameters, in one piece: hosts do not all follow references."""
    schema = msgspec.json.schema(params)
    definitions = schema.pop("$defs", {})
    resolved: Object = _inline(schema, definitions)
    resolved.pop("title", None)
    resolved.pop("description", None)
    return resolved


def outline_of(view: type[msgspec.Struct], *keys: str) -> Object:
    """The schema of a result without its details: its keys (or those that are named), and the type of each.

    A model reads what a key means in the result itself. The whole schemas are three times as long as all the rest that
    a host shows its model of the tools, in every conversation.
    """
    schema = schema_of(view)
    properties = {
        name: {key: value for key, value in each.items() if key in ("type", "enum")}
        for name, each in schema["properties"].items()
        if not keys or name in keys
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def _inline(node: Json, definitions: Object) -> Json:
    match node:
        case {"$ref": str(ref)}:
            inner = _inline(definitions[ref.rpartition("/")[2]], definitions)
            return {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
        case {"anyOf": [inner, {"type": "null"}], "default": None, **about}:  # which a host may simply leave out
            return _inline({**inner, **about}, definitions)
        case dict():
            return {key: _inline(value, definitions) for key, value in node.items()}
        case list():
            return [_inline(item, definitions) for item in node]
        case _:
            return node


class ToolCatalog:
    """The tools that a server offers."""

    def __init__(self, tools: Iterable[McpTool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def declared(self) -> list[types.Tool]:
        return [tool.declared() for tool in self._tools.values()]

    def find(self, name: str) -> McpTool[Any] | None:
        return self._tools.get(name)


def unquoted(given: Json) -> Json:
    """JSON that a host sent as text; anything else as it is. Raises `InvalidValueError` for repeated keys."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            decoded = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return given
        check_distinct_keys(given, "argument")
        return decoded
    return given


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Work that waits for disks and processes, out of the way of the other calls."""
    return await asyncio.to_thread(function, *arguments)
