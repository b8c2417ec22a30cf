"""algocline's later tools for sessions: run in the background, look at the state, resume, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, assert_never, get_args

import msgspec

from holdfast.alc.mcp.directories import directories_of
from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import FeedError, SessionNotFoundError, TransitionError
from holdfast.core.events import query_json
from holdfast.core.ids import new_session_id
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import ChildQuery, Failure, TimerQuery, Value, is_own
from holdfast.core.records import (
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
)
from holdfast.core.state import Session, State
from holdfast.core.values import Json
from holdfast.engine.query_paths import pending_below
from holdfast.programs.language import StepLimits
from holdfast.serve.mcp import sessions
from holdfast.serve.mcp.allowed import DeadlineS, MemoryMib
from holdfast.serve.mcp.directories import shown
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

MAX_DETAIL_CHARS = 2_000
"""Characters of a reason for a cancellation: it stands in the journal."""

CancelCode: TypeAlias = Literal["user", "timeout", "parent_dropped", "system_shutdown", "internal"]

_KINDS = {"deadline": "timeout", "error": "lua_error", "memory": "lua_error", "endless": "lua_error"}
"""How a session failed, in algocline's words; what is not here is the engine's own."""


# --- run -------------------------------------------------------------------------------------------


class AlcRunV2Params(Params):
    code: Annotated[str, about("Lua source. Its first return value is the result.")]
    ctx: Annotated[Any, about("Any JSON: the global `ctx` of the code.")] = None
    project_root: ProjectRoot = None
    session_id: Annotated[str | None, about("The id of the new session. Tried again, it is the same one.")] = None
    deadline_s: DeadlineS = None
    memory_mib: MemoryMib = None


async def alc_v2_run(call: McpCall, params: AlcRunV2Params) -> Object:
    where = directories_of(params.project_root)
    project = None if where.project is None else str(where.project)
    wanted = StepLimits(deadline_s=params.deadline_s, memory_mib=params.memory_mib)
    program = sessions.program_of_code(params.code, None, project, options=call.allowed.options(wanted))
    session_id = params.session_id if params.session_id is not None else new_session_id()
    await call.holdfast.start(program, ctx=unquoted(params.ctx), id=session_id, wait=0)
    return await _state(call, session_id)


# --- state -----------------------------------------------------------------------------------------


class StateParams(Params):
    session_id: SessionId


async def alc_v2_state(call: McpCall, params: StateParams) -> Object:
    return await _state(call, params.session_id)


async def _state(call: McpCall, session_id: str) -> Object:
    try:
        journal = [entry async for entry in call.holdfast.store.journal(session_id)]
    except SessionNotFoundError as error:
        raise not_found(error) from None
    session = Session.fold(session_id, journal)
    if session.ended is None:
        below = await pending_below(call.holdfast.store, session)
        return {"session_id": session_id, **_living(session, below)}
    return {"session_id": session_id, **_ended(session, journal)}


def not_found(error: SessionNotFoundError) -> McpToolError:
    return McpToolError(f"session not found: {shown(error.session_id)}")


def _ended(session: Session, journal: Sequence[Entry]) -> Object:
    """How a session ended: done, cancelled or failed, with what belongs to that."""
    ended = session.ended
    assert ended is not None
    metrics = session.metrics
    at = journal[-1].at
    stats = metrics.to_json(at, session.started.budget if session.started else None)
    match ended:
        case CompletedRecord(result=result):
            usage = {
                "prompt_tokens": metrics.prompt_tokens.tokens,
                "completion_tokens": metrics.response_tokens.tokens,
            }
            state_json: Object = {"state": "done", "value": result, "usage": usage if metrics.llm_calls else None}
            state_json["finished_at"] = at
        case FailedRecord(error=error, kind=kind):
            state_json = {
                "state": "failed",
                "message": error,
                "kind": _KINDS.get(kind, "engine_error"),
                "occurred_at": at,
            }
            state_json["error_kind"] = kind
        case CancelledRecord() | ExpiredRecord():
            state_json = {
                "state": "cancelled",
                "reason": {"code": _code(session, ended), "detail": ended.reason, "requested_at": at},
                "observed_at": at,
                "state_before": _living(Session.fold(session.id, journal[:-1]), {}),
            }
        case _:
            assert_never(ended)
    return {**state_json, "stats": stats}


def _living(session: Session, below: Mapping[str, PendingQuery]) -> Object:
    """Where a session is that has not ended: running, or paused, with what it and its children ask."""
    asked = [pending for pending in (*session.pending.values(), *below.values()) if _is_for_a_host(pending)]
    if session.state is not State.PAUSED or not asked:
        return {"state": "running"}
    return {
        "state": "paused",
        "kind": "single" if len(asked) == 1 else "batch",
        "prompts": [_prompt(pending) for pending in asked],
        "paused_at": max(pending.asked_at for pending in asked),
    }


def _is_for_a_host(pending: PendingQuery) -> bool:
    """Whether somebody outside has to answer: timers, children and the runtime's own tools answer by themselves."""
    return not isinstance(pending.query, TimerQuery | ChildQuery) and not is_own(pending.query)


