"""The resources: what a host can read under `holdfast://`, and what extensions add."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.core.values import Json, repaired
from holdfast.programs.api.python_stubs import render_python_stubs
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.kinds import get_language
from holdfast.programs.language import read_code
from holdfast.programs.names import invalid_name_reason
from holdfast.serve.mcp import catalog
from holdfast.serve.mcp.extensions import extensions
from holdfast.serve.mcp.journal import MAX_PAGE_ENTRIES, PAGE_ENTRIES, journal_page
from holdfast.serve.mcp.required_input import STATELESS
from holdfast.serve.mcp.resource import JSON, PYTHON, Resource, ResourceRequest
from holdfast.serve.mcp.sessions import PYTHON_STUBS_URI
from holdfast.serve.mcp.tools import McpCall, in_thread
from holdfast.serve.mcp.uris import InvalidUriError, ResourceNotFoundError, UriParameter, parse
from holdfast.strategies.catalog import find_entry

NOT_FOUND = -32002
"""The code of a resource that is not there, up to the revision in which that became an invalid parameter."""

_FROM = UriParameter("from", 0, 10_000_000)
_ENTRIES = UriParameter("limit", PAGE_ENTRIES, MAX_PAGE_ENTRIES)


# --- types ---------------------------------------------------------------------------------------------


async def _python_stubs(request: ResourceRequest) -> str:
    return render_python_stubs()


# --- sessions ------------------------------------------------------------------------------------------


async def _session(request: ResourceRequest) -> Json:
    return await request.call.holdfast.status(request.names["session_id"])


async def _journal(request: ResourceRequest) -> Json:
    numbers = request.numbers
    return await journal_page(request.call.holdfast, request.names["session_id"], numbers["from"], numbers["limit"])


# --- strategies ----------------------------------------------------------------------------------------


async def _strategies(request: ResourceRequest) -> Json:
    return {"strategies": msgspec.to_builtins([each.view for each in await catalog.runnables()])}


async def _strategy(request: ResourceRequest) -> Json:
    name = request.names["name"]
    found = next((each.view for each in await catalog.runnables() if each.view.name == name), None)
    if found is None:
        raise request.missing(f"no strategy has the name '{name}'; holdfast://strategies lists them")
    shown = {**msgspec.to_builtins(found), "text": ""}
    if found.kind == "native":
        return {**shown, "text": catalog.native_strategies()[name].__doc__ or ""}
    try:
        return {**shown, **await get_language(found.kind).describe(name)}
    except ProgramNotFoundError as error:
        raise request.missing(error.why) from None


async def _strategy_source(request: ResourceRequest) -> str:
    """By name only, and where strategies are: what is read is what would be run."""
    name = request.names["name"]
    if (why := invalid_name_reason(name)) is not None:
        raise request.invalid(why)
    try:
        listed = await in_thread(find_entry, name)
        if listed.hidden_by is not None:
            raise request.missing(f"another program has this name, and is what runs: {listed.hidden_by}")
        return repaired(await in_thread(read_code, Path(listed.path)))
    except ProgramNotFoundError as error:
        raise request.missing(error.why) from None


# --- the table -----------------------------------------------------------------------------------------


RESOURCES = (
    Resource(
        PYTHON_STUBS_URI,
        "The API in Python",
        "Type stubs of everything that a strategy in sandboxed Python can call: read it before writing one.",
        PYTHON,
        _python_stubs,
    ),
    Resource(
        "holdfast://strategies",
        "All strategies",
        "Every strategy that can be run by name, with what it is for.",
        JSON,
        _strategies,
    ),
    Resource(
        "holdfast://strategies/{name}",
        "A strategy",
        "One strategy: what it is for, its own documentation, its metadata.",
        JSON,
        _strategy,
    ),
    Resource(
        "holdfast://strategies/{name}/strategy.py",
        "A strategy's code",
        "The source of a strategy in sandboxed Python; one that is bundled is a good model for another.",
        PYTHON,
        _strategy_source,
    ),
    Resource(
        "holdfast://sessions/{session_id}",
        "A session",
        "One session as it is now: state, figures, the queries it waits for in full, how it ended.",
        JSON,
        _session,
    ),
    Resource(
        "holdfast://sessions/{session_id}/journal{?from,limit}",
        "A session's journal",
        "What happened in a session after the position `from`, in order; `next` in it is where the next page begins.",
        JSON,
        _journal,
        (_FROM, _ENTRIES),
    ),
)
"""Those of the server itself."""


def _all_resources() -> Iterator[Resource]:
    yield from RESOURCES
    for extension in extensions().values():
        yield from extension.resources


def find_template(template: str) -> Resource | None:
    """The template with this text; with or without its parameters, as hosts differ."""
    for each in _templates():
        if template in (each.template, each.template.partition("{?")[0]):
            return each
    return None


def _templates() -> Iterator[Resource]:
    return (each for each in _all_resources() if each.pattern.variables)


def listed() -> list[types.Resource]:
    """The resources that have no holes."""
    return [
        types.Resource(
            uri=each.template, name=each.name, title=each.title, description=each.description, mime_type=each.mime
        )
        for each in _all_resources()
        if not each.pattern.variables and each.is_there()
    ]


def templates() -> list[types.ResourceTemplate]:
    """The others."""
    return [
        types.ResourceTemplate(
            uri_template=each.template,
            name=each.name,
            title=each.title,
            description=each.description,
            mime_type=each.mime,
        )
        for each in _templates()
    ]


async def read(call: McpCall, uri: str) -> types.ReadResourceResult:
    """What is behind a URI; `MCPError` with the code of that revision if there is nothing."""
    try:
        mime, text = await _read(call, uri)
    except (ResourceNotFoundError, SessionNotFoundError) as error:
        code = NOT_FOUND if call.context.protocol_version < STATELESS else types.INVALID_PARAMS
        raise MCPError(code, str(error), {"uri": uri}) from None
    except (InvalidUriError, InvalidIdError) as error:
        raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri}) from None
    except HoldfastError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error), {"uri": uri}) from None
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime, text=text)])


async def _read(call: McpCall, uri: str) -> tuple[str, str]:
    address = parse(uri)
    for each in _all_resources():
        names = each.pattern.match(address)
        if names is not None:
            found = await each.read(ResourceRequest(call, uri, names, address.numbers(each.numbers)))
            return each.mime, found if each.mime != JSON else msgspec.json.encode(found).decode()
    raise ResourceNotFoundError(uri, "no resource has such a URI; resources/templates/list has those there are")
