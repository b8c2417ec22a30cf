"""The kind `agent`: a session that takes inputs, works each to an outcome, and waits for the next.

What it does is decided by the turn machine in `core`. Here its effects become queries, and their answers are brought
back to it. The program holds no messages: whoever asks the model reads the conversation, which the journal tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.conversation import input_of, policy_of, tool_done
from holdfast.core.ids import query_id
from holdfast.core.messages import ToolUseBlock
from holdfast.core.queries import Answer, Failure, InputQuery, LlmQuery, Query, ToolQuery
from holdfast.core.records import LoggedRecord, Program, TurnRecord
from holdfast.core.state import Session
from holdfast.core.turn import CallModel, CallTools, Effect, End, FinishedMessage, Stopped, ToolDone, Turn, reply_of
from holdfast.programs.contract import Asked, Note, Step
from holdfast.programs.errors import ProgramNotFoundError

KIND = "agent"


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
        self._waits: list[str] = []
        """The queries that were asked last: the one for the input or to the model, or those of calls in order."""
        self._before = (0, 0.0)
        """Tokens and cost of the session when the turn began."""

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        if not self._waits:
            return self._ask([InputQuery()])
        given = dict(answers)
        told = [given[asked] for asked in self._waits]
        if self._turn is None:
            return self._begin(told[0], at)
        if isinstance(self._turn.effect, CallTools):
            return self._tools(self._turn.effect.calls, told, at)
        return self._replied(told[0], at)

    def refuse(self, at: int, failure: Failure) -> Step:
        """The budget of the session does not allow the call: the turn is stopped, and the session goes on."""
        return self._effect(End(Stopped("provider_error", failure.message, limit="budget")))

    def close(self) -> None:
        return

    # --- the ways on -------------------------------------------------------------------------------

    def _begin(self, answer: Answer, at: int) -> Step:
        try:
            given = input_of(answer)
        except ValueError as error:
            said = LoggedRecord(message=f"an input was not understood: {error}", level="error", source="holdfast")
            return self._ask([InputQuery()], [said])
        if given.policy is not None:
            self._policy = given.policy
        self._before = (self.session.metrics.total_tokens, self.session.metrics.cost)
        self._turn = Turn(id=given.turn, began_at=at, limits=self._policy.limits)
        if not given.content:
            return self._effect(End(Stopped("invalid_input", "the input is empty")))
        return self._effect(self._turn.effect)

    def _replied(self, answer: Answer, at: int) -> Step:
        assert self._turn is not None
        if isinstance(answer, Failure):
            return self._effect(self._turn.failed(answer, at))
        try:
            reply = reply_of(answer.value)
        except msgspec.ValidationError as error:
            return self._effect(self._turn.failed(Failure(f"the reply was not understood: {error}"), at))
        tokens, cost = self._before
        spent = self.session.metrics
        return self._effect(self._turn.replied(reply, at, tokens=spent.total_tokens - tokens, cost=spent.cost - cost))

    def _tools(self, calls: list[ToolUseBlock], answers: list[Answer], at: int) -> Step:
        assert self._turn is not None
        for answer in answers:
            if isinstance(answer, Failure) and answer.code == "cancelled":
                return self._effect(self._turn.cancelled(answer.message))
        results = [self._result(call.name, answer) for call, answer in zip(calls, answers, strict=True)]
        return self._effect(self._turn.tools_done(results, at))

    def _result(self, tool: str, answer: Answer) -> ToolDone:
        done = tool_done(answer)
        deadline = self._policy.deadlines.get(tool)
        if deadline is None or not isinstance(answer, Failure) or answer.code != "timeout":
            return done
        return msgspec.structs.replace(done, stops=deadline.stops)

    # --- effects as queries ------------------------------------------------------------------------

    def _effect(self, effect: Effect) -> Step:
        match effect:
            case CallModel(iteration=iteration):
                return self._ask([LlmQuery(prompt="", iteration=iteration)])
            case CallTools(calls=calls):
                return self._ask([self._query(call) for call in calls])
            case End(outcome=outcome):
                self._turn = None
                is_told = not isinstance(outcome, FinishedMessage)
                return self._ask([InputQuery()], [TurnRecord(outcome=outcome)] if is_told else [])

    def _query(self, call: ToolUseBlock) -> Query:
        deadline = self._policy.deadlines.get(call.name)
        return ToolQuery(
            name=call.name,
            arguments=_arguments(call.input),
            call_id=call.id,
            timeout_ms=None if deadline is None else deadline.ms,
        )

    def _ask(self, queries: Sequence[Query], notes: Sequence[Note] = ()) -> Step:
        first = self.session.queries_asked
        asked = [msgspec.structs.replace(query, id=query_id(first + n)) for n, query in enumerate(queries)]
        self._waits = [query.id for query in asked]
        return Asked(queries=asked, wake="all", notes=list(notes))


def _arguments(given: object) -> dict[str, object]:
    return given if isinstance(given, dict) else {"_raw": given}
