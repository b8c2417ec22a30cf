"""The server itself: tools, resources, prompts and completion on one engine. What carries its messages is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from holdfast import __version__
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.kinds import languages
from holdfast.programs.paths import find_project
from holdfast.serve.mcp import completion, prompts, resources
from holdfast.serve.mcp import holdfast_tools as own
from holdfast.serve.mcp.allowed import AllowedCode
from holdfast.serve.mcp.extensions import extensions
from holdfast.serve.mcp.pins import ProjectPins
from holdfast.serve.mcp.tools import McpCall, McpTool, ToolCatalog, in_thread

NAME = "holdfast"

Family: TypeAlias = Literal["alc", "holdfast", "all"]
"""Which tools are offered: under algocline's names, under Holdfast's own, or both."""

Context: TypeAlias = ServerRequestContext[Any, Any]

PAUSE_TTL_S = 30 * 24 * 3600
"""Seconds for which a host may come back with the input that a call required: a month."""

_INSTRUCTIONS = """\
Holdfast runs reasoning strategies as durable sessions. A strategy asks; you answer.
See what there is with {names.strategies}, and start one with {names.run}. When the status is needs_response, answer
each prompt yourself, as well as you can, and send the answers with {names.answer}; repeat until the status is
completed. Every session has an id and outlives this process: if anything breaks, continue with the same id.
"""


def tools_of(family: Family) -> list[McpTool[Any]]:
    """The tools of a family; Holdfast's own come first."""
    tools: list[McpTool[Any]] = [*own.TOOLS] if family in ("holdfast", "all") else []
    for name, extension in extensions().items():
        if family in (name, "all"):
            tools += extension.tools
    return tools


class McpServer:
    """One MCP server on one engine."""

    def __init__(
        self,
        holdfast: Holdfast,
        *,
        family: Family = "holdfast",
        keys: Sequence[bytes],
        allowed: AllowedCode | None = None,
    ) -> None:
        """`allowed` says what calls may have run beside strategies and text, outside of the sandbox, and with what."""
        self.holdfast = holdfast
        project = find_project()
        self._allowed = allowed or AllowedCode()
        self._pins = ProjectPins()
        own = [] if project is None else [project]
        self._code_directories = [*own, *self._allowed.code_directories, *self._allowed.trusted]
        for language in languages():
            language.serve_trusted(self._allowed.trusted)
        self.tools = ToolCatalog(tools_of(family))
        self._names = extensions()[family].names if family in extensions() else prompts.OWN
        self.server: Server[Any] = Server(
            NAME,
            version=__version__,
            title="Holdfast",
            description="Durable sessions for LLM programs",
            instructions=_INSTRUCTIONS.format(names=self._names),
            get_tool_input_schema=self._schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        security = RequestStateSecurity(keys=list(keys), ttl=PAUSE_TTL_S)
        self.server.middleware.append(RequestStateBoundary(security, default_audience=NAME))

    # --- tools -------------------------------------------------------------------------------------

    def _schema(self, name: str) -> dict[str, Any] | None:
        tool = self.tools.find(name)
        return None if tool is None else tool.declared().input_schema

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self.tools.declared())

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self.tools.find(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool '{params.name}'")
        call = McpCall(
            self.holdfast,
            context,
            cancelled=lambda: _is_cancelled(context),
            responses=params.input_responses,
            state=params.request_state,
            code_directories=self._code_directories,
            allowed=self._allowed,
            pins=self._pins,
        )
        return await tool.call(call, params.arguments or {})

    # --- resources ---------------------------------------------------------------------------------

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await in_thread(resources.listed))

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.templates())

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await resources.read(McpCall(self.holdfast, context), str(params.uri))

    # --- prompts and completion --------------------------------------------------------------------

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[each.declared() for each in prompts.PROMPTS])

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await prompts.get(self._names, params.name, params.arguments or {})

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return await completion.complete(self.holdfast, params)


def _is_cancelled(context: Context) -> bool:
    """Whether the host has cancelled this request by a message, which a broken connection does not send.

    The SDK keeps that with the request's own channel. The request's id alone would not identify it: several hosts
    use the same ids.
    """
    is_set: bool = context.session._request_outbound.cancel_requested.is_set()
    return is_set
