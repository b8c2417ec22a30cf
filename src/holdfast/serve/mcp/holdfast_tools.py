"""Holdfast's own tools: seven short names, which a host shows by default. Their results are in `views`."""

from __future__ import annotations

from typing import Annotated, Any

import mcp_types as types
import msgspec
from msgspec import UNSET, UnsetType

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import TransitionError
from holdfast.core.queries import Failure, Value
from holdfast.core.records import Program
from holdfast.core.state import State
from holdfast.core.values import Json
from holdfast.programs.language import StepLimits
from holdfast.serve.mcp import catalog, sessions
from holdfast.serve.mcp.allowed import DeadlineS, MemoryMib
from holdfast.serve.mcp.host_events import event_for_host
from holdfast.serve.mcp.journal import journal_page
from holdfast.serve.mcp.tools import (
    McpCall,
    McpTool,
    McpToolError,
    Object,
    Params,
    SessionId,
    UsageParams,
    about,
    outline_of,
    unquoted,
)
from holdfast.serve.mcp.views import EventView, SessionRowView, SessionsView, ShowView, StrategiesView
from holdfast.store.session_rows import SessionFilter, SessionRow

MAX_LISTED = 200
"""Sessions or strategies on a page: about as many as a model can look through."""

Project = Annotated[
    str | None,
    about("Directory of the project whose packages count (with holdfast.toml); else the nearest above the server's."),
]
Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LISTED, description="How many at most.")]


# --- run ---------------------------------------------------------------------------------------------


class BudgetParams(Params):
    max_llm_calls: Annotated[int | None, about("Questions to a model.")] = None
    max_tokens: Annotated[int | None, about("Tokens of prompts and answers together.")] = None
    max_elapsed_ms: Annotated[int | None, about("Milliseconds since the start, waiting included.")] = None
    max_own_ms: Annotated[int | None, about("Milliseconds in which the strategy itself runs.")] = None


class RunParams(Params):
    strategy: Annotated[
        str | None, about("The name of a strategy, as `strategies` lists it. Either this or `code`.")
    ] = None
    code: Annotated[
        str | None,
        about(
            "Source to run instead of a named strategy. In Lua it asks with alc.llm(prompt), and its first return value"
            " is the result; the resource holdfast://types/alc.d.lua describes everything in `alc`. In Python it asks"
            " with llm(prompt), and what `run(ctx)` returns is the result, else the value of the last expression;"
            f" {sessions.PYTHON_STUBS_URI} describes what it may call, and it can import little else."
        ),
    ] = None
    language: sessions.Language = None
    task: Annotated[str | None, about("What to work on, in full: the strategy sees only this and `ctx`.")] = None
    ctx: Annotated[Any, about("More input: an object of the strategy's options; `task` becomes its key `task`.")] = None
    budget: Annotated[BudgetParams | None, about("Limits that the run may not pass.")] = None
    project: Project = None
    deadline_s: DeadlineS = None
    memory_mib: MemoryMib = None


async def run(call: McpCall, params: RunParams) -> Object | types.InputRequiredResult:
    budget = msgspec.to_builtins(params.budget) if params.budget is not None else None
    return await sessions.run(call, lambda: _program(call, params), _ctx(params), budget or None)


def _program(call: McpCall, params: RunParams) -> Program:
    options = call.allowed.options(StepLimits(deadline_s=params.deadline_s, memory_mib=params.memory_mib))
    match params.strategy, params.code:
        case None, None:
            raise McpToolError("give `strategy` (the tool `strategies` lists the names) or `code`")
        case str(), str():
            raise McpToolError("give either `strategy` or `code`, not both")
        case str(name), None:
            return sessions.program_named(name, params.project, options)
        case _:
            return sessions.program_of_code(params.code, None, params.project, params.language, options=options)


def _ctx(params: RunParams) -> Json:
    ctx = unquoted(params.ctx)
    if params.task is None:
        return ctx
    if ctx is not None and not isinstance(ctx, dict):
        raise McpToolError("`ctx` must be an object where `task` is given, because the task becomes its key `task`")
    return {**(ctx or {}), "task": params.task}


# --- answer ------------------------------------------------------------------------------------------