def _prompt(pending: PendingQuery) -> Object:
    query = query_json(pending.query)
    return {"query_id": pending.query.id, "prompt": query.pop("prompt", ""), **query}


def _code(session: Session, ended: CancelledRecord | ExpiredRecord) -> str:
    """Why it was cancelled, in one word: what the host said then, or what follows from who did it."""
    if isinstance(ended, ExpiredRecord):
        return "timeout"
    if ended.by is None:
        return "parent_dropped" if session.started is not None and session.started.parent is not None else "user"
    code = ended.by.removeprefix(f"{sessions.BY}:")
    return code if code in get_args(CancelCode) else "user"


# --- resume ----------------------------------------------------------------------------------------


class ResumeParams(Params):
    session_id: SessionId
    payload: Annotated[
        Any,
        msgspec.Meta(
            description="The answer to one query, or answers to several: all are taken, or none. Instead of `response`,"
            " `error` says why there is no answer.",
            extra_json_schema={
                "examples": [
                    {"payload_kind": "single", "query_id": "q-0", "response": "text"},
                    {"payload_kind": "batch", "responses": [{"query_id": "q-1", "response": "text"}]},
                ]
            },
        ),
    ]


class Response(msgspec.Struct, kw_only=True):
    """The answer to one query."""

    query_id: str
    response: Any = None
    error: str | None = None
    usage: UsageParams | None = None

    def given(self) -> GivenAnswer:
        answer = Failure(self.error) if self.error is not None else Value(value=self.response)
        return GivenAnswer(answer, self.query_id, self.usage.kept() if self.usage is not None else None)


async def alc_v2_resume(call: McpCall, params: ResumeParams) -> Object:
    answers = responses_in(unquoted(params.payload))
    session_id = params.session_id
    try:
        event = await call.holdfast.feed(session_id, answers, by=sessions.BY, wait=0)
    except SessionNotFoundError as error:
        raise not_found(error) from None
    except (FeedError, TransitionError) as error:
        raise await _refused(call, session_id, error) from None
    state = await _state(call, session_id)
    more: Object = {"replayed": True} if event.replayed else {}
    if state["state"] in ("running", "paused"):
        return {"outcome": "continued", "session_id": session_id, "next": state, **more}
    terminal = state.pop("state")
    return {"outcome": "terminal", "terminal": terminal, **state, **more}


def responses_in(payload: Json) -> dict[str, GivenAnswer]:
    """The answers in a payload: one, several, or a list of them (which may begin with its kind)."""
    match payload:
        case {"payload_kind": "single", **one}:
            rows: list[Json] = [one]
        case {"payload_kind": "batch", "responses": list(rows)}:
            pass
        case ["batch", *rows] | [*rows]:
            pass
        case {"payload_kind": "batch"}:
            raise McpToolError("invalid payload: a batch needs `responses`, a list of {query_id, response}")
        case {"payload_kind": kind}:
            raise McpToolError(f'invalid payload: payload_kind {shown(str(kind))} is neither "single" nor "batch"')
        case dict():
            raise McpToolError('invalid payload: missing field `payload_kind` ("single" or "batch")')
        case _:
            raise McpToolError("invalid payload: it must be an object with `payload_kind`, `query_id` and `response`")
    if not rows:
        raise McpToolError("invalid payload: it holds no answer")
    answers: dict[str, GivenAnswer] = {}
    for row in rows:
        response = _response(row)
        if response.query_id in answers:
            raise McpToolError(
                f"invalid payload: query_id {shown(response.query_id)} is answered twice; answer it once"
            )
        answers[response.query_id] = response.given()
    return answers


