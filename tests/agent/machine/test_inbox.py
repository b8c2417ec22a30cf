"""The inbox of an agent: the rule by which items are taken, and what becomes of them."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.errors import InboxFullError, ItemConflictError, NoInboxError
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import MAX_JOINED, MAX_WAITING, Command, Item, ItemCancellation, claim
from holdfast.agent.machine.mailbox import EnqueueMessage
from holdfast.agent.machine.records import DequeuedRecord, EnqueuedRecord, StopRecord
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome
from holdfast.agent.machine.turn_limits import Limits
from holdfast.core.decide import CancelMessage, decide
from holdfast.core.errors import InvalidValueError, UnsupportedMessageError
from holdfast.core.queries import LlmQuery, ToolQuery
from holdfast.core.records import decode_record
from holdfast.core.summary import summarize
from holdfast.core.values import encode
from tests.agent.machine.agents import Agent, item
from tests.core.helpers import START, Journal

COMPACT = Command("compact")


def ids(items: list[Item]) -> list[str]:
    return [each.id for each in items]


# --- the rule: between turns ---------------------------------------------------------------------------


def test_nothing_waits_and_nothing_is_taken() -> None:
    assert claim([], START, in_turn=False) == []
    assert claim([], START, in_turn=True) == []


def test_an_exclusive_item_is_taken_alone() -> None:
    waiting = [item("a"), item("b"), item("c", slot="join")]
    assert ids(claim(waiting, START, in_turn=False)) == ["a"]


def test_items_that_join_are_taken_together_up_to_one_that_does_not() -> None:
    waiting = [item("a", slot="join"), item("b", slot="join"), item("c"), item("d", slot="join")]
    assert ids(claim(waiting, START, in_turn=False)) == ["a", "b"]


def test_items_join_only_those_of_the_same_delivery() -> None:
    waiting = [item("a", slot="join", delivery="boundary"), item("b", slot="join")]
    assert ids(claim(waiting, START, in_turn=False)) == ["a"]


def test_items_join_only_those_of_the_same_merge_key() -> None:
    waiting = [item("a", slot="join", merge_key="x"), item("b", slot="join", merge_key="x"), item("c", slot="join")]
    assert ids(claim(waiting, START, in_turn=False)) == ["a", "b"]


def test_no_more_items_join_than_one_turn_takes() -> None:
    waiting = [item(f"i{number}", slot="join") for number in range(MAX_JOINED + 3)]
    assert ids(claim(waiting, START, in_turn=False)) == [f"i{number}" for number in range(MAX_JOINED)]
    assert ids(claim(waiting, START, in_turn=False, limit=1)) == ["i0"]


def test_any_delivery_will_do_between_turns() -> None:
    assert ids(claim([item("a", delivery="boundary")], START, in_turn=False)) == ["a"]


def test_a_command_goes_first_and_alone() -> None:
    waiting = [item("a", slot="join"), item("b", slot="join"), item("c", content=[], command=COMPACT), item("d")]
    assert ids(claim(waiting, START, in_turn=False)) == ["c"]


def test_an_item_that_is_to_come_later_is_passed_over_until_then() -> None:
    waiting = [item("a", available_at=START + 10), item("b")]
    assert ids(claim(waiting, START, in_turn=False)) == ["b"]
    assert ids(claim(waiting, START + 9, in_turn=False)) == ["b"]
    assert ids(claim(waiting, START + 10, in_turn=False)) == ["a"]


# --- the rule: within a turn ---------------------------------------------------------------------------


def test_an_item_for_after_the_turn_does_not_enter_it_and_lets_none_past_itself() -> None:
    waiting = [item("a"), item("b", delivery="boundary")]
    assert claim(waiting, START, in_turn=True) == []
    assert ids(claim(waiting[1:], START, in_turn=True)) == ["b"]


def test_a_command_waits_for_the_end_of_the_turn_and_holds_up_nobody() -> None:
    waiting = [item("a", content=[], command=COMPACT), item("b", delivery="boundary")]
    assert ids(claim(waiting, START, in_turn=True)) == ["b"]


def test_items_that_join_enter_a_turn_together() -> None:
    waiting = [item(name, delivery="boundary", slot="join") for name in "ab"]
    assert ids(claim([*waiting, item("c", delivery="boundary")], START, in_turn=True)) == ["a", "b"]


# --- accepting -----------------------------------------------------------------------------------------


def test_the_same_item_again_changes_nothing() -> None:
    agent = Agent()
    assert [type(record) for record in agent.send(item("a")).records] == [EnqueuedRecord]
    again = agent.send(item("a"))
    assert (again.records, again.is_replay) == ([], True)
    agent.begin()
    agent.reply()
    assert agent.send(item("a")).is_replay
    assert agent.waiting == []


def test_another_item_under_the_same_id_is_a_conflict_also_when_the_first_is_done() -> None:
    agent = Agent()
    agent.send(item("a"))
    with pytest.raises(ItemConflictError, match="'a' was sent before") as caught:
        agent.send(item("a", slot="join"))
    assert (caught.value.session_id, caught.value.item_id) == ("s-1", "a")
    agent.begin()
    agent.reply()
    with pytest.raises(ItemConflictError, match="'a' was sent before"):
        agent.send(item("a", slot="join"))


def test_when_an_item_may_be_taken_does_not_make_it_another_one() -> None:
    agent = Agent()
    agent.send(item("a", available_at=START + 5))
    assert agent.send(item("a", available_at=START + 7)).is_replay
    assert agent_fold(agent.session).inbox.waiting["a"].available_at == START + 5


def test_only_agents_have_an_inbox_and_only_while_they_live() -> None:
    with pytest.raises(UnsupportedMessageError, match="its program is of the kind 'native'"):
        decide(Journal().start().session, EnqueueMessage(item("a")), START)
    agent = Agent()
    agent.send(item("a"))
    agent.write(*decide(agent.session, CancelMessage("away"), START).records)
    with pytest.raises(NoInboxError, match="it is cancelled"):
        agent.send(item("b"))
    assert agent.send(item("a")).is_replay


def test_an_item_that_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="it is empty"):
        Agent().send(item("a", content=[]))


def test_an_item_that_is_to_come_to_a_value_has_a_turn_of_its_own() -> None:
    for more in ({"slot": "join"}, {"delivery": "boundary"}):
        with pytest.raises(InvalidValueError, match="a turn of its own"):
            Agent().send(item("a", output={"type": "object"}, **more))


def test_an_inbox_that_nobody_drains_is_full_at_some_point() -> None:
    agent = Agent()
    agent_fold(agent.session).inbox.waiting = {f"i{number}": item(f"i{number}") for number in range(MAX_WAITING)}
    with pytest.raises(InboxFullError, match=f"{MAX_WAITING} items wait"):
        agent.send(item("a"))


def test_items_are_read_back_as_they_were_written() -> None:
    full = item("a", delivery="boundary", slot="join", merge_key="k", available_at=7)
    record = EnqueuedRecord(item=full, by="ann")
    assert decode_record(encode(record)) == record


# --- turns ---------------------------------------------------------------------------------------------


def test_a_turn_is_made_of_items_and_they_are_done_with_it() -> None:
    agent = Agent()
    agent.send(item("a", slot="join"), item("b", slot="join"), item("c"))
    turn = agent.begin()
    assert turn is not None
    assert agent.conversation.turns[turn].items == ["a", "b"]
    assert [agent_fold(agent.session).inbox.accepted[name].state for name in "abc"] == ["taken", "taken", "waiting"]
    agent.reply()
    assert (agent.conversation.turns[turn].ended, agent.is_idle) == (MessageOutcome(), True)


def test_an_item_enters_a_running_turn_after_its_tools_and_never_between_a_call_and_its_result() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    agent.call_tool()
    agent.send(item("b", delivery="boundary"))
    assert agent.unseen == ["b"]
    agent.tool_done()
    assert agent.unseen == []
    assert [role for role, _ in agent.said()] == ["user", "assistant", "tool", "user"]
    assert agent.said()[-1] == ("user", "b")
    agent.reply()
    assert agent.is_idle
    agent.check_replay()


def test_an_item_enters_a_running_turn_before_that_would_end() -> None:
    agent = Agent()
    agent.send(item("a"))
    turn = agent.begin()
    assert turn is not None
    agent.send(item("b", delivery="boundary"))
    agent.reply("First.")
    assert (agent_fold(agent.session).turn, agent.waits_for(LlmQuery)) == (turn, True)
    agent.reply("Second.")
    assert agent.said() == [("user", "a"), ("assistant", "First."), ("user", "b"), ("assistant", "Second.")]
    assert agent.conversation.turns[turn].items == ["a", "b"]
    agent.check_replay()


def test_an_item_that_is_to_come_later_enters_the_turn_if_its_time_has_come_by_then() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    agent.send(item("b", delivery="boundary", available_at=START + 10))
    assert (agent.unseen, agent.session.next_due()) == ([], None)
    agent.now += 10
    agent.reply("First.")
    assert agent.said()[-1] == ("user", "b")


def test_exclusive_items_enter_a_turn_one_by_one() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    agent.send(item("b", delivery="boundary"), item("c", delivery="boundary"))
    assert (agent.unseen, agent.waiting) == (["b"], ["c"])
    agent.reply()
    assert (agent.unseen, agent.waiting) == (["c"], [])


def test_what_has_entered_a_turn_and_was_not_shown_goes_back_to_its_place() -> None:
    agent = Agent()
    agent.send(item("a"))
    turn = agent.begin()
    assert turn is not None
    agent.send(item("b", delivery="boundary"), item("c"))
    agent.stop()
    assert (agent.waiting, agent.unseen) == (["b", "c"], [])
    assert agent_fold(agent.session).inbox.accepted["b"].turn is None
    assert agent.conversation.turns[turn].items == ["a"]
    assert agent.begin() != turn
    assert agent.said()[-1] == ("user", "b")
    agent.check_replay()


def test_a_turn_that_may_not_go_on_ends_with_its_answer_and_what_was_said_meanwhile_waits() -> None:
    agent = Agent(Limits(iterations=1))
    agent.send(item("a"))
    turn = agent.begin()
    assert turn is not None
    agent.send(item("b", delivery="boundary"))
    agent.reply()
    assert (agent.conversation.turns[turn].ended, agent.waiting) == (MessageOutcome(), ["b"])


def test_a_session_says_that_its_inbox_waits_only_between_turns_and_when_it_is_due() -> None:
    agent = Agent()
    agent.send(item("later", available_at=START + 50), item("last", available_at=START + 70))
    assert ("inbox" in summarize(agent.session).waiting_for, summarize(agent.session).due_at) == (True, START + 50)
    agent.send(item("now"))
    assert summarize(agent.session).due_at is None
    agent.begin()
    assert ("inbox" in summarize(agent.session).waiting_for, summarize(agent.session).due_at) == (False, None)
    agent.reply()
    assert ("inbox" in summarize(agent.session).waiting_for, summarize(agent.session).due_at) == (True, START + 50)


# --- cancelling ----------------------------------------------------------------------------------------


def test_an_item_that_waits_is_taken_out_with_who_when_and_why() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.now += 3
    assert [type(record) for record in agent.withdraw("a", "wrong chat", "ann").records] == [DequeuedRecord]
    known = agent_fold(agent.session).inbox.accepted["a"]
    assert (known.state, known.cancelled) == ("cancelled", ItemCancellation(START + 3, "wrong chat", "ann"))
    assert agent.withdraw("a", "again", "bob").records == []
    assert known.cancelled == ItemCancellation(START + 3, "wrong chat", "ann")
    assert agent.begin() is None


def test_an_item_in_a_turn_is_not_taken_out() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    assert agent.withdraw("a").records == []
    agent.reply()
    assert agent.withdraw("a").records == []


def test_an_item_that_has_entered_a_turn_is_taken_out_as_long_as_the_model_was_not_shown_it() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    agent.send(item("b", delivery="boundary"))
    agent.withdraw("b")
    assert agent.unseen == []
    agent.reply()
    assert (agent.is_idle, agent.waiting) == (True, [])
    assert agent.said() == [("user", "a"), ("assistant", "Done.")]
    agent.check_replay()


def test_what_waits_when_a_session_ends_is_cancelled_with_it() -> None:
    agent = Agent()
    agent.send(item("a"))
    agent.begin()
    agent.send(item("b", delivery="boundary"), item("c"))
    agent.write(*decide(agent.session, CancelMessage("away", "ann"), START).records)
    inbox = agent_fold(agent.session).inbox
    assert [inbox.accepted[name].state for name in "abc"] == ["taken", "cancelled", "cancelled"]
    assert inbox.accepted["c"].cancelled == ItemCancellation(START, "the session was over: cancelled", "ann")


def test_a_stopped_turn_says_who_when_and_why() -> None:
    agent = Agent()
    agent.send(item("a"))
    turn = agent.begin()
    assert turn is not None
    agent.now += 3
    agent.stop()
    assert agent.conversation.turns[turn].ended == StoppedOutcome("cancelled", "enough", by="ann", at=START + 3)
    assert (agent.is_idle, agent_fold(agent.session).stop) == (True, None)


def test_a_late_stop_does_not_hit_the_next_turn() -> None:
    agent = Agent()
    agent.send(item("a"), item("b"))
    first = agent.begin()
    agent.reply()
    second = agent.begin()
    assert agent.stop(first).records == []
    assert agent_fold(agent.session).turn == second != first


def test_a_turn_that_waits_for_tools_is_stopped_with_a_result_for_each_call() -> None:
    agent = Agent()
    agent.send(item("a"))
    turn = agent.begin()
    assert turn is not None
    agent.call_tool()
    assert agent.waits_for(ToolQuery)
    assert isinstance(agent.stop().records[0], StopRecord)
    assert [role for role, _ in agent.said()] == ["user", "assistant", "tool"]
    assert agent.is_idle
    agent.check_replay()