class OneAnswer(Params):
    query_id: Annotated[str, about("Which query this answers, as q-0.")]
    response: Annotated[Any, about("The answer: text for a model's query, any JSON for others.")] = UNSET
    error: Annotated[str | None, about("Instead of a response: why there is none. The strategy sees an error.")] = None
    usage: Annotated[UsageParams | None, about("What the answer cost, as far as known.")] = None


class AnswerParams(Params):
    session_id: SessionId
    response: Annotated[Any, about("The answer, where exactly one query waits.")] = UNSET
    answers: Annotated[
        list[OneAnswer] | None, about("Several answers, each with its query_id: all are taken, or none.")
    ] = None


async def answer(call: McpCall, params: AnswerParams) -> Object:
    return event_for_host(await sessions.answer(call, params.session_id, _answers(params)))


def _answers(params: AnswerParams) -> dict[str, GivenAnswer] | GivenAnswer:
    if (params.response is UNSET) == (params.answers is None):
        raise McpToolError("give either `response`, where one query waits, or `answers`, a list with query ids")
    if params.answers is None:
        return GivenAnswer(Value(value=params.response))
    if not params.answers:
        raise McpToolError("`answers` is empty; give at least one")
    given: dict[str, GivenAnswer] = {}
    for each in params.answers:
        if each.query_id in given:
            raise McpToolError(f"`answers` has {each.query_id} twice; answer it once")
        given[each.query_id] = _given(each)
    return given


def _given(each: OneAnswer) -> GivenAnswer:
    if (each.response is UNSET) == (each.error is None):
        raise McpToolError(f"{each.query_id}: give either `response` or `error`")
    usage = each.usage.kept() if each.usage is not None else None
    if each.error is not None:
        return GivenAnswer(Failure(each.error), each.query_id, usage)
    return GivenAnswer(Value(value=each.response), each.query_id, usage)


# --- sessions, show ----------------------------------------------------------------------------------


class SessionsParams(Params):
    states: Annotated[list[State] | None, about("Only these states; else all. Paused ones wait for an answer.")] = None
    strategy: Annotated[str | None, about("Only sessions of this strategy.")] = None
    limit: Limit = 20
    cursor: Annotated[str | None, about("`next_cursor` of the page before.")] = None


async def list_sessions(call: McpCall, params: SessionsParams) -> Object:
    where = SessionFilter(states=params.states or (), program=params.strategy)
    page = await call.holdfast.sessions(where, after=params.cursor, limit=params.limit)
    view = SessionsView(
        sessions=[_row(row) for row in page.rows],
        next_cursor=page.next if page.next is not None else UNSET,
        damaged=list(page.damaged) or UNSET,
    )
    return _to_json(view)


def _row(row: SessionRow) -> SessionRowView:
    summary = row.summary
    return SessionRowView(
        session_id=row.session_id,
        state=summary.state,
        strategy=summary.program,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        pending_queries=summary.pending,
        waiting_for=[kind for kind in summary.waiting_for.split(",") if kind],
        parent=summary.parent if summary.parent is not None else UNSET,
    )


class ShowParams(Params):
    session_id: SessionId
    result: Annotated[bool, about("Whether to give the result of a completed session; it may be long.")] = True
    journal: Annotated[bool, about("Whether to give what happened, a page at a time, without the strategy's code.")] = (
        False
    )
    journal_after: Annotated[int, msgspec.Meta(ge=0, description="`next` of the page before.")] = 0


async def show(call: McpCall, params: ShowParams) -> Object:
    shown: Object = await call.holdfast.status(params.session_id)
    if not params.result and "outcome" in shown:
        shown["outcome"].pop("result", None)
    if params.journal:
        page = await journal_page(call.holdfast, params.session_id, params.journal_after, sources=False)
        shown["journal"] = {"entries": page["entries"], "next": page["next"]}
    return shown


# --- cancel, fork, strategies ------------------------------------------------------------------------


class CancelParams(Params):
    session_id: SessionId
    reason: Annotated[str | None, about("Why, for whoever looks at it later.")] = None


async def cancel(call: McpCall, params: CancelParams) -> Object:
    try:
        return (await call.holdfast.cancel(params.session_id, params.reason, by=sessions.BY)).to_json()
    except TransitionError as error:
        why = f"session '{params.session_id}' has ended already ({error.actual}); nothing was changed"
        raise McpToolError(why) from None


