"""The kind `agent`: a session that takes inputs, works each to an outcome, and waits for the next.

What it does is decided by the turn machine in `core`. Here its effects become queries, and their answers are brought
back to it. The program holds no messages: whoever asks the model reads the conversation, which the journal tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.approval import Rule
from holdfast.agent.machine.calls import Calls
from holdfast.agent.machine.conversation import TurnInput, input_of, policy_of
from holdfast.agent.machine.policy import compaction_from
from holdfast.agent.machine.turn import (
    STOP_CODES,
    CallModel,
    CallTools,
    Effect,
    End,
    FinishedCommand,
    FinishedMessage,
    Stopped,
    Turn,
    reply_of,
    stop_of,
)
from holdfast.agent.machine.window import Gauge, content_tokens, value_tokens
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import query_id
from holdfast.core.queries import OWN_TOOLS, Answer, Failure, InputQuery, LlmQuery, Query, ToolQuery, Value
from holdfast.core.records import FrameRecord, LoggedRecord, Program, StopRecord, TurnRecord, Wake
from holdfast.core.state import Session
from holdfast.programs.contract import AskStep, Note, Step
from holdfast.programs.errors import ProgramNotFoundError

KIND = "agent"

COMMAND_TOOL = f"{OWN_TOOLS}command"
"""The runtime's own tool by which commands of plugins are done."""

COMPACT = "compact"
"""The command to sum up the conversation."""

OVERFLOW = "context_length"
"""The code of a failure by which a model says that the conversation is too long for it."""

NOTHING_TO_SUM_UP = "nothing_to_sum_up"
"""The code of a failure that is none: all that was said is kept as it is."""

Reason: TypeAlias = Literal["threshold", "overflow", "manual"]


class AgentKind:
    """Agents. Any process can go on with one; asking models and running tools is the business of drivers."""

    kind = KIND

    def knows(self, program: Program) -> bool:
        return True

    async def admit(self, program: Program) -> None:
        return

    def create(self, session: Session) -> AgentInstance:
        return AgentInstance(session)

    def close(self) -> None:
        return


class _SummingUp(msgspec.Struct, frozen=True):
    """The conversation is being summed up."""

    reason: Reason
    then: Effect | None
    """What is done after it; None: it is all that was to be done."""
    keep: int
    """Tokens of the latest messages that stay as they are."""
    instructions: str