def _response(row: Json) -> Response:
    try:
        response = msgspec.convert(row, Response)
    except msgspec.ValidationError as error:
        raise McpToolError(f"invalid payload: {error}") from None
    if isinstance(row, dict) and "response" not in row and response.error is None:
        raise McpToolError("invalid payload: missing field `response` (or `error`, to say why there is none)")
    return response


async def _refused(call: McpCall, session_id: str, error: FeedError | TransitionError) -> McpToolError:
    """Why an answer was not taken, as algocline's clients know it."""
    row = await call.holdfast.store.session(session_id)
    match row.summary.state:
        case State.CANCELLED | State.EXPIRED:
            return McpToolError(f"session is already cancelled ({error})")
        case State.PAUSED:
            return McpToolError(f"feed error: {error}")
        case state:
            actual = {State.COMPLETED: "Done", State.FAILED: "Failed"}.get(state, "Running")
            return McpToolError(f"session is not paused; actual state: {actual} ({error})")


# --- cancel ----------------------------------------------------------------------------------------


class AlcCancelV2Params(Params):
    session_id: SessionId
    reason: Annotated[
        Any, about(f"Why: {{code, detail}}, with code one of {', '.join(get_args(CancelCode))}; or a text.")
    ] = None


class CancelReason(msgspec.Struct, kw_only=True):
    """Why a session is cancelled."""

    code: CancelCode = "user"
    detail: Annotated[str, msgspec.Meta(max_length=MAX_DETAIL_CHARS)] | None = None
    requested_at: int | None = None
    """Not used: the journal says when it was."""


async def alc_v2_cancel(call: McpCall, params: AlcCancelV2Params) -> Object:
    reason = _reason(unquoted(params.reason))
    by = sessions.BY if reason.code == "user" else f"{sessions.BY}:{reason.code}"
    try:
        await call.holdfast.cancel(params.session_id, reason.detail, by=by)
    except SessionNotFoundError as error:
        raise not_found(error) from None
    except TransitionError:
        pass  # it has ended otherwise: there is nothing left to cancel
    return await _state(call, params.session_id)


def _reason(given: Json) -> CancelReason:
    row = {"detail": given} if isinstance(given, str) else {} if given is None else given
    try:
        return msgspec.convert(row, CancelReason)
    except msgspec.ValidationError as error:
        raise McpToolError(f"invalid reason: {error}") from None


_STATE: Object = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string"},
        "state": {"type": "string", "enum": ["running", "paused", "done", "cancelled", "failed"]},
        "kind": {"type": "string"},
        "prompts": {"type": "array", "items": {"type": "object"}},
        "value": {},
        "message": {"type": "string"},
    },
    "required": ["session_id", "state"],
}

TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_v2_run",
        "Start a run in the background",
        "Start Lua code that uses the alc API, and return its session_id and state at once, while it keeps running."
        " Look at it with alc_v2_state, answer it with alc_v2_resume, end it with alc_v2_cancel.",
        AlcRunV2Params,
        alc_v2_run,
        output=_STATE,
    ),
    McpTool(
        "alc_v2_state",
        "See a run's state",
        "Whether a run is running, paused (with the prompts that wait for an answer), done (with its value), cancelled"
        " or failed (with the message).",
        StateParams,
        alc_v2_state,
        read_only=True,
        idempotent=True,
        output=_STATE,
    ),
    McpTool(
        "alc_v2_resume",
        "Answer a run in the background",
        "Answer what a paused run asks. Comes back once the answers are kept: `continued` with the state of the run now"
        " (`next`), or `terminal` with how it ended. The same answer twice is taken once.",
        ResumeParams,
        alc_v2_resume,
        idempotent=True,
        output={
            "type": "object",
            "properties": {"outcome": {"type": "string", "enum": ["continued", "terminal"]}, "next": _STATE},
            "required": ["outcome", "session_id"],
        },
    ),
    McpTool(
        "alc_v2_cancel",
        "Cancel a run in the background",
        "End a run. One that has ended already stays as it is. Gives its state.",
        AlcCancelV2Params,
        alc_v2_cancel,
        destructive=True,
        idempotent=True,
        output=_STATE,
    ),
]
