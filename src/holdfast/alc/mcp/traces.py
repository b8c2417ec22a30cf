"""algocline's tools for traces: how many calls runs made and how long they took, found and compared. A run's trace is
its journal, or the log that algocline has left of it; a sample of a card can hold one too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from holdfast.alc.cards.errors import CardTooLargeError
from holdfast.alc.cards.library import CardLibrary
from holdfast.alc.cards.tool import own_library
from holdfast.alc.migration.logs import MAX_LISTED, log_document, log_metas
from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.core.values import Json
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.runs import RunView, rows_of
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, about
from holdfast.store.session_rows import SessionFilter

PAGE = 50
MAX_PAGE = 1_000
"""Traces of one answer: each is read from its journal."""

SAMPLES_AT_ONCE = 1_000
"""Samples of a card that are read together; fewer if they are large."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class QueryParams(Params):
    pkg: Annotated[str | None, about("Only runs of this package or strategy.")] = None
    min_calls: Annotated[Count | None, about("With at least so many model calls.")] = None
    max_calls: Annotated[Count | None, about("With at most so many model calls.")] = None
    min_ms: Annotated[Count | None, about("That took at least so many milliseconds.")] = None
    max_ms: Annotated[Count | None, about("That took at most so many milliseconds.")] = None
    completed: Annotated[
        bool | None, about("Only those that ended with a result, or only the others; logs of algocline's do not say.")
    ] = None
    offset: Annotated[Count | None, about("How many that match to pass over.")] = None
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] | None, about(f"How many to give; {PAGE} if left out.")
    ] = None


async def alc_trace_query(call: McpCall, params: QueryParams) -> Object:
    found: list[Object] = []
    passed, wanted = 0, params.limit or PAGE
    async for row in _traced_rows(call, params.pkg):
        if not _matches(row["trace"], params):
            continue
        passed += 1
        if passed <= (params.offset or 0):
            continue
        if len(found) == wanted:
            return {"traces": found, "next_offset": (params.offset or 0) + wanted}
        found.append(row)
    return {"traces": found}


async def _traced_rows(call: McpCall, pkg: str | None) -> AsyncIterator[Object]:
    """What has a trace: the runs of the store, those of algocline's logs (the latest first), and samples of cards."""
    store, own = call.holdfast.store, set[str]()
    async for row in rows_of(store, SessionFilter(program=pkg)):
        if isinstance(row, str):
            continue  # damaged: it has no trace that could be read
        try:
            run = await RunView.read(store, row.session_id)
        except HoldfastError:
            continue
        own.add(row.session_id)
        yield {"session_id": row.session_id, "pkg": run.strategy, "case": run.hint, "trace": _trace_of(run)}
    for logged in await on_files(_log_rows, pkg):
        if logged["session_id"] not in own:
            yield logged
    async for sample in _sample_rows(own_library(store), pkg):
        yield sample


def _log_rows(pkg: str | None) -> list[Object]:
    rows = []
    for meta in log_metas(MAX_LISTED):
        name, hint = meta.get("strategy"), meta.get("task_hint")
        if pkg is not None and name != pkg:
            continue
        trace = _trace_of_log(meta, meta) or _trace_in_document(meta["session_id"])
        if trace is not None:
            rows.append({"session_id": meta["session_id"], "pkg": name, "case": hint, "trace": trace})
    return rows


async def _sample_rows(library: CardLibrary, pkg: str | None) -> AsyncIterator[Object]:
    for card in await library.list(pkg):
        async for index, sample in _samples_of(library, card["card_id"]):
            trace = _trace_in_sample(sample)
            if trace is not None:
                shown: Object = {"card_id": card["card_id"], "pkg": card["pkg"], "sample_index": index, "trace": trace}
                yield {**shown, "case": sample["case"]} if "case" in sample else shown


