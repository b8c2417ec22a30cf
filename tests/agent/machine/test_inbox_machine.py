"""A random walk of everything that can happen to an inbox, beside a model of it that is as simple as can be."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Command, Item
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.core.queries import LlmQuery, ToolQuery
from tests.agent.machine.agents import Agent, item
from tests.examples import examples

LIMIT = 16


@dataclass
class Sent:
    """An item as the model knows it."""

    item: Item
    where: Literal["waiting", "entered", "shown", "done", "cancelled"] = "waiting"


@dataclass
class Model:
    """All that was sent, in order."""

    sent: list[Sent] = field(default_factory=list)
    in_turn: bool = False

    def are(self, where: str) -> list[Sent]:
        return [each for each in self.sent if each.where == where]

    def head(self, now: int) -> list[Sent]:
        """Those that are taken next."""
        there = [each for each in self.are("waiting") if each.item.available_at <= now]
        commands = [each for each in there if each.item.command]
        if commands and not self.in_turn:
            return commands[:1]
        there = [each for each in there if not each.item.command]
        if not there or (self.in_turn and there[0].item.delivery == "after_turn"):
            return []
        group = [there[0]]
        while there[0].item.slot == "join" and len(group) < min(LIMIT, len(there)):
            following, first = there[len(group)].item, there[0].item
            if (following.slot, following.delivery, following.merge_key) != ("join", first.delivery, first.merge_key):
                break
            group.append(there[len(group)])
        return group

    def enter(self, now: int) -> None:
        if self.in_turn and not self.are("entered"):
            for each in self.head(now):
                each.where = "entered"

    def ask_model(self, now: int) -> None:
        for each in self.are("entered"):
            each.where = "shown"
        self.enter(now)

    def end(self) -> None:
        self.in_turn = False
        for each in self.are("shown"):
            each.where = "done"
        for each in self.are("entered"):
            each.where = "waiting"


class InboxMachine(RuleBasedStateMachine):
    """The inbox, and the model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = Agent()
        self.model = Model()

    @rule(
        delivery=st.sampled_from(["after_turn", "boundary", "boundary"]),
        slot=st.sampled_from(["exclusive", "join", "join", "join"]),
        key=st.sampled_from(["", "k"]),
        is_command=st.sampled_from([False, False, False, False, False, True]),
        after=st.sampled_from([0, 0, 0, 0, 5, 20]),
        count=st.sampled_from([1, 1, 1, 1, 2, 20]),
    )
    def send(
        self,
        delivery: Literal["after_turn", "boundary"],
        slot: Literal["exclusive", "join"],
        key: str,
        is_command: bool,
        after: int,
        count: int,
    ) -> None:
        for _ in range(count):
            new = item(
                f"i{len(self.model.sent)}",
                command=Command("anything") if is_command else None,
                delivery=delivery,
                slot=slot,
                merge_key=key,
                available_at=self.agent.now + after if after else 0,
            )
            self.agent.send(new)
            self.model.sent.append(Sent(new))
            self.model.enter(self.agent.now)

    @precondition(lambda self: self.model.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        assert self.agent.send(data.draw(st.sampled_from(self.model.sent)).item).is_replay

    @precondition(lambda self: self.model.sent)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.model.sent))
        records = self.agent.withdraw(chosen.item.id).records
        assert bool(records) == (chosen.where in ("waiting", "entered"))
        if records:
            chosen.where = "cancelled"

    @rule(milliseconds=st.sampled_from([1, 5, 20]))
    def time_passes(self, milliseconds: int) -> None:
        self.agent.now += milliseconds

    @precondition(lambda self: self.agent.is_idle)
    @rule()
    def begin(self) -> None:
        head = self.model.head(self.agent.now)
        turn = self.agent.begin()
        assert (turn is not None) == bool(head)
        if turn is None:
            return
        assert self.agent.conversation.turns[turn].items == [each.item.id for each in head]
        for each in head:
            each.where = "shown"
        self.model.in_turn = True
        self.model.enter(self.agent.now)

    @precondition(lambda self: self.agent.waits_for(LlmQuery))
    @rule()
    def reply(self) -> None:
        self.model.enter(self.agent.now)
        self.agent.reply()
        if self.model.are("entered"):
            self.model.ask_model(self.agent.now)
        else:
            self.model.end()

    @precondition(lambda self: self.agent.waits_for(LlmQuery))
    @rule()
    def call_tool(self) -> None:
        self.model.enter(self.agent.now)
        self.agent.call_tool()
        self.model.enter(self.agent.now)

    @precondition(lambda self: self.agent.waits_for(ToolQuery))
    @rule()
    def tool_done(self) -> None:
        self.model.enter(self.agent.now)
        is_command = self.agent.conversation.running is not None and self.agent.conversation.running.command is not None
        self.agent.tool_done()
        if is_command:
            self.model.end()
        else:
            self.model.ask_model(self.agent.now)

    @precondition(lambda self: agent_fold(self.agent.session).turn is not None)
    @rule()
    def stop(self) -> None:
        assert self.agent.stop().records
        self.model.end()

    @rule()
    def stop_late(self) -> None:
        over = [turn.id for turn in self.agent.conversation.turns.values() if turn.ended is not None]
        if over:
            assert self.agent.stop(over[-1]).records == []

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_fold_agrees_with_the_model(self) -> None:
        def named(where: str) -> list[str]:
            return [each.item.id for each in self.model.are(where)]

        assert self.agent.waiting == named("waiting")
        assert sorted(self.agent.unseen) == sorted(named("entered"))
        assert (agent_fold(self.agent.session).turn is not None) == self.model.in_turn
        states = {"entered": "taken", "shown": "taken", "done": "taken"}
        for each in self.model.sent:
            known = agent_fold(self.agent.session).inbox.accepted[each.item.id]
            assert known.state == states.get(each.where, each.where)
            assert (known.turn is not None) == (known.state == "taken")

    @invariant()
    def every_item_is_in_at_most_one_turn(self) -> None:
        taken = [name for turn in self.agent.conversation.turns.values() for name in turn.items]
        assert len(taken) == len(set(taken))
        expected = [each.item.id for each in self.model.sent if each.where in ("shown", "done")]
        assert sorted(taken) == sorted(expected)

    @invariant()
    def every_call_is_followed_by_its_result(self) -> None:
        messages = self.agent.conversation.messages
        for said, following in pairwise(messages):
            if any(isinstance(block, ToolUseBlock) for block in said.content):
                assert following.role == "tool"

    def teardown(self) -> None:
        self.agent.check_replay()
        again = Conversation("s-1")
        for entry in self.agent.entries:
            again.apply(entry)
        assert again.messages == self.agent.conversation.messages


TestInboxMachine = InboxMachine.TestCase
TestInboxMachine.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