class ForkParams(Params):
    session_id: SessionId
    at: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        about("The last journal position to keep, as `show` lists them; the whole journal if left out."),
    ] = None
    before: Annotated[str | None, about("Or fork before a query, such as `q-7`; the program asks it again.")] = None
    node: Annotated[
        str | None, about("Or fork at an agent's message, such as `n-12`; before it, if it is the user's.")
    ] = None
    turn: Annotated[str | None, about("Or fork before the input of an agent's turn.")] = None
    deadline_s: DeadlineS = None
    memory_mib: MemoryMib = None


async def fork(call: McpCall, params: ForkParams) -> Object:
    event = await call.holdfast.fork(
        params.session_id,
        params.at,
        before=params.before,
        node=params.node,
        turn=params.turn,
        limits=sessions.limits_of(call, params.deadline_s, params.memory_mib),
    )
    return event_for_host(event)


class StrategiesParams(Params):
    search: Annotated[
        str, about("Words for what it should do, such as `verify`; those with the most of them are listed.")
    ] = ""
    limit: Limit = 50
    cursor: Annotated[str | None, about("`next_cursor` of the page before.")] = None
    project: Project = None


async def strategies(call: McpCall, params: StrategiesParams) -> Object:
    found = catalog.matching(await catalog.runnables(sessions.project_root(params.project)), params.search)
    after = params.cursor or ""
    rest = [each for each in found if each.name > after]
    page = rest[: params.limit]
    more: str | UnsetType = page[-1].name if len(rest) > len(page) else UNSET
    return _to_json(StrategiesView(strategies=page, total=len(found), next_cursor=more))


def _to_json(view: msgspec.Struct) -> Object:
    shown: Object = msgspec.to_builtins(view)
    return shown


_EVENT = outline_of(EventView, "status", "session_id", "query_id", "prompt", "queries", "result", "error", "stats")

TOOLS: list[McpTool[Any]] = [
    McpTool(
        "run",
        "Run a strategy",
        "Start a reasoning strategy as a durable session. `strategy` names one (`strategies` lists them), or `code` is"
        " one, in Lua or Python. If the result has status needs_response, the strategy asks you: answer every prompt"
        " yourself, as well as you can, with the tool `answer` and the session_id, until the status is completed. The"
        " session outlives this server; it can always be found again with `sessions`.",
        RunParams,
        run,
        output=_EVENT,
    ),
    McpTool(
        "answer",
        "Answer a session",
        "Give a session the answers it waits for: `response` where it asked one question, `answers` where it asked"
        " several. The result is its next question (needs_response: answer again), accepted (others are still open), or"
        " how it ended (completed, error). Sending the same answer again is safe: it is taken once.",
        AnswerParams,
        answer,
        idempotent=True,
        output=_EVENT,
    ),
    McpTool(
        "sessions",
        "List sessions",
        "Sessions of this store, the newest first: those that run, those that wait for an answer, and those that have"
        " ended. Use it to find a session that was interrupted.",
        SessionsParams,
        list_sessions,
        read_only=True,
        idempotent=True,
        output=outline_of(SessionsView),
    ),
    McpTool(
        "show",
        "Show a session",
        "One session: its state, its figures, the full queries it waits for, and how it ended; on request its journal.",
        ShowParams,
        show,
        read_only=True,
        idempotent=True,
        output=outline_of(ShowView),
    ),
    McpTool(
        "cancel",
        "Cancel a session",
        "End a session that runs or waits, and the child sessions it waits for. It stays readable, and can be forked.",
        CancelParams,
        cancel,
        destructive=True,
        idempotent=True,
        output=_EVENT,
    ),
    McpTool(
        "fork",
        "Fork a session",
        "Start a new session from the beginning of another. It continues on its own from there: to answer a question"
        " differently, fork at the position before that answer. The old session is not changed. The result is the new"
        " session's first reply, with its session_id.",
        ForkParams,
        fork,
        output=_EVENT,
    ),
    McpTool(
        "strategies",
        "List strategies",
        "What `run` can run by name, with what each is for. Search by words, such as `debate` or `verify code`.",
        StrategiesParams,
        strategies,
        read_only=True,
        idempotent=True,
        output=outline_of(StrategiesView),
    ),
]