async def _samples_of(library: CardLibrary, card_id: str) -> AsyncIterator[tuple[int, Json]]:
    """The samples of a card, each with its index, as far as they can be read."""
    index, at_once = 0, SAMPLES_AT_ONCE
    while True:
        try:
            samples = await library.read_samples(card_id, index, at_once)
        except CardTooLargeError:
            at_once = max(1, at_once // 10)
            continue
        except HoldfastError:
            return  # deleted meanwhile, or damaged
        for sample in samples:
            yield index, sample
            index += 1
        if len(samples) < at_once:
            return


def _matches(trace: Object, params: QueryParams) -> bool:
    calls, ms = trace["total_calls"], trace["total_trace_ms"]
    return (
        (params.min_calls is None or calls >= params.min_calls)
        and (params.max_calls is None or calls <= params.max_calls)
        and (params.min_ms is None or ms >= params.min_ms)
        and (params.max_ms is None or ms <= params.max_ms)
        and (params.completed is None or trace["completed"] == params.completed)
    )


def _trace_of(run: RunView) -> Object:
    auto = run.stats["auto"]
    completed = str(run.session.state) == "completed"
    return {"total_calls": auto["llm_calls"], "total_trace_ms": auto["elapsed_ms"], "completed": completed}


def _trace_in_document(session_id: str) -> Object | None:
    """The trace of a run that algocline has logged; None if there is no log of it, or none that has figures."""
    document = log_document(session_id)
    stats = None if document is None else document.get("stats")
    return _trace_of_log(stats, document) if isinstance(document, dict) and isinstance(stats, dict) else None


def _trace_of_log(stats: Object, log: Object) -> Object | None:
    """algocline does not write down how a run ended: whether it completed is known only from a log with a status."""
    calls, ms, status = stats.get("llm_calls"), stats.get("elapsed_ms"), log.get("status")
    if not _is_number(calls):
        return None
    completed = status == "completed" if isinstance(status, str) else None
    return {"total_calls": calls, "total_trace_ms": ms if _is_number(ms) else 0, "completed": completed}


def _trace_in_sample(sample: Json) -> Object | None:
    """The trace that a sample of a card holds, as the package recipe_trace makes it."""
    trace = sample.get("trace") if isinstance(sample, dict) else None
    if not isinstance(trace, dict) or not _is_number(trace.get("total_calls")):
        return None
    ms = trace.get("total_trace_ms")
    return {
        "total_calls": trace["total_calls"],
        "total_trace_ms": ms if _is_number(ms) else 0,
        "completed": bool(trace.get("completed")),
    }


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- diff ------------------------------------------------------------------------------------------


class DiffParams(Params):
    a_session_id: Annotated[str | None, about("The first run.")] = None
    b_session_id: Annotated[str | None, about("The second run.")] = None
    a_card_id: Annotated[str | None, about("Instead of a run: a card, one of whose samples has a trace.")] = None
    a_sample_index: Annotated[Count | None, about("Which sample; the first if left out.")] = None
    b_card_id: Annotated[str | None, about("The same for the second.")] = None
    b_sample_index: Annotated[Count | None, about("Which sample; the first if left out.")] = None


async def alc_trace_diff(call: McpCall, params: DiffParams) -> Object:
    a = await _side(call, "a", params.a_session_id, params.a_card_id, params.a_sample_index or 0)
    b = await _side(call, "b", params.b_session_id, params.b_card_id, params.b_sample_index or 0)
    told: Object = {
        "a_trace": a,
        "b_trace": b,
        "delta": {
            "calls_delta": b["total_calls"] - a["total_calls"],
            "ms_delta": b["total_trace_ms"] - a["total_trace_ms"],
            "ms_per_call_delta": _ms_per_call(b) - _ms_per_call(a),
        },
    }
    ids = [each for each in (params.a_session_id, params.b_session_id) if each is not None]
    if len(ids) == 2 and all([await _is_stored(call, each) for each in ids]):
        compared = await call.holdfast.compare(*ids)
        told["comparison"] = msgspec.to_builtins(compared)
    return told


async def _side(call: McpCall, side: str, session_id: str | None, card_id: str | None, index: int) -> Object:
    if (session_id is None) == (card_id is None):
        raise McpToolError(f"trace_diff: give either {side}_session_id or {side}_card_id")
    if session_id is not None:
        if await _is_stored(call, session_id):
            return _trace_of(await RunView.read(call.holdfast.store, session_id))
        logged: Object | None = await on_files(_trace_in_document, session_id)
        if logged is None:
            raise McpToolError(f"trace_diff: session '{session_id}' not found")
        return logged
    rows = await own_library(call.holdfast.store).read_samples(str(card_id), index, 1)
    if not rows:
        raise McpToolError(f"trace_diff: card '{card_id}' has no sample {index}")
    trace = _trace_in_sample(rows[0])
    if trace is None:
        raise McpToolError(f"trace_diff: sample {index} of card '{card_id}' has no trace")
    return trace


async def _is_stored(call: McpCall, session_id: str) -> bool:
    """Whether a run is one of the store, and not one of which algocline has left a log."""
    try:
        await call.holdfast.store.session(session_id)
    except (SessionNotFoundError, InvalidIdError):
        return False
    return True


def _ms_per_call(trace: Object) -> float:
    return trace["total_trace_ms"] / trace["total_calls"] if trace["total_calls"] else 0.0


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_trace_query",
        "Find runs by their calls and time",
        "Runs, those in algocline's logs included, and samples of cards that hold a trace, with their number of model"
        " calls, the milliseconds they took, and whether they completed (null where a log does not say); filtered by"
        " each of those and by package, a page at a time.",
        QueryParams,
        alc_trace_query,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_trace_diff",
        "Compare two runs",
        "The calls and times of two runs (or of samples of cards that hold a trace), what the second has more than the"
        " first, and for runs where they part and how each goes on.",
        DiffParams,
        alc_trace_diff,
        read_only=True,
        idempotent=True,
    ),
]
