"""An agent without an engine, for tests of its inbox: the real program and the real folds, driven by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.decide import decide_claim, decide_join
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.mailbox import EnqueueMessage, StopMessage, WithdrawMessage
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program import AgentInstance
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.turn_limits import Limits
from holdfast.core.decide import Decision, FeedMessage, GivenAnswer, Message, decide
from holdfast.core.queries import Answer, LlmQuery, ToolQuery, Value
from holdfast.core.records import Entry, Program, Record, StartedRecord
from holdfast.core.replay import ReplayFold, Waking
from holdfast.core.state import Session, State
from holdfast.engine.outcomes import outcome_of
from holdfast.engine.rebuild import rebuild
from holdfast.programs.contract import AskStep
from tests.agent.machine.segments import check_segments
from tests.core.helpers import START, check_checkpoints, recorded


def item(item_id: str, **more: Any) -> Item:
    """An item that says its own id."""
    more.setdefault("content", [TextBlock(item_id)])
    return Item(id=item_id, **more)


class Agent:
    """An agent session and its journal."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = START
        self.entries: list[Entry] = []
        self.conversation = Conversation("s-1")
        self._tracker = ReplayFold("s-1")
        self._waking: Waking | None = None
        policy = Policy(provider="p", model="m", limits=limits or Limits(iterations=None, no_progress=1_000))
        self.write(StartedRecord(program=Program("agent", "a"), ctx={"policy": msgspec.to_builtins(policy)}))
        self._instance = AgentInstance(self)
        self._run()

    @property
    def session(self) -> Session:
        return self._tracker.session

    def write(self, *records: Record) -> None:
        for record in records:
            entry = Entry(len(self.entries) + 1, self.now, record)
            self._waking = self._tracker.apply(entry) or self._waking
            self.conversation.apply(entry)
            self.entries.append(entry)

    def _run(self) -> None:
        while self.session.state is State.RUNNING and self._waking is not None:
            waking, self._waking = self._waking, None
            step = self._instance.resume(waking.at, waking.answers)
            assert isinstance(step, AskStep)
            self.write(*(draft.record for draft in outcome_of(self.session, step, self.now)))
            self.write(*decide_join(self.session, agent_fold(self.session), self.now))

    def _decided(self, message: Message) -> Decision:
        return decide(self.session, message, self.now, recorded(self.session, message, self.entries))

    def _take(self, decision: Decision) -> Decision:
        self.write(*decision.records)
        self._run()
        return decision

    # --- what happens to it ------------------------------------------------------------------------

    def send(self, *items: Item) -> Decision:
        """Send items; the decision about the last of them."""
        return [self._take(self._decided(EnqueueMessage(each))) for each in items][-1]

    def withdraw(self, item_id: str, reason: str = "", by: str = "") -> Decision:
        return self._take(self._decided(WithdrawMessage(item_id, reason or None, by or None)))

    def stop(self, turn: str | None = None) -> Decision:
        turn = turn or agent_fold(self.session).turn
        assert turn is not None
        return self._take(self._decided(StopMessage(turn, "enough", "ann")))

    def begin(self) -> str | None:
        """Begin a turn with what waits; its id."""
        self._take(Decision.of(*decide_claim(self.session, agent_fold(self.session), self.now)))
        return agent_fold(self.session).turn

    def reply(self, value: Any = "Done.") -> None:
        self._answer(LlmQuery, Value(value=value))

    def call_tool(self) -> None:
        self.reply({"content": [{"type": "tool_use", "id": "c-1", "name": "look", "input": {}}], "stop": "tool_use"})

    def tool_done(self) -> None:
        self._answer(ToolQuery, Value(value="seen"))

    def _answer(self, kind: type[Any], answer: Answer) -> None:
        asked = next(asked for asked, pending in self.session.pending.items() if isinstance(pending.query, kind))
        self.write(*decide_join(self.session, agent_fold(self.session), self.now))  # as the engine does
        self._take(self._decided(FeedMessage([GivenAnswer(answer, asked)])))

    # --- what can be seen --------------------------------------------------------------------------

    def waits_for(self, kind: type[Any]) -> bool:
        return any(isinstance(pending.query, kind) for pending in self.session.pending.values())

    @property
    def is_idle(self) -> bool:
        return self.waits_for(InputQuery)

    @property
    def waiting(self) -> list[str]:
        return list(agent_fold(self.session).inbox.waiting)

    @property
    def unseen(self) -> list[str]:
        return list(agent_fold(self.session).inbox.unseen)

    def said(self) -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in self.conversation.messages]

    def check_replay(self) -> None:
        """A process that knows nothing but the journal comes to the same; `DivergenceError` if its program does not."""
        check_checkpoints(self.entries)
        check_segments(self.entries)
        tracker, _, _ = asyncio.run(rebuild("s-1", self.entries, AgentInstance))
        ours, theirs = agent_fold(self.session).inbox, agent_fold(tracker.session).inbox
        assert (theirs.waiting, theirs.unseen, theirs.accepted) == (ours.waiting, ours.unseen, ours.accepted)
