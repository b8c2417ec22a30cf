"""algocline's tools for traces: how many calls runs made and how long they took, found and compared. A run's trace is
its journal; a sample of a card that holds a `trace` of its own can be compared as well."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.alc.cards.tool import own_library
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.serve.mcp.runs import RunView, rows_of
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, about
from holdfast.store.session_rows import SessionFilter

PAGE = 50
MAX_PAGE = 1_000
"""Traces of one answer: each is read from its journal."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class QueryParams(Params):
    pkg: Annotated[str | None, about("Only runs of this package or strategy.")] = None
    min_calls: Annotated[Count | None, about("With at least so many model calls.")] = None
    max_calls: Annotated[Count | None, about("With at most so many model calls.")] = None
    min_ms: Annotated[Count | None, about("That took at least so many milliseconds.")] = None
    max_ms: Annotated[Count | None, about("That took at most so many milliseconds.")] = None
    completed: Annotated[bool | None, about("Only those that ended with a result, or only the others.")] = None
    offset: Annotated[Count | None, about("How many that match to pass over.")] = None
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] | None, about(f"How many to give; {PAGE} if left out.")
    ] = None


async def alc_trace_query(call: McpCall, params: QueryParams) -> Object:
    store = call.holdfast.store
    found: list[Object] = []
    passed, wanted = 0, params.limit or PAGE
    async for row in rows_of(store, SessionFilter(program=params.pkg)):
        if isinstance(row, str):
            continue  # damaged: it has no trace that could be read
        try:
            run = await RunView.read(store, row.session_id)
        except HoldfastError:
            continue
        trace = _trace_of(run)
        if not _matches(trace, params):
            continue
        passed += 1
        if passed <= (params.offset or 0):
            continue
        if len(found) == wanted:
            return {"traces": found, "next_offset": (params.offset or 0) + wanted}
        found.append({"session_id": row.session_id, "pkg": run.strategy, "case": run.hint, "trace": trace})
    return {"traces": found}


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
    if params.a_session_id is not None and params.b_session_id is not None:
        compared = await call.holdfast.compare(params.a_session_id, params.b_session_id)
        told["comparison"] = msgspec.to_builtins(compared)
    return told


async def _side(call: McpCall, side: str, session_id: str | None, card_id: str | None, index: int) -> Object:
    if (session_id is None) == (card_id is None):
        raise McpToolError(f"trace_diff: give either {side}_session_id or {side}_card_id")
    if session_id is not None:
        try:
            await call.holdfast.store.session(session_id)
        except SessionNotFoundError:
            raise McpToolError(f"trace_diff: session '{session_id}' not found") from None
        return _trace_of(await RunView.read(call.holdfast.store, session_id))
    rows = await own_library(call.holdfast.store).read_samples(str(card_id), index, 1)
    if not rows:
        raise McpToolError(f"trace_diff: card '{card_id}' has no sample {index}")
    trace = rows[0].get("trace") if isinstance(rows[0], dict) else None
    if not isinstance(trace, dict) or not isinstance(trace.get("total_calls"), int | float):
        raise McpToolError(f"trace_diff: sample {index} of card '{card_id}' has no trace")
    ms = trace.get("total_trace_ms")
    return {
        "total_calls": trace["total_calls"],
        "total_trace_ms": ms if isinstance(ms, int | float) else 0,
        "completed": bool(trace.get("completed")),
    }


def _ms_per_call(trace: Object) -> float:
    return trace["total_trace_ms"] / trace["total_calls"] if trace["total_calls"] else 0.0


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_trace_query",
        "Find runs by their calls and time",
        "Runs with their number of model calls, the milliseconds they took, and whether they completed; filtered by"
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
