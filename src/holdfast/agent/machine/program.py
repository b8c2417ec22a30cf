"""The kind `agent`: a session that takes inputs, works each to an outcome, and waits for the next.

The program is a state machine over the turn (`turn.py`), its tool calls (`calls.py`) and the model's window
(`compaction.py`). It is in exactly one of these states; what it waits for is part of the state:

    Starting ──▶ BetweenTurns ──input──▶ Replying ◀──results── Calling, or InCell in the mode `rlm`
                      ▲                  │  ▲  └──calls──────────┘
                      │                  ▼  │
                      ├──outcome──── SummingUp     (the conversation is too long)
                      └──outcome──── Commanding    (the input was a command of the host)

Whatever happens in a turn, its end leads back to BetweenTurns. What outlives a turn (the policy, what was granted for
the rest of the session, how full the window is) belongs to the instance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, assert_never

import msgspec

from holdfast.agent.machine.approval import Rule
from holdfast.agent.machine.calls import Calls
from holdfast.agent.machine.compaction import WindowUsage, content_tokens, value_tokens
from holdfast.agent.machine.estimates import reply_query, summary_query
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.kind import KIND
from holdfast.agent.machine.policy import RLM, Policy, compaction_from, policy_of
from holdfast.agent.machine.program_states import (
    AgentState,
    BetweenTurns,
    Calling,
    Commanding,
    InCell,
    InTurn,
    Replying,
    Starting,
    SummaryReason,
    SummaryTask,
    SummingUp,
    TurnRun,
)
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.records import FrameRecord, StopRecord, TurnRecord
from holdfast.agent.machine.subagent_turn import child_terms, final_step, refusal_of
from holdfast.agent.machine.turn import (
    STOP_CODES,
    CallModel,
    CallTools,
    CommandOutcome,
    Effect,
    EndTurn,
    MessageOutcome,
    RunCell,
    StoppedOutcome,
    Turn,
    TurnOutcome,
    reply_of,
    stop_of,
)
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import query_id
from holdfast.core.queries import OWN_TOOLS, Answer, Failure, Query, ToolQuery, Value
from holdfast.core.records import KindRecord, LoggedRecord, Program
from holdfast.core.state import Session
from holdfast.core.values import Json, encode
from holdfast.programs.contract import AskStep, Fold, Instance, Note, Step
from holdfast.programs.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from holdfast.agent.rlm.workers import CellServices, SandboxCells
    from holdfast.programs.contract import JournalReader

COMMAND_TOOL = f"{OWN_TOOLS}command"
"""The runtime's own tool that runs commands of plugins."""

COMPACT = "compact"
"""The command that sums up the conversation."""

OVERFLOW = "context_length"
"""The failure code of a model that refuses the conversation because it is too long."""

NOTHING_TO_SUM_UP = "nothing_to_sum_up"
"""The failure code of a summary that is not needed, because all messages are kept verbatim."""

FORMAT = 1
"""Changes whenever what an instance remembers between turns does: what another version has kept is not used."""


class AgentKind:
    """Agents. Any process can run one; drivers ask the models and run the tools."""

    kind = KIND

    def knows(self, program: Program) -> bool:
        return True

    async def admit(self, program: Program) -> None:
        return

    def __init__(self, services: CellServices | None = None) -> None:
        self._services = services
        self.journal: JournalReader | None = None
        """Where the values of variables are read; the engine gives it."""

    @cached_property
    def cells(self) -> SandboxCells:
        """What runs the cells of rlm agents, made with the first of them."""
        from holdfast.agent.rlm.workers import SandboxCells

        return SandboxCells(self.journal, self._services)

    def create(self, fold: Fold) -> AgentInstance:
        return AgentInstance(fold, self)

    def dump_instance(self, instance: Instance) -> bytes | None:
        return instance.dump() if isinstance(instance, AgentInstance) else None

    def restore_instance(self, fold: Fold, state: bytes) -> AgentInstance | None:
        return AgentInstance.restore(fold, state, self)

    def waits_with_snapshot(self, session: Session) -> bool:
        """Whether an agent waits inside a cell. Elsewhere its state is small, and follows from the journal."""
        return agent_fold(session).is_in_cell

    def restore(self, fold: Fold, snapshot: bytes) -> AgentInstance:
        from holdfast.agent.rlm.cell_steps import restored

        return restored(AgentInstance(fold, self), snapshot)

    def close(self) -> None:
        if "cells" in vars(self):
            self.cells.close()


