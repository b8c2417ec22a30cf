"""The steps of an rlm agent: from a reply to its cell, from the answers of a cell onward, and from its end to the next
call of the model.

These continue `machine.program.AgentInstance`, whose other steps are the same in every mode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.agent.machine.approval import Rule
from holdfast.agent.machine.compaction import WindowUsage, value_tokens
from holdfast.agent.machine.delegation import DELEGATE_TOOL
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program_states import InCell, TurnRun
from holdfast.agent.machine.records import BoundRecord, LeavesRecord
from holdfast.agent.machine.subagent_turn import child_terms
from holdfast.agent.machine.turn import CallTools, CellOutcome, RecordedReply, RunCell
from holdfast.agent.rlm import feedback
from holdfast.agent.rlm.cell_run import CellEnded, CellMeans, CellPause, CellRun
from holdfast.agent.rlm.cell_state import CellState
from holdfast.agent.rlm.check import SHOWN_PROBLEMS
from holdfast.agent.rlm.functions import RESERVED
from holdfast.agent.rlm.limits import DEEP_PROJECTION_BYTES, MAX_RESULT_CHARS, SHOWN_CHARS, SNAPSHOT_BYTES
from holdfast.agent.rlm.replies import decide_reply
from holdfast.agent.rlm.variables import Bindings
from holdfast.agent.schema_check import problems_by_schema
from holdfast.core.budget import remaining
from holdfast.core.queries import Answer, Failure
from holdfast.core.values import Json, encode
from holdfast.programs.contract import AskStep, Note, Step
from holdfast.programs.errors import SnapshotUnusableError
from holdfast.zstd import compress, decompress

if TYPE_CHECKING:
    from holdfast.agent.machine.program import AgentInstance

FORMAT = 1
"""Changes whenever a snapshot's content does: what another version has kept is not used."""

MAX_DUMP_BYTES = 64 * 1024 * 1024
"""Bytes of a dump before it was packed: a forged one must not fill the memory."""


def with_names(agent: AgentInstance, remark: str, notes: Sequence[Note]) -> str:
    """A remark with the names that cells can read, for a window in which the model was not told them. `notes` are what
    the present step leaves in the journal."""
    table = agent._agent.variables
    for note in notes:
        if isinstance(note, BoundRecord):
            table = table.copy()
            table.bind(note.bindings, 0)
    agent._gauge.names_told = True
    return feedback.joined([feedback.table(table, agent._policy.projections), remark])


def on_reply(
    agent: AgentInstance, run: TurnRun, reply: RecordedReply, tokens: int, cost: float
) -> Step | Awaitable[Step]:
    """What follows from a reply of the model."""
    decision = decide_reply(
        reply.text,
        is_cut_short=reply.stop == "length",
        has_native_calls=bool(reply.calls),
        wants_value=run.turn.wants_value,
        reserved=RESERVED.union(agent._policy.projections, reply.tools or ()),
        was_run=_recorded(agent) is not None,
    )
    effect = run.turn.replied_in_cells(reply, decision, agent._at, tokens=tokens, cost=cost)
    if not isinstance(effect, RunCell):
        return agent._effect(run, effect)
    state = CellState(
        number=effect.number,
        code=effect.code,
        at=agent._at,
        position=agent._session.position,
        tools=reply.tools,
        llm_calls=run.llm_calls,
    )
    cell = CellRun(state)
    return _stepped(agent, run, cell, lambda means: cell.begin(agent.kind.cells, means))


def resume_cell(
    agent: AgentInstance, run: TurnRun, cell: CellRun, answers: Sequence[tuple[str, Answer]]
) -> Awaitable[Step]:
    """Go on with the answers to the queries of a cell."""
    return _stepped(agent, run, cell, lambda means: cell.resume(agent.kind.cells, means, answers))


def refuse_cell(agent: AgentInstance, run: TurnRun, cell: CellRun, failure: Failure) -> Awaitable[Step]:
    """Go on after the queries of a cell could not be asked."""
    return _stepped(agent, run, cell, lambda means: cell.refused(agent.kind.cells, means, failure))


async def _stepped(
    agent: AgentInstance,
    run: TurnRun,
    cell: CellRun,
    go_on: Callable[[CellMeans], Awaitable[CellPause | CellEnded]],
) -> Step:
    cell.recorded = _recorded(agent)
    outcome = await go_on(_means(agent, run))
    if isinstance(outcome, CellPause):
        agent._state = InCell(run, cell)
        return AskStep(
            queries=outcome.queries,
            wake=outcome.wake,
            notes=list(outcome.notes),
            withdrawn=outcome.withdrawn,
            snapshot=_snapshot(agent, run, cell.state),
        )
    if outcome.stop is not None:
        return agent._effect(run, run.turn.stopped(outcome.stop), outcome.notes, withdrawn=outcome.withdrawn)
    return _ended(agent, run, cell, outcome)