class AgentInstance:
    """One agent. Its state is a turn, or that there is none."""

    def __init__(self, session: Session) -> None:
        self.session = session
        started = session.started
        if started is None:
            raise ValueError(f"session '{session.id}' has not started")
        policy = policy_of(started.ctx)
        if policy is None:
            raise ProgramNotFoundError(started.program.name, "it was started without a policy that can be read")
        self._policy = policy
        self._turn: Turn | None = None
        self._input: TurnInput | None = None
        self._waits: list[str] = []
        """The query for the input, to the model, or of a command. Those of calls are waited for by `_calls`."""
        self._calls: Calls | None = None
        self._granted: list[Rule] = []
        """What was agreed to for the rest of the session."""
        self._summing: _SummingUp | None = None
        self._gauge = Gauge()
        self._failed_in = ""
        """The turn in which it could not be summed up: it is not tried there again."""
        self._overflowed = False
        """Whether it was summed up because the model would not take it, and the model has not answered since."""
        self._before = (0, 0.0)
        """Tokens and cost of the session when the turn began."""
        self._sent = 0
        """Tokens that went to models before the present call."""
        self._at = 0
        """When it was resumed last."""

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        self._at = at
        if self._turn is not None and self.session.stop is not None:
            return self._on_stop(self.session.stop, answers)
        if self._calls is not None:
            return self._on_calls(self._calls, answers)
        if not self._waits:
            return self._ask([InputQuery()])
        told = dict(answers)[self._waits[0]]
        if self._summing is not None:
            return self._on_summary(self._summing, told)
        if self._turn is None:
            return self._on_input(told)
        if self._input is not None and self._input.command is not None:
            return self._on_command(self._input.command.name, told)
        return self._on_reply(self._turn, told)

    def refuse(self, at: int, failure: Failure) -> Step:
        """The budget of the session does not allow the call: the turn is stopped, and the session goes on."""
        self._at, self._summing = at, None
        return self._effect(End(Stopped("provider_error", failure.message, limit="budget")))

    def close(self) -> None:
        return

    def _on_stop(self, stop: tuple[StopRecord, int], answers: Sequence[tuple[str, Answer]]) -> Step:
        """Somebody stopped the turn. What it still waits for is not waited for any more."""
        record, since = stop
        left = self._calls.left_by(answers) if self._calls is not None else []
        self._summing = None
        outcome = Stopped("cancelled", record.reason or "somebody stopped it", by=record.by, at=since)
        return self._effect(End(outcome), withdrawn=left)

    # --- input -------------------------------------------------------------------------------------

    def _on_input(self, answer: Answer) -> Step:
        try:
            given = input_of(answer)
        except ValueError as error:
            said = LoggedRecord(message=f"an input was not understood: {error}", level="error", source="holdfast")
            return self._ask([InputQuery()], [said])
        self._input = given
        if given.policy is not None:
            self._policy = given.policy
            self._gauge.changed()
        if given.begin is not None:
            self._gauge.began(sum(content_tokens(message.content) for message in given.begin.messages))
        self._gauge.said(content_tokens(given.content))
        self._before = (self.session.metrics.total_tokens, self.session.metrics.cost)
        wants_value = given.output is not None
        self._turn = Turn(id=given.turn, began_at=self._at, limits=self._policy.limits, wants_value=wants_value)
        if given.command is not None:
            return self._command(given.command.name, given.command.arguments)
        if not given.content:
            return self._effect(End(Stopped("invalid_input", "the input is empty")))
        return self._effect(self._turn.effect)

    def _command(self, name: str, arguments: dict[str, object]) -> Step:
        if name != COMPACT:
            return self._ask([ToolQuery(name=COMMAND_TOOL, arguments={"name": name, "arguments": arguments})])
        settings = {name: value for name, value in arguments.items() if value is not None}
        try:
            compaction = compaction_from(settings, self._policy.compaction)
        except InvalidValueError as error:
            return self._effect(End(Stopped("invalid_input", str(error))))
        keep = compaction.keep if "keep" in settings else self._gauge.keep(self._policy.window, compaction)
        return self._sum_up(_SummingUp("manual", None, keep, compaction.instructions))

    def _on_command(self, name: str, answer: Answer) -> Step:
        if isinstance(answer, Value):
            return self._effect(End(FinishedCommand(name, answer.value)))
        return self._effect(End(stop_of(answer, otherwise="tool_failure")))

    # --- the model ---------------------------------------------------------------------------------

    def _on_reply(self, turn: Turn, answer: Answer) -> Step:
        if isinstance(answer, Failure):
            return self._on_overflow(turn, answer) if answer.code == OVERFLOW else self._effect(turn.failed(answer))
        try:
            reply = reply_of(answer.value)
        except msgspec.ValidationError as error:
            return self._effect(turn.failed(Failure(f"the reply was not understood: {error}")))
        spent = self.session.metrics
        sent = spent.prompt_tokens.tokens - self._sent
        if sent:
            self._gauge.counted(sent)
        self._gauge.said(content_tokens(reply.content))
        self._overflowed = False
        tokens, cost = self._before
        return self._effect(turn.replied(reply, self._at, tokens=spent.total_tokens - tokens, cost=spent.cost - cost))

    # --- summing up --------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        """Whether the conversation is to be summed up before the model is asked again."""
        window, compaction, turn = self._policy.window, self._policy.compaction, self._turn
        if window is None or not compaction.auto or turn is None or self._failed_in == turn.id:
            return False
        return self._gauge.is_full(window, compaction)

    def _on_overflow(self, turn: Turn, failure: Failure) -> Step:
        """The model does not take the conversation. If it was summed up for that reason already, there is no way."""
        if self._overflowed:
            return self._effect(End(_too_long("though it was summed up", failure)))
        self._overflowed = True
        asked = turn.effect
        assert isinstance(asked, CallModel)
        # What the runtime had to say was said when the model was asked first.
        return self._sum_up(self._summing_up("overflow", CallModel(asked.iteration)))

    def _summing_up(self, reason: Reason, then: Effect) -> _SummingUp:
        compaction = self._policy.compaction
        return _SummingUp(reason, then, self._gauge.keep(self._policy.window, compaction), compaction.instructions)

    def _sum_up(self, summing: _SummingUp, notes: Sequence[Note] = ()) -> Step:
        self._summing = summing
        return self._ask([LlmQuery(prompt=summing.instructions, sums_up=summing.keep)], notes)

    def _on_summary(self, summing: _SummingUp, answer: Answer) -> Step:
        self._summing = None
        if isinstance(answer, Failure):
            return self._not_summed_up(summing, answer)
        try:
            summary = reply_of(answer.value).text.strip()
        except msgspec.ValidationError as error:
            return self._not_summed_up(summing, Failure(f"the summary was not understood: {error}"))
        if not summary:
            return self._not_summed_up(summing, Failure("the model said nothing"))
        self._gauge.opened(value_tokens(summary), summing.keep)
        frame = FrameRecord(key=f"summary-{self.session.queries_asked}", reason=summing.reason, summary=summary)
        return self._effect(summing.then or End(FinishedCommand(COMPACT, {"summary": summary})), [frame])

    def _not_summed_up(self, summing: _SummingUp, failure: Failure) -> Step:
        """A summary that nobody has asked for is missed only where there is no way without it."""
        assert self._turn is not None
        if failure.code in STOP_CODES:
            return self._effect(End(stop_of(failure, otherwise="provider_error")))
        if summing.then is None:
            is_nothing = failure.code == NOTHING_TO_SUM_UP
            return self._effect(End(Stopped("invalid_input" if is_nothing else "provider_error", failure.message)))
        if summing.reason == "overflow":
            return self._effect(End(_too_long("and could not be summed up", failure)))
        self._failed_in = self._turn.id
        if failure.code == NOTHING_TO_SUM_UP:
            return self._effect(summing.then)
        told = f"the conversation was not summed up: {failure.message}"
        return self._effect(summing.then, [LoggedRecord(message=told, level="warning", source="holdfast")])

    # --- tools -------------------------------------------------------------------------------------

    def _on_calls(self, calls: Calls, answers: Sequence[tuple[str, Answer]]) -> Step:
        assert self._turn is not None
        for _, answer in answers:
            if isinstance(answer, Failure) and answer.code in STOP_CODES:
                return self._effect(self._turn.stopped(answer), withdrawn=calls.left_by(answers))
        queries = [query for asked, answer in answers for query in calls.answered(asked, answer)]
        return self._go_on_with(calls, [*queries, *calls.granted()])

    def _go_on_with(self, calls: Calls, queries: list[Query]) -> Step:
        notes = calls.refusals()
        if queries or calls.waiting:
            first = self.session.queries_asked
            calls.asked([query_id(first + number) for number in range(len(queries))])
            return self._ask(queries, notes, calls.wake, calls.withdrawals())
        assert self._turn is not None
        self._gauge.said(sum(value_tokens(done.content) for done in calls.results))
        return self._effect(self._turn.tools_done(calls.results, self._at), notes)

    # --- effects as queries ------------------------------------------------------------------------

    def _effect(self, effect: Effect, notes: Sequence[Note] = (), *, withdrawn: Sequence[str] = ()) -> Step:
        self._calls = None
        match effect:
            case CallModel() if self._is_full():
                return self._sum_up(self._summing_up("threshold", effect), notes)
            case CallModel(iteration=iteration, remark=remark):
                self._sent = self.session.metrics.prompt_tokens.tokens
                shown = sum(content_tokens(item.content) for item in self.session.inbox.unseen.values())
                self._gauge.said(shown + value_tokens(remark))
                return self._ask([LlmQuery(prompt="", iteration=iteration, remark=remark)], notes)
            case CallTools(calls=wished):
                self._calls = Calls(wished, self._policy, self._granted)
                return self._go_on_with(self._calls, self._calls.begin())
            case End(outcome=FinishedMessage()) if (more := self._goes_on()) is not None:
                return self._effect(more, notes)
            case End(outcome=outcome):
                self._turn = self._input = None
                told = [] if isinstance(outcome, FinishedMessage) else [TurnRecord(outcome=outcome)]
                return self._ask([InputQuery()], [*notes, *told], withdrawn=withdrawn)

    def _goes_on(self) -> Effect | None:
        """What comes next instead of the end, where something was said meanwhile."""
        return self._turn.goes_on(self._at) if self._turn is not None and self.session.inbox.unseen else None

    def _ask(
        self,
        queries: Sequence[Query],
        notes: Sequence[Note] = (),
        wake: Wake = "all",
        withdrawn: Sequence[str] = (),
    ) -> Step:
        first = self.session.queries_asked
        asked = [msgspec.structs.replace(query, id=query_id(first + n)) for n, query in enumerate(queries)]
        self._waits = [query.id for query in asked]
        return AskStep(queries=asked, wake=wake, notes=list(notes), withdrawn=list(withdrawn))


def _too_long(but: str, failure: Failure) -> Stopped:
    told = f"the conversation does not fit into the model's window, {but}: {failure.message}"
    return Stopped("provider_error", told, limit="window")
