"""algocline's resources: the stubs of the API, packages, cards, scenarios, evaluations and logs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holdfast.alc.cards.errors import CardNotFoundError, CardTooLargeError, InvalidCardNameError
from holdfast.alc.cards.tool import own_library
from holdfast.alc.evaluations.results import EvalResultNotFoundError, read_result
from holdfast.alc.lua.meta import MAX_SOURCE, read_source
from holdfast.alc.lua.packages import Package, find_package, find_roots
from holdfast.alc.lua.stubs import STUB_NAME, render_stubs
from holdfast.alc.mcp.logs import LogParams, alc_log_view
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.package_list import listing
from holdfast.alc.packages.run_meta import fill_in
from holdfast.alc.packages.shape_stubs import generated_stubs
from holdfast.alc.scenarios import ScenarioFiles, ScenarioNotFoundError
from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.core.records import CompletedRecord
from holdfast.core.values import Json, repaired
from holdfast.programs.names import invalid_name_reason
from holdfast.programs.paths import algocline_home, home
from holdfast.serve.mcp.resource import JSON, LUA, Resource, ResourceRequest
from holdfast.serve.mcp.tools import in_thread
from holdfast.serve.mcp.uris import UriParameter

STUBS_URI = f"holdfast://types/{STUB_NAME}"

SHAPES_PACKAGE = "alc_shapes"
SHAPES_STUB = "alc_shapes.d.lua"

_OFFSET = UriParameter("offset", 0, 10_000_000)
_SAMPLES = UriParameter("limit", 100, 10_000)
_ROUNDS = UriParameter("limit", 50, 10_000)
_CHARS = UriParameter("max_chars", 20_000, 1_000_000)


async def _stubs(request: ResourceRequest) -> str:
    return render_stubs()


async def _shapes(request: ResourceRequest) -> str:
    file = await in_thread(_shapes_file)
    text = await generated_stubs() if file is None else read_source(file)
    if text is None:
        raise request.missing(f"the package {SHAPES_PACKAGE} is not installed, or has no stubs and cannot write them")
    return repaired(text)


def _shapes_package() -> Package | None:
    try:
        return find_package(find_roots(), SHAPES_PACKAGE)
    except HoldfastError:
        return None


def _has_shapes() -> bool:
    return _shapes_package() is not None


def _shapes_file() -> Path | None:
    """The type stubs of the package of shapes: within it, beside it in a collection, or where algocline keeps them."""
    package = _shapes_package()
    if package is None:
        return None
    own = Path(package.directory)
    around = (own, own / "types", own.resolve().parent / "types", home() / "types", algocline_home() / "types")
    return next((place / SHAPES_STUB for place in around if (place / SHAPES_STUB).is_file()), None)


async def _package_source(request: ResourceRequest) -> str:
    package = await in_thread(_package, request)
    text = await in_thread(read_source, Path(package.directory) / "init.lua")
    if text is None:
        raise request.missing(f"its init.lua cannot be read, or has more than {MAX_SOURCE} bytes")
    return repaired(text)


def _package(request: ResourceRequest) -> Package:
    name = request.names["name"]
    if (why := invalid_name_reason(name)) is not None:
        raise request.invalid(why)
    try:
        package = find_package(find_roots(), name)
    except HoldfastError as error:  # a pin that is not met, a link that leaves its root
        raise request.missing(str(error)) from None
    if package is None:
        raise request.missing(f"no package '{name}' is installed")
    return package


async def _package_meta(request: ResourceRequest) -> Json:
    package = await in_thread(_package, request)
    found = await in_thread(listing, PackageDirectories())
    found.packages = [each for each in found.packages if each.package.directory == package.directory]
    await fill_in(found)
    if not found.packages:
        return package.meta.values if package.meta is not None else {}
    return found.packages[0].to_json()


async def _scenario(request: ResourceRequest) -> str:
    name = request.names["name"]
    if name.startswith(".") or "\\" in name:
        raise request.invalid("a scenario's name does not begin with a dot")
    try:
        _, text = await in_thread(ScenarioFiles().read, name)
    except ScenarioNotFoundError as error:
        raise request.missing(str(error)) from None
    return str(text)


async def _card(request: ResourceRequest) -> Json:
    try:
        card = await own_library(request.call.holdfast.store).get(request.names["card_id"])
    except InvalidCardNameError as error:
        raise request.invalid(str(error)) from None
    if card is None:
        raise request.missing(f"no card has the id '{request.names['card_id']}'")
    return card


async def _samples(request: ResourceRequest) -> Json:
    try:
        return await own_library(request.call.holdfast.store).read_samples(
            request.names["card_id"], request.numbers["offset"], request.numbers["limit"]
        )
    except CardNotFoundError as error:
        raise request.missing(str(error)) from None
    except (CardTooLargeError, InvalidCardNameError) as error:
        raise request.invalid(str(error)) from None


async def _eval(request: ResourceRequest) -> Json:
    """The report of an evaluation: of a session that evaluates, of a plan, or of a file that algocline wrote."""
    store, name = request.call.holdfast.store, request.names["result_id"]
    with suppress(SessionNotFoundError, InvalidIdError):
        session = await store.load(name)
        report = session.ended.result if isinstance(session.ended, CompletedRecord) else None
        if isinstance(report, dict) and isinstance(report.get("aggregated"), dict):
            return report
    try:
        return (await read_result(store, name)).get("result")
    except EvalResultNotFoundError as error:
        raise request.missing(f"there is not the report of an evaluation: {error}") from None


async def _log(request: ResourceRequest) -> Json:
    """The result of `alc_log_view`, with the last rounds only."""
    asked = LogParams(session_id=request.names["session_id"], max_chars=request.numbers["max_chars"])
    log = await alc_log_view(request.call, asked)
    transcript, limit = log["transcript"], request.numbers["limit"]
    if len(transcript) <= limit:
        return log
    cut = {"truncated": True, "original_rounds": log.get("original_rounds", len(transcript)), "returned_rounds": limit}
    return {**log, **cut, "transcript": transcript[len(transcript) - limit :]}


RESOURCES = (
    Resource(
        STUBS_URI,
        "The alc API",
        "Type stubs (LuaCATS) of everything that a Lua strategy can use: read it before writing one.",
        LUA,
        _stubs,
    ),
    Resource(f"alc://types/{STUB_NAME}", "The alc API", "The same as holdfast://types/alc.d.lua.", LUA, _stubs),
    Resource(
        f"alc://types/{SHAPES_STUB}",
        "The shapes of results",
        "Type stubs of the package alc_shapes.",
        LUA,
        _shapes,
        is_there=_has_shapes,
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