def _recorded(agent: AgentInstance) -> BoundRecord | None:
    """How the cell ends in the present step, if the journal says so."""
    notes = agent.recorded_notes or ()
    return next((note for note in notes if isinstance(note, BoundRecord)), None)


def _delegations(parts: int) -> CallTools:
    return CallTools([ToolUseBlock("", DELEGATE_TOOL, {})] * parts)


def _means(agent: AgentInstance, run: TurnRun) -> CellMeans:
    session = agent._session
    started = session.started
    assert started is not None
    left = remaining(started.budget, session.metrics, agent._at) if started.budget else None
    return CellMeans(
        session_id=session.id,
        turn=run.turn.id,
        policy=agent._policy,
        granted=agent._granted,
        terms=lambda parts: child_terms(run.turn, _delegations(parts), agent._spent(run), agent._at),
        table=agent._agent.variables,
        budget=left,
        seed=started.seed,
        first_query=session.queries_asked,
        is_replay=agent.recorded_notes is not None,
    )


def _ended(agent: AgentInstance, run: TurnRun, cell: CellRun, outcome: CellEnded) -> Step:
    leaves, record = ([], cell.recorded) if cell.recorded is not None else _records(run, cell.state, outcome)
    run.llm_calls = record.llm_calls
    if record.end.frame is not None:
        agent._gauge.opened(value_tokens(record.end.frame.task), 0)
    else:
        agent._gauge.said(value_tokens(record.remark))
    effect = run.turn.cell_done(record.end, agent._at)
    return agent._effect(run, effect, [*outcome.notes, *leaves, record], withdrawn=outcome.withdrawn)


def _records(run: TurnRun, state: CellState, outcome: CellEnded) -> tuple[list[LeavesRecord], BoundRecord]:
    """What the journal keeps of a cell that has ended, the record of its end last."""
    end, bindings, remark = state.end, outcome.bindings, outcome.remark
    if problems := _problems(end, run.output):
        end = CellOutcome(rejected=True)
        listed = "; ".join(problems)
        remark = feedback.joined([remark, feedback.error(f"finish: the value was not accepted: {listed}")])
    if end.is_finished:
        value = end.finish if isinstance(end.finish, str) else encode(end.finish).decode()
        cut = value if len(value) <= MAX_RESULT_CHARS else f"{value[:MAX_RESULT_CHARS]}…"
        remark = feedback.joined([remark.removesuffix(feedback.NOTHING), f"[FINISHED]\n{cut}"])
    if end.frame is not None:
        bindings = state.seed or Bindings(is_fresh=True)
    values, bindings = bindings.split()
    bound = BoundRecord(
        cell=state.number,
        bindings=bindings,
        remark=remark,
        printed=state.printed_text if state.printed_chars > SHOWN_CHARS else "",
        end=end,
        llm_calls=state.llm_calls,
    )
    return [LeavesRecord(values=each) for each in values], bound


def _problems(end: CellOutcome, schema: dict[str, Json] | None) -> list[str]:
    """What is wrong with the value that a cell finished with."""
    if schema is None or not end.is_finished or end.tool:
        return []
    return list(islice(problems_by_schema(end.finish, schema), SHOWN_PROBLEMS))


# --- snapshots -----------------------------------------------------------------------------------------


class _AgentInCell(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that waits inside a cell."""

    format: int
    policy: Policy
    granted: list[Rule]
    gauge: WindowUsage
    overflowed: bool
    at: int
    run: TurnRun
    cell: CellState


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_AgentInCell)


def _snapshot(agent: AgentInstance, run: TurnRun, state: CellState) -> bytes | None:
    """The waiting cell with its agent; None if it is too large to be stored at each pause."""
    if state.read_bytes > DEEP_PROJECTION_BYTES or len(state.dump) > MAX_DUMP_BYTES:
        return None
    packed = msgspec.structs.replace(state, dump=compress(state.dump), is_packed=True)
    snapshot = _encoder.encode(
        _AgentInCell(
            format=FORMAT,
            policy=agent._policy,
            granted=agent._granted,
            gauge=agent._gauge,
            overflowed=agent._overflowed,
            at=agent._at,
            run=run,
            cell=packed,
        )
    )
    return snapshot if len(snapshot) <= SNAPSHOT_BYTES else None


def restored(agent: AgentInstance, snapshot: bytes) -> AgentInstance:
    """The agent that waits as its snapshot says. Raises `SnapshotUnusableError`."""
    try:
        kept = _decoder.decode(snapshot)
        if kept.format != FORMAT:
            raise SnapshotUnusableError(f"its snapshot has format {kept.format}, and this version has {FORMAT}")
        kept.cell.dump, kept.cell.is_packed = decompress(kept.cell.dump, MAX_DUMP_BYTES), False
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(f"its snapshot cannot be read: {error}") from None
    agent._policy, agent._granted, agent._gauge = kept.policy, kept.granted, kept.gauge
    agent._overflowed, agent._at = kept.overflowed, kept.at
    agent._state = InCell(kept.run, CellRun(kept.cell))
    return agent
