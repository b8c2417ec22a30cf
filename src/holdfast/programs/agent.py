"""The kind `agent`: a session that takes inputs, works each to an outcome, and waits for the next.

What it does is decided by the turn machine in `core`. Here its effects become queries, and their answers are brought
back to it. The program holds no messages: whoever asks the model reads the conversation, which the journal tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.conversation import TurnInput, tool_done
from holdfast.core.ids import query_id
from holdfast.core.policy import Policy
from holdfast.core.queries import Answer, Failure, InputQuery, LlmQuery, Query, ToolQuery, Value
from holdfast.core.records import LoggedRecord, Program, TurnRecord
from holdfast.core.state import Session
from holdfast.core.turn import CallModel, CallTools, Effect, End, FinishedMessage, Replied, Stopped, ToolDone, Turn
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
        try:
            self._policy = msgspec.convert((started.ctx or {}).get("policy"), Policy)
        except (msgspec.ValidationError, AttributeError) as error:
            raise ProgramNotFoundError(started.program.name, f"its policy cannot be read: {error}") from None
        self._turn: Turn | None = None
        self._open: dict[str, str] = {}
        """Queries that wait: for the input, for the model, or for the call of that id."""
        self._done: dict[str, ToolDone] = {}
        """What came of the calls so far."""
        self._before = (0, 0.0)
        """Tokens and cost of the session when the turn began."""

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        if not self._open:
            return self._ask([InputQuery()], ["input"], [])
        for asked, answer in answers:
            waits = self._open.pop(asked, None)
            if waits is None:
                continue
            if waits == "input":
                return self._begin(answer, at)
            assert self._turn is not None
            if waits == "model":
                return self._replied(answer, at)
            self._done[waits] = tool_done(answer)
        return self._tools(at)

    def refuse(self, at: int, failure: Failure) -> Step:
        """The budget of the session does not allow the call: the turn is stopped, and the session goes on."""
        self._open.clear()
        return self._effect(End(Stopped("provider_error", failure.message, limit="budget")))

    def close(self) -> None:
        return

    # --- the ways on -------------------------------------------------------------------------------

    def _begin(self, answer: Answer, at: int) -> Step:
        try:
            if isinstance(answer, Failure):
                raise ValueError(answer.message)
            given = msgspec.convert(answer.value, TurnInput)
        except (ValueError, TypeError) as error:
            said = LoggedRecord(message=f"an input was not understood: {error}", level="error", source="holdfast")
            return self._ask([InputQuery()], ["input"], [said])
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
            reply = _reply(answer)
        except msgspec.ValidationError as error:
            return self._effect(self._turn.failed(Failure(f"the reply was not understood: {error}"), at))
        tokens, cost = self._before
        spent = self.session.metrics
        return self._effect(self._turn.replied(reply, at, tokens=spent.total_tokens - tokens, cost=spent.cost - cost))

    def _tools(self, at: int) -> Step:
        assert self._turn is not None
        effect = self._turn.effect
        assert isinstance(effect, CallTools)
        if self._open:  # not all of them; woken by a failure, or by an early answer
            return Asked(queries=[], wake="all")
        results = [self._done[call.id] for call in effect.calls]
        self._done = {}
        if any(_is_cancelled(result) for result in results):
            return self._effect(self._turn.cancelled("it was stopped while tools ran"))
        return self._effect(self._turn.tools_done(results, at))

    # --- effects as queries ------------------------------------------------------------------------

    def _effect(self, effect: Effect) -> Step:
        turn = self._turn
        assert turn is not None
        match effect:
            case CallModel(iteration=iteration):
                query = LlmQuery(prompt="", iteration=iteration)
                return self._ask([query], ["model"], [])
            case CallTools(calls=calls):
                queries: list[Query] = [
                    ToolQuery(name=call.name, arguments=_arguments(call.input), call_id=call.id) for call in calls
                ]
                return self._ask(queries, [call.id for call in calls], [])
            case End(outcome=outcome):
                self._turn = None
                is_told = not isinstance(outcome, FinishedMessage)
                return self._ask([InputQuery()], ["input"], [TurnRecord(outcome=outcome)] if is_told else [])

    def _ask(self, queries: list[Query], waits: list[str], notes: list[Note]) -> Step:
        first = self.session.queries_asked
        asked = [msgspec.structs.replace(query, id=query_id(first + n)) for n, query in enumerate(queries)]
        self._open = {query.id: each for query, each in zip(asked, waits, strict=True)}
        return Asked(queries=asked, wake="all", notes=notes)


def _reply(answer: Value) -> Replied:
    """A reply; a bare text is one, too: whoever answers by hand need not know our format."""
    if isinstance(answer.value, str):
        return msgspec.convert({"content": [{"type": "text", "text": answer.value}]}, Replied)
    return msgspec.convert(answer.value, Replied)


def _arguments(given: object) -> dict[str, object]:
    return given if isinstance(given, dict) else {"_raw": given}


def _is_cancelled(done: ToolDone) -> bool:
    return done.is_error and isinstance(done.content, dict) and done.content.get("code") == "cancelled"