class _AgentBetweenTurns(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent remembers between turns."""

    format: int
    query: str
    """The `InputQuery` that it waits for."""
    policy: Policy
    granted: list[Rule]
    gauge: WindowUsage
    overflowed: bool
    at: int


_decoder = msgspec.json.Decoder(_AgentBetweenTurns)


class AgentInstance:
    """One agent."""

    def __init__(self, fold: Fold, kind: AgentKind | None = None) -> None:
        self.fold = fold
        self.kind = kind or AgentKind()
        self.recorded_notes: Sequence[KindRecord] | None = None
        """What the journal has for the step that is taken next, beside its queries; None if it is not recorded yet."""
        self._session = session = fold.session
        self._agent = agent_fold(session)
        """Both as they are while it runs."""
        started = session.started
        if started is None:
            raise ValueError(f"session '{session.id}' has not started")
        policy = policy_of(started.ctx)
        if policy is None:
            raise ProgramNotFoundError(started.program.name, "its session was started without a readable policy")
        self._policy = policy
        """Of the turn that it is in, or was in last."""
        self._state: AgentState = Starting()
        self._granted: list[Rule] = []
        """What was approved for the rest of the session."""
        self._gauge = WindowUsage()
        self._overflowed = False
        """Whether the last summary was made because the model refused the conversation; it has not replied since."""
        self._at = 0
        """When it was last resumed."""

    def dump(self) -> bytes | None:
        """All that it remembers, for a checkpoint; None unless it is between turns."""
        if not isinstance(self._state, BetweenTurns):
            return None
        return encode(
            _AgentBetweenTurns(
                format=FORMAT,
                query=self._state.query,
                policy=self._policy,
                granted=self._granted,
                gauge=self._gauge,
                overflowed=self._overflowed,
                at=self._at,
            )
        )

    @classmethod
    def restore(cls, fold: Fold, state: bytes, kind: AgentKind | None = None) -> AgentInstance | None:
        """The agent that `dump` was called on; None if another version wrote that, or if it cannot be read."""
        try:
            kept = _decoder.decode(state)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if kept.format != FORMAT or kept.query not in fold.session.pending:
            return None
        agent = cls(fold, kind)
        agent._state = BetweenTurns(kept.query)
        agent._policy, agent._granted, agent._gauge = kept.policy, kept.granted, kept.gauge
        agent._overflowed, agent._at = kept.overflowed, kept.at
        return agent

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step | Awaitable[Step]:
        self._at = at
        session = self.fold.session
        if session is not self._session:  # it was read again
            self._session, self._agent = session, agent_fold(session)
        state, stop = self._state, self._agent.stop
        if stop is not None and not isinstance(state, Starting | BetweenTurns):
            return self._on_stop(state, *stop, answers)
        match state:
            case Starting():
                return self._wait_for_input()
            case BetweenTurns():
                return self._on_input()
            case Replying(run=run, query=asked):
                return self._on_reply(run, dict(answers)[asked])
            case Calling():
                return self._on_calls(state, answers)
            case InCell(run=run, cell=cell):
                from holdfast.agent.rlm.cell_steps import resume_cell

                return resume_cell(self, run, cell, answers)
            case SummingUp(run=run, query=asked, summary=summary):
                return self._on_summary(run, summary, dict(answers)[asked])
            case Commanding(run=run, query=asked, command=command):
                return self._on_command(run, command, dict(answers)[asked])
            case _:
                assert_never(state)

    def refuse(self, at: int, failure: Failure) -> Step | Awaitable[Step]:
        """The budget of the session does not allow the call: the turn ends, and the session continues.

        In a cell it is the call that fails.
        """
        self._at, self._session = at, self.fold.session
        self._agent = agent_fold(self._session)
        if isinstance(self._state, InCell):
            from holdfast.agent.rlm.cell_steps import refuse_cell

            return refuse_cell(self, self._state.run, self._state.cell, failure)
        self._gauge.names_told = False  # the query that would have told them is not asked
        return self._end(refusal_of(self._session, failure, at))

    def close(self) -> None:
        return

    def _on_stop(self, state: InTurn, record: StopRecord, since: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        """Somebody stopped the turn. It no longer waits for anything."""
        left: list[str] = []
        if isinstance(state, Calling):
            left = state.calls.left_by(answers)
        elif isinstance(state, InCell):
            left = [asked for asked in state.cell.waiting_for if asked not in dict(answers)]
        return self._end(_stopped_by(record, since), withdrawn=left)

    # --- input -------------------------------------------------------------------------------------

    def _wait_for_input(self, notes: Sequence[Note] = (), withdrawn: Sequence[str] = ()) -> Step:
        asked = self._next(InputQuery())
        self._state = BetweenTurns(asked.id)
        return AskStep(queries=[asked], notes=list(notes), withdrawn=list(withdrawn))

    def _on_input(self) -> Step:
        brought = self._agent.input
        assert brought is not None, "its answer has been folded"
        if isinstance(brought, str):
            note = LoggedRecord(message=f"an input was not understood: {brought}", level="error", source="holdfast")
            return self._wait_for_input([note])
        run = self._begin(brought)
        if (stop := self._agent.stop) is not None:
            return self._end(_stopped_by(*stop))
        if brought.command is not None:
            return self._command(run, brought.command.name, brought.command.arguments)
        if not brought.content:
            return self._end(StoppedOutcome("invalid_input", "the input is empty"))
        return self._effect(run, run.turn.effect)

    def _begin(self, brought: TurnInput) -> TurnRun:
        policy = self._agent.policies.current
        if policy != self._policy:
            self._policy = policy
            self._gauge.changed()
        if brought.begin is not None:
            self._gauge.began(sum(content_tokens(message.content) for message in brought.begin.messages))
        self._gauge.said(content_tokens(brought.content))
        wants_value = brought.output is not None
        turn = Turn(id=brought.turn, began_at=self._at, limits=self._policy.limits, wants_value=wants_value)
        run = TurnRun(turn, self._session.metrics.total_tokens, self._session.metrics.cost, output=brought.output)
        if self._policy.mode == RLM and self.recorded_notes is None:
            self.kind.cells.prepare()
        return run

    def _command(self, run: TurnRun, name: str, arguments: dict[str, Json]) -> Step:
        if name != COMPACT:
            asked = self._next(ToolQuery(name=COMMAND_TOOL, arguments={"name": name, "arguments": arguments}))
            self._state = Commanding(run, asked.id, name)
            return AskStep(queries=[asked])
        settings = {name: value for name, value in arguments.items() if value is not None}
        try:
            compaction = compaction_from(settings, self._policy.compaction)
        except InvalidValueError as error:
            return self._end(StoppedOutcome("invalid_input", str(error)))
        keep = compaction.keep if "keep" in settings else self._gauge.keep(self._policy.window, compaction)
        return self._sum_up(run, SummaryTask("manual", None, keep, compaction.instructions))

    def _on_command(self, run: TurnRun, name: str, answer: Answer) -> Step:
        if isinstance(answer, Value):
            return self._end(CommandOutcome(name, answer.value))
        return self._end(stop_of(answer, otherwise="tool_failure"))

    # --- the model ---------------------------------------------------------------------------------

    def _on_reply(self, run: TurnRun, answer: Answer) -> Step | Awaitable[Step]:
        turn = run.turn
        if isinstance(answer, Failure):
            is_overflow = answer.code == OVERFLOW
            return self._on_overflow(run, answer) if is_overflow else self._effect(run, turn.failed(answer))
        try:
            reply = reply_of(answer.value)
        except msgspec.ValidationError as error:
            return self._effect(run, turn.failed(Failure(f"the reply was not understood: {error}")))
        spent = self._session.metrics
        if sent := spent.prompt_tokens.tokens - run.sent_before:
            self._gauge.counted(sent)
        self._gauge.said(content_tokens(reply.content))
        self._overflowed = False
        run.said = reply.text
        tokens, cost = self._spent(run)
        if self._policy.mode == RLM:
            from holdfast.agent.rlm.cell_steps import on_reply

            return on_reply(self, run, reply, tokens, cost)
        return self._effect(run, turn.replied(reply, self._at, tokens=tokens, cost=cost))

    def _spent(self, run: TurnRun) -> tuple[int, float]:
        """Tokens and cost of a turn so far, those of its subagents included."""
        spent = self._session.metrics
        return spent.total_tokens - run.tokens_before, spent.cost - run.cost_before

    # --- summaries ---------------------------------------------------------------------------------

    def _is_full(self, run: TurnRun) -> bool:
        """Whether the conversation has to be summed up before the model is asked again."""
        window, compaction = self._policy.window, self._policy.compaction
        if window is None or not compaction.auto or run.summary_failed:
            return False
        return self._gauge.is_full(window, compaction)

    def _on_overflow(self, run: TurnRun, failure: Failure) -> Step:
        """The model refuses the conversation. If it was already summed up for that reason, nothing more can be done."""
        if self._overflowed:
            return self._end(_too_long("even after it was summed up", failure))
        self._overflowed = True
        asked = run.turn.effect
        assert isinstance(asked, CallModel)
        # Without the remark: the runtime made it when it first asked the model.
        return self._sum_up(run, self._summary("overflow", CallModel(asked.iteration)))

    def _summary(self, reason: SummaryReason, then: Effect) -> SummaryTask:
        compaction = self._policy.compaction
        return SummaryTask(reason, then, self._gauge.keep(self._policy.window, compaction), compaction.instructions)

    def _sum_up(
        self, run: TurnRun, summary: SummaryTask, notes: Sequence[Note] = (), withdrawn: Sequence[str] = ()
    ) -> Step:
        asked = self._next(summary_query(self._session, self._gauge.tokens, summary.instructions, summary.keep))
        self._state = SummingUp(run, asked.id, summary)
        return AskStep(queries=[asked], notes=list(notes), withdrawn=list(withdrawn))

    def _on_summary(self, run: TurnRun, summary: SummaryTask, answer: Answer) -> Step:
        if isinstance(answer, Failure):
            return self._on_no_summary(run, summary, answer)
        try:
            text = reply_of(answer.value).text.strip()
        except msgspec.ValidationError as error:
            return self._on_no_summary(run, summary, Failure(f"the summary was not understood: {error}"))
        if not text:
            return self._on_no_summary(run, summary, Failure("the model said nothing"))
        self._gauge.opened(value_tokens(text), summary.keep)
        frame = FrameRecord(key=f"summary-{self._session.queries_asked}", reason=summary.reason, summary=text)
        if summary.then is None:
            return self._end(CommandOutcome(COMPACT, {"summary": text}), [frame])
        return self._effect(run, summary.then, [frame])

    def _on_no_summary(self, run: TurnRun, summary: SummaryTask, failure: Failure) -> Step:
        """Continue without the summary, unless somebody asked for it or the turn cannot continue without it."""
        if failure.code in STOP_CODES:
            return self._end(stop_of(failure, otherwise="provider_error"))
        is_needless = failure.code == NOTHING_TO_SUM_UP
        if summary.then is None:
            return self._end(StoppedOutcome("invalid_input" if is_needless else "provider_error", failure.message))
        if summary.reason == "overflow":
            return self._end(_too_long("and could not be summed up", failure))
        run.summary_failed = True
        if is_needless:
            return self._effect(run, summary.then)
        warning = f"the conversation was not summed up: {failure.message}"
        return self._effect(run, summary.then, [LoggedRecord(message=warning, level="warning", source="holdfast")])

    # --- tools -------------------------------------------------------------------------------------

    def _on_calls(self, state: Calling, answers: Sequence[tuple[str, Answer]]) -> Step:
        calls, turn = state.calls, state.run.turn
        for _, answer in answers:
            if isinstance(answer, Failure) and answer.code in STOP_CODES:
                return self._effect(state.run, turn.stopped(answer), withdrawn=calls.left_by(answers))
        queries = [query for asked, answer in answers for query in calls.answered(asked, answer)]
        return self._call(state.run, calls, [*queries, *calls.granted()])

    def _call(self, run: TurnRun, calls: Calls, queries: Sequence[Query]) -> Step:
        """Ask what the calls need next; or, once every call has a result, continue the turn."""
        notes = calls.refusals()
        if queries or calls.waiting:
            asked = self._numbered(queries)
            calls.asked([query.id for query in asked])
            self._state = Calling(run, calls)
            return AskStep(queries=asked, wake=calls.wake, notes=list(notes), withdrawn=calls.withdrawals())
        self._gauge.said(sum(value_tokens(done.content) for done in calls.results))
        tokens, cost = self._spent(run) if calls.are_delegated else (None, None)
        return self._effect(run, run.turn.tools_done(calls.results, self._at, tokens=tokens, cost=cost), notes)

    # --- effects as queries ------------------------------------------------------------------------

    def _effect(
        self, run: TurnRun, effect: Effect, notes: Sequence[Note] = (), *, withdrawn: Sequence[str] = ()
    ) -> Step:
        match effect:
            case CallModel() if self._is_full(run):
                return self._sum_up(run, self._summary("threshold", effect), notes, withdrawn)
            case CallModel(iteration=iteration, remark=remark):
                run.sent_before = self._session.metrics.prompt_tokens.tokens
                for item in self._agent.inbox.unseen.values():
                    self._gauge.said(content_tokens(item.content))
                if self._policy.mode == RLM and not self._gauge.names_told:
                    from holdfast.agent.rlm.cell_steps import with_names  # not needed by the other agents

                    remark = with_names(self, remark, notes)
                if remark:
                    self._gauge.said(value_tokens(remark))
                asked = self._next(reply_query(self._session, self._policy, self._gauge.tokens, iteration, remark))
                self._state = Replying(run, asked.id)
                return AskStep(queries=[asked], notes=list(notes), withdrawn=list(withdrawn))
            case CallTools():
                calls = Calls(
                    effect, self._policy, self._granted, child_terms(run.turn, effect, self._spent(run), self._at)
                )
                return self._call(run, calls, calls.begin())
            case EndTurn(outcome=MessageOutcome()) if self._agent.inbox.unseen and (
                more := run.turn.extended(self._at)  # something was said meanwhile
            ):
                return self._effect(run, more, notes)
            case EndTurn(outcome=outcome):
                return self._end(outcome, notes, withdrawn)
            case RunCell():
                raise AssertionError("a cell is begun with the reply that it is from")
            case _:
                assert_never(effect)

    def _end(self, outcome: TurnOutcome, notes: Sequence[Note] = (), withdrawn: Sequence[str] = ()) -> Step:
        """End the turn. If it ends with a message of the model, that message is its record."""
        if self._agent.task is not None:
            said = self._state.run.said if isinstance(self._state, Replying) else ""
            return final_step(outcome, said, notes)
        if isinstance(outcome, MessageOutcome):
            return self._wait_for_input(notes, withdrawn)
        return self._wait_for_input([*notes, TurnRecord(outcome=outcome)], withdrawn)

    def _next(self, query: Query) -> Query:
        """A query with the id that it will have, if it is asked alone."""
        return msgspec.structs.replace(query, id=query_id(self._session.queries_asked))

    def _numbered(self, queries: Sequence[Query]) -> list[Query]:
        """Queries with the ids that they will have."""
        first = self._session.queries_asked
        return [msgspec.structs.replace(query, id=query_id(first + n)) for n, query in enumerate(queries)]


def _stopped_by(record: StopRecord, since: int) -> StoppedOutcome:
    return StoppedOutcome("cancelled", record.reason or "somebody stopped it", by=record.by, at=since)


def _too_long(but: str, failure: Failure) -> StoppedOutcome:
    detail = f"the conversation does not fit into the model's window {but}: {failure.message}"
    return StoppedOutcome("provider_error", detail, limit="window")
