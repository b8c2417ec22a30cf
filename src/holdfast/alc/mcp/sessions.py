"""algocline's tools for sessions, by their names, with their parameters and results; additions are additive keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import mcp_types as types
import msgspec

from holdfast.alc.mcp.log_files import with_log
from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.core.queries import Failure, Value
from holdfast.core.records import Program
from holdfast.core.state import State
from holdfast.core.status import parse_pending_filter
from holdfast.core.values import Json
from holdfast.programs.language import ProgramOptions, StepLimits
from holdfast.serve.mcp import sessions
from holdfast.serve.mcp.allowed import DeadlineS, MemoryMib
from holdfast.serve.mcp.host_events import plain_event
from holdfast.serve.mcp.runs import AD_HOC
from holdfast.serve.mcp.tools import (
    McpCall,
    McpTool,
    McpToolError,
    Object,
    Params,
    ProjectRoot,
    SessionId,
    UsageParams,
    about,
    unquoted,
)
from holdfast.store.session_rows import SessionFilter

ACTIVE = (State.RUNNING, State.PAUSED)

EVENT: Object = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": ["needs_response", "accepted", "running", "imported", "completed", "error", "cancelled", "expired"],
        },
        "session_id": {"type": "string"},
        "query_id": {"type": "string"},
        "prompt": {"type": "string"},
        "queries": {"type": "array", "items": {"type": "object"}},
        "result": {},
        "error": {"type": "string"},
        "stats": {"type": "object"},
    },
    "required": ["status", "session_id"],
}
"""The shapes that running and answering give, in one schema."""


# --- run, advice -----------------------------------------------------------------------------------


class AlcRunParams(Params):
    code: Annotated[
        str | None,
        about(
            "Source. Lua: the first return value is the result. Python: what `run(ctx)` returns, else the value of the"
            " last expression."
        ),
    ] = None
    code_file: Annotated[
        str | None, about("A file of source in the project, or where the operator allows it, instead of code.")
    ] = None
    ctx: Annotated[Any, about("Any JSON: the global `ctx` of the code.")] = None
    project_root: ProjectRoot = None
    language: sessions.Language = None
    deadline_s: DeadlineS = None
    memory_mib: MemoryMib = None


async def alc_run(call: McpCall, params: AlcRunParams) -> Object | types.InputRequiredResult:
    def program() -> Program:
        return sessions.program_of_code(
            params.code,
            params.code_file,
            params.project_root,
            params.language,
            directories=call.code_directories,
            options=_options(call, params),
        )

    return await _run(call, program, unquoted(params.ctx))


class AdviceParams(Params):
    strategy: Annotated[str, about("The name of a package or a strategy in Python; alc_pkg_list has both.")]
    task: Annotated[str | None, about("What to work on: ctx.task.")] = None
    opts: Annotated[Any, about("An object that becomes ctx: the strategy's options.")] = None
    project_root: ProjectRoot = None
    deadline_s: DeadlineS = None
    memory_mib: MemoryMib = None


async def alc_advice(call: McpCall, params: AdviceParams) -> Object | types.InputRequiredResult:
    options = unquoted(params.opts)
    if options is not None and not isinstance(options, dict):
        raise McpToolError("`opts` must be an object")
    ctx = {**(options or {}), **({"task": params.task} if params.task is not None else {})}

    def program() -> Program:
        return sessions.program_named(params.strategy, params.project_root, _options(call, params))

    return await _run(call, program, ctx)


async def _run(call: McpCall, program: Callable[[], Program], ctx: Json) -> Object | types.InputRequiredResult:
    told = await sessions.run(call, program, ctx, show=plain_event)
    return await with_log(call, told) if isinstance(told, dict) else told


def _options(call: McpCall, params: AlcRunParams | AdviceParams) -> ProgramOptions:
    return call.allowed.options(StepLimits(deadline_s=params.deadline_s, memory_mib=params.memory_mib))


# --- continue --------------------------------------------------------------------------------------


class ResponseParams(msgspec.Struct, kw_only=True):
    query_id: str
    response: Any = None
    error: Annotated[str | None, about("Why there is no answer, instead of one.")] = None
    usage: UsageParams | None = None


class ContinueParams(Params):
    session_id: SessionId
    response: Annotated[Any, about("The answer, where one query waits or query_id names it.")] = None
    query_id: Annotated[str | None, about("Which query it answers.")] = None
    responses: Annotated[list[ResponseParams] | None, about("Several answers at once: all are taken, or none.")] = None
    usage: Annotated[UsageParams | None, about("What the answer cost, as far as known.")] = None
    error: Annotated[str | None, about("Why there is no answer: the strategy sees an error.")] = None
    deadline_s: Annotated[
        DeadlineS, about("Instead of an answer: continue what a deadline stopped, in a new session.")
    ] = None
    memory_mib: Annotated[MemoryMib, about("The same for what a limit of memory has stopped.")] = None


async def alc_continue(call: McpCall, params: ContinueParams) -> Object:
    limits = sessions.limits_of(call, params.deadline_s, params.memory_mib)
    try:
        if limits is not None:
            event = await call.holdfast.fork(params.session_id, limits=limits)
        else:
            event = await sessions.answer(call, params.session_id, _answers(params))
        return await with_log(call, event.to_json())
    except HoldfastError as error:
        raise sessions.continue_failed(error) from None


def _answers(params: ContinueParams) -> dict[str, GivenAnswer] | GivenAnswer:
    if params.responses is not None:
        if not params.responses:
            raise McpToolError("Empty responses array")
        given: dict[str, GivenAnswer] = {}
        for each in params.responses:
            if each.query_id in given:
                raise McpToolError(f"Continue failed: query_id {each.query_id} is answered twice; answer it once")
            if each.response is None and each.error is None:
                raise McpToolError(
                    f"Continue failed: the response to {each.query_id} is missing; give 'response' or 'error'"
                )
            given[each.query_id] = _given(each.response, each.error, each.query_id, each.usage)
        return given
    if params.response is None and params.error is None:
        raise McpToolError("Either 'response' or 'responses' must be provided")
    return _given(params.response, params.error, params.query_id, params.usage)


def _given(response: Json, error: str | None, query_id: str | None, usage: UsageParams | None) -> GivenAnswer:
    answer = Failure(error) if error is not None else Value(value=response)
    return GivenAnswer(answer, query_id, usage.kept() if usage is not None else None)


# --- status, cancel --------------------------------------------------------------------------------


class StatusParams(Params):
    session_id: Annotated[str | None, about("One session; else all that are active.")] = None
    pending_filter: Annotated[
        Any, about('What to show of pending queries: "meta", "preview", "full", or an object.')
    ] = None
    include_history: Annotated[bool, about("Whether to show the last exchanges.")] = False


async def alc_status(call: McpCall, params: StatusParams) -> Object:
    shown = _pending_filter(params.pending_filter)
    if params.session_id is not None:
        try:
            return _status(await call.holdfast.status(params.session_id, pending=shown, history=params.include_history))
        except SessionNotFoundError:
            raise McpToolError(f"session '{params.session_id}' not found (may have completed)") from None
    page = await call.holdfast.sessions(SessionFilter(states=ACTIVE))
    found = [
        _status(await call.holdfast.status(row.session_id, pending=shown, history=params.include_history))
        for row in page.rows
    ]
    return {"active_sessions": len(found), "sessions": found}


def _status(shown: Object) -> Object:
    """A status without the name that code has which has none."""
    return {**shown, "strategy": None} if shown.get("strategy") == AD_HOC else shown


def _pending_filter(given: object) -> object:
    """The filter of pending queries as it was given, checked; a preview is as long as the environment says."""
    chars = os.environ.get("ALC_PROMPT_PREVIEW_CHARS", "")
    if given == "preview" and chars.isdecimal():
        return {"query_id": True, "max_tokens": True, "prompt": {"mode": "preview", "chars": int(chars)}}
    shown = given if given is not None else "meta"
    parse_pending_filter(shown)
    return shown


class AlcCancelParams(Params):
    session_id: SessionId
    reason: Annotated[str | None, about("Why; kept in the journal.")] = None


async def alc_cancel(call: McpCall, params: AlcCancelParams) -> Object:
    event = await call.holdfast.cancel(params.session_id, params.reason, by=sessions.BY)
    return await with_log(call, event.to_json())


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_run",
        "Run a strategy's code",
        "Run Lua code that uses the alc API, or sandboxed Python (language: python) that asks with llm(prompt). Gives"
        " the first question of the run (needs_response: answer it with alc_continue) or its result (completed). Code"
        " that cannot run is refused with every fault and its place. The run is durable: it can be continued by its"
        " session_id after any restart.",
        AlcRunParams,
        alc_run,
        output=EVENT,
    ),
    McpTool(
        "alc_advice",
        "Run a strategy",
        "Run a strategy by its name on a task. Gives the first question (needs_response: answer it with alc_continue,"
        " as yourself, with care) or the result (completed).",
        AdviceParams,
        alc_advice,
        output=EVENT,
    ),
    McpTool(
        "alc_continue",
        "Answer a run",
        "Answer what a run asked, with response (and query_id where several queries wait) or responses for several at"
        " once. Gives the next question, or the result. The same answer twice is taken once.",
        ContinueParams,
        alc_continue,
        idempotent=True,
        output=EVENT,
    ),
    McpTool(
        "alc_status",
        "See runs",
        "What runs are active, or how one stands: its phase, metrics and pending queries.",
        StatusParams,
        alc_status,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_cancel",
        "Cancel a run",
        "End a run. It can still be looked at.",
        AlcCancelParams,
        alc_cancel,
        destructive=True,
        idempotent=True,
        output=EVENT,
    ),
]
