"""A conversation in segments: what is decoded when, what is not used, and what a segment costs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import InputQuery, ReplyQuery
from holdfast.agent.machine.turn_input import NewConversation, TurnInput
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Program, Record, StartedRecord
from tests.agent.machine.segments import description, folded

TURNS = 64
"""In each segment."""


class Chat:
    """A chat, and its segments as far as they were written."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.conversation = Conversation("s-1")
        self.segments: list[bytes] = []
        self._asked = 0
        self.write(StartedRecord(program=Program("agent", "a"), ctx={"policy": msgspec.to_builtins(Policy())}))
        self._ask(InputQuery)

    def write(self, record: Record) -> None:
        entry = Entry(len(self.entries) + 1, len(self.entries), record)
        self.conversation.apply(entry)
        self.entries.append(entry)

    def _ask(self, kind: type[InputQuery | ReplyQuery]) -> None:
        self.write(PausedRecord(queries=[kind(id=f"q-{self._asked}")]))
        self._asked += 1

    def begin(self, turn: str, begin: NewConversation | None = None) -> None:
        brought = TurnInput(turn=turn, content=[TextBlock(f"question {turn}")], begin=begin)
        self.write(AnsweredRecord(query_id=f"q-{self._asked - 1}", answer=brought.to_answer()))
        self._ask(ReplyQuery)

    def end(self) -> None:
        self.write(AnsweredRecord(query_id=f"q-{self._asked - 1}", answer=Value(value="an answer")))
        self._ask(InputQuery)

    def say(self, turns: int) -> Chat:
        for number in range(turns):
            self.begin(f"t-{len(self.conversation.turns)}")
            self.end()
            if number % TURNS == TURNS - 1:
                self.cut()
        return self

    def cut(self) -> None:
        segment = self.conversation.segment()
        assert segment is not None
        self.segments.append(segment.data)

    def restored(self, **changes: Any) -> Conversation:
        state = self.conversation.dump()
        assert state is not None
        if changes:
            state = msgspec.json.encode({**msgspec.json.decode(state), **changes})
        conversation = Conversation.restore("s-1", state, self.segments)
        assert conversation is not None
        return conversation


def in_memory(conversation: Conversation) -> tuple[int, int]:
    return len(conversation.nodes.here), len(conversation.turns.here)


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    conversation = Chat().say(10 * TURNS + 3).restored()
    assert in_memory(conversation) == (6, 3)
    assert (len(conversation.nodes), len(conversation.turns)) == (1 + 20 * TURNS + 6, 10 * TURNS + 3)
    assert "t-0" in conversation.turns
    assert "t-nobody" not in conversation.turns
    assert conversation.turns.get("t-nobody") is None
    assert in_memory(conversation) == (6, 3)


def test_the_latest_is_decoded_first() -> None:
    conversation = Chat().say(10 * TURNS).restored()
    assert conversation.turns[f"t-{10 * TURNS - 1}"].messages[0].text == f"question t-{10 * TURNS - 1}"
    assert in_memory(conversation) == (2 * TURNS, TURNS)
    assert next(conversation.nodes.backwards()).id == conversation.leaf
    assert conversation.turns["t-0"].messages[1].text == "an answer"
    assert in_memory(conversation) == (1 + 20 * TURNS, 10 * TURNS)


def test_a_restored_conversation_goes_on_without_decoding_what_was_said_before() -> None:
    chat = Chat().say(3 * TURNS)
    chat.conversation = chat.restored()
    chat.say(1)
    assert in_memory(chat.conversation) == (2, 1)
    chat.say(2 * TURNS - 1)
    assert len(chat.segments) == 4
    chat.conversation = chat.restored()
    assert description(chat.conversation) == description(folded(chat.entries))


def test_a_turn_that_has_the_id_of_an_earlier_one_takes_its_place() -> None:
    chat = Chat().say(TURNS)
    chat.conversation = chat.restored()
    chat.begin("t-5")
    chat.end()
    assert description(chat.conversation) == description(folded(chat.entries))
    chat.cut()
    assert description(chat.restored()) == description(folded(chat.entries))
    chat.say(TURNS)
    assert description(chat.conversation) == description(folded(chat.entries))


def test_what_is_in_earlier_segments_is_not_in_memory() -> None:
    chat = Chat().say(5 * TURNS)
    assert in_memory(chat.conversation) == (2 * TURNS, TURNS)
    assert "t-0" in chat.conversation.turns
    assert chat.conversation.turns["t-0"].messages[0].text == "question t-0"
    chat.say(TURNS)
    assert in_memory(chat.conversation) == (2 * TURNS, TURNS)
    assert "t-0" in chat.conversation.turns
    assert description(chat.conversation) == description(folded(chat.entries))


def test_there_is_no_segment_and_no_checkpoint_in_the_middle_of_a_turn() -> None:
    chat = Chat().say(2)
    chat.begin("t-2")
    assert (chat.conversation.segment(), chat.conversation.dump()) == (None, None)
    chat.end()
    chat.cut()
    assert chat.conversation.segment() is None
    assert description(chat.restored()) == description(folded(chat.entries))


def test_a_branch_that_was_closed_before_its_segment_was_written_is_in_it() -> None:
    chat = Chat()
    chat.conversation = Conversation("s-1", keep_all=False)
    for entry in chat.entries:
        chat.conversation.apply(entry)
    chat.say(3)
    chat.begin("t-3", NewConversation([AgentMessage("user", [TextBlock("before")])]))
    chat.end()
    chat.cut()
    assert len(chat.conversation.nodes) == 3
    assert description(chat.restored()) == description(folded(chat.entries))


def test_what_other_versions_wrote_is_not_used() -> None:
    chat = Chat().say(TURNS)
    state = chat.conversation.dump()
    assert state is not None
    plain = msgspec.json.decode(state)
    for changed in ({**plain, "format": 0}, {**plain, "position": None}, {}, None):
        assert Conversation.restore("s-1", msgspec.json.encode(changed), chat.segments) is None
    other = chat.segments[0].replace(b'"format":1', b'"format":2')
    assert Conversation.restore("s-1", state, [other]) is None


@pytest.mark.parametrize("chosen", [[], [0], [1], [0, 1, 2, 2], [0, 1, 2, 3]])
def test_segments_that_do_not_belong_to_the_state_are_not_used(chosen: list[int]) -> None:
    chat = Chat().say(3 * TURNS)
    state = chat.conversation.dump()
    assert state is not None
    chat.say(TURNS)
    assert Conversation.restore("s-1", state, [chat.segments[number] for number in chosen]) is None
    assert Conversation.restore("s-1", state, chat.segments[:3]) is not None


def test_a_segment_takes_fewer_bytes_than_its_entries() -> None:
    chat = Chat().say(TURNS)
    assert len(chat.segments[0]) < len(msgspec.json.encode(chat.entries)) / 5
