"""The resources: what a host can read under `alc://` (as algocline has it) and `holdfast://`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from holdfast.alc.cards.errors import CardNotFoundError, CardTooLargeError, InvalidCardNameError
from holdfast.alc.cards.tool import own_box
from holdfast.alc.lua.meta import MAX_SOURCE, read_source
from holdfast.alc.lua.packages import Package, find_package, find_roots
from holdfast.alc.mcp.logs import LogParams, alc_log_view
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.package_list import listing
from holdfast.alc.packages.run_meta import fill_in
from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.core.records import CompletedRecord
from holdfast.core.values import Json, repaired
from holdfast.programs.api.lua_stubs import STUB_NAME, render_stubs
from holdfast.programs.api.python_stubs import render_python_stubs
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.kinds import get_language
from holdfast.programs.language import read_code
from holdfast.programs.names import invalid_name_reason
from holdfast.programs.paths import algocline_home, home
from holdfast.serve.mcp import catalog
from holdfast.serve.mcp.journal import MAX_PAGE_ENTRIES, PAGE_ENTRIES, journal_page
from holdfast.serve.mcp.required_input import STATELESS
from holdfast.serve.mcp.sessions import PYTHON_STUBS_URI
from holdfast.serve.mcp.tools import Call, in_thread
from holdfast.serve.mcp.uris import InvalidUriError, Number, Pattern, ResourceNotFoundError, parse
from holdfast.strategies.catalog import find_entry

LUA = "text/x-lua"
PYTHON = "text/x-python"
JSON = "application/json"

SHAPES_PACKAGE = "alc_shapes"
SHAPES_STUB = "alc_shapes.d.lua"

NOT_FOUND = -32002
"""The code of a resource that is not there, up to the revision in which that became an invalid parameter."""

_OFFSET = Number("offset", 0, 10_000_000)
_SAMPLES = Number("limit", 100, 10_000)
_ROUNDS = Number("limit", 50, 10_000)
_CHARS = Number("max_chars", 20_000, 1_000_000)
_FROM = Number("from", 0, 10_000_000)
_ENTRIES = Number("limit", PAGE_ENTRIES, MAX_PAGE_ENTRIES)


@dataclass(frozen=True)
class Wanted:
    """What was asked for: the holes of a template filled in."""

    call: Call
    uri: str
    names: Mapping[str, str]
    numbers: Mapping[str, int]

    def missing(self, why: str) -> ResourceNotFoundError:
        return ResourceNotFoundError(self.uri, why)

    def invalid(self, why: str) -> InvalidUriError:
        return InvalidUriError(self.uri, why)


# --- types and packages --------------------------------------------------------------------------------


async def _stubs(wanted: Wanted) -> str:
    return render_stubs()


async def _python_stubs(wanted: Wanted) -> str:
    return render_python_stubs()


async def _shapes(wanted: Wanted) -> str:
    file = await in_thread(_shapes_file)
    if file is None:
        raise wanted.missing(f"the package {SHAPES_PACKAGE} is not installed, or comes without this file")
    text = read_source(file)
    if text is None:
        raise wanted.missing(f"{file} cannot be read")
    return repaired(text)


def _shapes_file() -> Path | None:
    """The type stubs of the package of shapes: within it, beside it in a collection, or where algocline keeps them."""
    try:
        package = find_package(find_roots(), SHAPES_PACKAGE)
    except HoldfastError:
        return None
    if package is None:
        return None
    own = Path(package.directory)
    around = (own, own / "types", own.resolve().parent / "types", home() / "types", algocline_home() / "types")
    return next((place / SHAPES_STUB for place in around if (place / SHAPES_STUB).is_file()), None)


async def _package_source(wanted: Wanted) -> str:
    package = await in_thread(_package, wanted)
    text = await in_thread(read_source, Path(package.directory) / "init.lua")
    if text is None:
        raise wanted.missing(f"its init.lua cannot be read, or has more than {MAX_SOURCE} bytes")
    return repaired(text)


def _package(wanted: Wanted) -> Package:
    name = wanted.names["name"]
    if (why := invalid_name_reason(name)) is not None:
        raise wanted.invalid(why)
    try:
        package = find_package(find_roots(), name)
    except HoldfastError as error:  # a pin that is not met, a link that leaves its root
        raise wanted.missing(str(error)) from None
    if package is None:
        raise wanted.missing(f"no package '{name}' is installed")
    return package


async def _package_meta(wanted: Wanted) -> Json:
    package = await in_thread(_package, wanted)
    found = await in_thread(listing, PackageDirectories())
    found.packages = [each for each in found.packages if each.package.directory == package.directory]
    await fill_in(found)
    if not found.packages:
        return package.meta.values if package.meta is not None else {}
    return found.packages[0].to_json()


async def _scenario(wanted: Wanted) -> str:
    name = wanted.names["name"]
    if name.startswith(".") or "\\" in name:
        raise wanted.invalid("a scenario's name does not begin with a dot")
    for place in (home(), algocline_home()):
        text = await in_thread(read_source, place / "scenarios" / f"{name}.lua")
        if text is not None:
            return repaired(text)
    raise wanted.missing(f"there is no {home() / 'scenarios' / name}.lua")


# --- cards ---------------------------------------------------------------------------------------------


async def _card(wanted: Wanted) -> Json:
    card = await in_thread(own_box().get, wanted.names["card_id"])
    if card is None:
        raise wanted.missing(f"no card has the id '{wanted.names['card_id']}'")
    return card


async def _samples(wanted: Wanted) -> Json:
    try:
        return await in_thread(
            own_box().read_samples, wanted.names["card_id"], wanted.numbers["offset"], wanted.numbers["limit"]
        )
    except CardTooLargeError as error:
        raise wanted.invalid(str(error)) from None


# --- sessions ------------------------------------------------------------------------------------------


async def _eval(wanted: Wanted) -> Json:
    """The report of an evaluation. Evaluations are sessions, so their ids are those of results too."""
    session = await wanted.call.holdfast.store.load(wanted.names["result_id"])
    report = session.ended.result if isinstance(session.ended, CompletedRecord) else None
    if not isinstance(report, dict) or not isinstance(report.get("aggregated"), dict):
        raise wanted.missing("that session has not ended with the report of an evaluation")
    return report


async def _log(wanted: Wanted) -> Json:
    """As `alc_log_view` has it, and of that the last rounds."""
    asked = LogParams(session_id=wanted.names["session_id"], max_chars=wanted.numbers["max_chars"])
    log = await alc_log_view(wanted.call, asked)
    transcript, limit = log["transcript"], wanted.numbers["limit"]
    if len(transcript) <= limit:
        return log
    cut = {"truncated": True, "original_rounds": log.get("original_rounds", len(transcript)), "returned_rounds": limit}
    return {**log, **cut, "transcript": transcript[len(transcript) - limit :]}


async def _session(wanted: Wanted) -> Json:
    return await wanted.call.holdfast.status(wanted.names["session_id"])


async def _journal(wanted: Wanted) -> Json:
    numbers = wanted.numbers
    return await journal_page(wanted.call.holdfast, wanted.names["session_id"], numbers["from"], numbers["limit"])


# --- strategies ----------------------------------------------------------------------------------------


async def _strategies(wanted: Wanted) -> Json:
    return {"strategies": msgspec.to_builtins(await catalog.runnables())}


async def _strategy(wanted: Wanted) -> Json:
    name = wanted.names["name"]
    found = next((each for each in await catalog.runnables() if each.name == name), None)
    if found is None:
        raise wanted.missing(f"no strategy has the name '{name}'; holdfast://strategies lists them")
    shown = {**msgspec.to_builtins(found), "text": ""}
    if found.kind == "native":
        return {**shown, "text": catalog.native_strategies()[name].__doc__ or ""}
    try:
        return {**shown, **await get_language(found.kind).describe(name)}
    except ProgramNotFoundError as error:
        raise wanted.missing(error.why) from None


async def _strategy_source(wanted: Wanted) -> str:
    """By name only, and where strategies are: what is read is what would be run."""
    name = wanted.names["name"]
    if (why := invalid_name_reason(name)) is not None:
        raise wanted.invalid(why)
    try:
        listed = await in_thread(find_entry, name)
        if listed.hidden_by is not None:
            raise wanted.missing(f"another program has this name, and is what runs: {listed.hidden_by}")
        return repaired(await in_thread(read_code, Path(listed.path)))
    except ProgramNotFoundError as error:
        raise wanted.missing(error.why) from None


# --- the table -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resource:
    """One resource, or a template of many."""

    template: str
    title: str
    description: str
    mime: str
    read: Callable[[Wanted], Awaitable[Json]]
    numbers: tuple[Number, ...] = ()
    is_there: Callable[[], bool] = lambda: True
    """Whether a resource without holes can be read now."""

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.template)

    @property
    def name(self) -> str:
        path = self.template.partition("{?")[0].partition("://")[2]
        return path.replace("{", "").replace("}", "").replace("/", "-")


RESOURCES = (
    Resource(
        f"holdfast://types/{STUB_NAME}",
        "The alc API",
        "Type stubs (LuaCATS) of everything that a Lua strategy can use: read it before writing one.",
        LUA,
        _stubs,
    ),
    Resource(f"alc://types/{STUB_NAME}", "The alc API", "The same as holdfast://types/alc.d.lua.", LUA, _stubs),
    Resource(
        PYTHON_STUBS_URI,
        "The API in Python",
        "Type stubs of everything that a strategy in sandboxed Python can call: read it before writing one.",
        PYTHON,
        _python_stubs,
    ),
    Resource(
        f"alc://types/{SHAPES_STUB}",
        "The shapes of results",
        "Type stubs of the package alc_shapes.",
        LUA,
        _shapes,
        is_there=lambda: _shapes_file() is not None,
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
    Resource(
        "alc://packages/{name}/init.lua", "A package's code", "The init.lua of a Lua package.", LUA, _package_source
    ),
    Resource(
        "alc://packages/{name}/meta", "A package's metadata", "What a package says of itself.", JSON, _package_meta
    ),
    Resource("alc://cards/{card_id}", "A card", "The record of a run, which does not change.", JSON, _card),
    Resource(
        "alc://cards/{card_id}/samples{?offset,limit}",
        "A card's samples",
        "The single cases behind a card, a page at a time.",
        JSON,
        _samples,
        (_OFFSET, _SAMPLES),
    ),
    Resource("alc://scenarios/{name}", "A scenario", "The Lua code of a stored scenario.", LUA, _scenario),
    Resource(
        "alc://eval/{result_id}",
        "An evaluation",
        "The report of an evaluation. Its id is that of the session that ran it.",
        JSON,
        _eval,
    ),
    Resource(
        "alc://logs/{session_id}{?limit,max_chars}",
        "A session's log",
        "The figures of a session and its last exchanges with the model, cut to max_chars.",
        JSON,
        _log,
        (_ROUNDS, _CHARS),
    ),
)


def find_template(template: str) -> Resource | None:
    """The template with this text; with or without its parameters, as hosts differ."""
    for each in _templates():
        if template in (each.template, each.template.partition("{?")[0]):
            return each
    return None


def _templates() -> Iterator[Resource]:
    return (each for each in RESOURCES if each.pattern.variables)


def listed() -> list[types.Resource]:
    """The resources that have no holes."""
    return [
        types.Resource(
            uri=each.template, name=each.name, title=each.title, description=each.description, mime_type=each.mime
        )
        for each in RESOURCES
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


async def read(call: Call, uri: str) -> types.ReadResourceResult:
    """What is behind a URI; `MCPError` with the code of that revision if there is nothing."""
    try:
        mime, text = await _read(call, uri)
    except (ResourceNotFoundError, SessionNotFoundError, CardNotFoundError) as error:
        code = NOT_FOUND if call.context.protocol_version < STATELESS else types.INVALID_PARAMS
        raise MCPError(code, str(error), {"uri": uri}) from None
    except (InvalidUriError, InvalidIdError, InvalidCardNameError) as error:
        raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri}) from None
    except HoldfastError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error), {"uri": uri}) from None
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime, text=text)])


async def _read(call: Call, uri: str) -> tuple[str, str]:
    address = parse(uri)
    for each in RESOURCES:
        names = each.pattern.match(address)
        if names is not None:
            found = await each.read(Wanted(call, uri, names, address.numbers(each.numbers)))
            return each.mime, found if each.mime in (LUA, PYTHON) else msgspec.json.encode(found).decode()
    raise ResourceNotFoundError(uri, "no resource has such a URI; resources/templates/list has those there are")
