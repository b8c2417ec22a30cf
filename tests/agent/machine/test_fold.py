"""The table of an agent's own records, written out again by hand: in which states of its session each may come."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.policy import PolicyChange
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.records import (
    AGENT_RECORDS,
    BoundRecord,
    CallRecord,
    ConfiguredRecord,
    DequeuedRecord,
    EnqueuedRecord,
    FrameRecord,
    JoinedRecord,
    LeavesRecord,
    SpentRecord,
    StopRecord,
    TurnRecord,
)
from holdfast.agent.machine.turn import MessageOutcome, ToolCallOutcome
from holdfast.agent.machine.turn_input import TurnInput, input_of
from holdfast.core.errors import JournalError, TransitionError
from holdfast.core.queries import Usage, Value
from holdfast.core.records import (
    AnsweredRecord,
    CancelledRecord,
    KindRecord,
    PausedRecord,
    Program,
    StartedRecord,
    type_of,
)
from tests.core.helpers import Journal

LEGAL = {
    "turn": {"running", "paused"},
    "call": {"running", "paused"},
    "frame": {"running", "paused"},
    "leaves": {"running", "paused"},
    "bound": {"running", "paused"},
    "enqueued": {"running", "paused"},
    "dequeued": {"running", "paused"},
    "configured": {"running", "paused"},
    "joined": {"paused"},
    "stop": {"paused"},
    "spent": {"running", "paused"},
}

RECORDS: list[KindRecord] = [
    TurnRecord(outcome=MessageOutcome()),
    CallRecord(call_id="c-1", done=ToolCallOutcome(content="no", is_error=True)),
    FrameRecord(key="f", reason="manual", summary="all of it"),
    LeavesRecord(values={"x": "[1, 2]"}),
    BoundRecord(cell=1, remark="[OUTPUT]"),
    EnqueuedRecord(item=Item(id="i-1", content=[TextBlock("later")])),
    DequeuedRecord(item_id="i-1"),
    ConfiguredRecord(change=PolicyChange(model="big")),
    JoinedRecord(turn="t-1", items=["i-1"]),
    StopRecord(turn="t-1"),
    SpentRecord(process="p-1", usage=Usage(prompt_tokens=1)),
]


def agent_in(state: str) -> Journal:
    journal = Journal()
    journal.write(StartedRecord(program=Program("agent", "agent"), ctx={"policy": {}}))
    if state != "running":
        journal.write(PausedRecord(queries=[InputQuery(id="q-0")]))
    if state == "cancelled":
        journal.write(CancelledRecord())
    assert journal.session.state == state
    return journal


def test_the_table_speaks_of_every_record_of_an_agent() -> None:
    assert {type(record) for record in RECORDS} == set(AGENT_RECORDS)
    assert {type_of(record) for record in RECORDS} == set(LEGAL)


@pytest.mark.parametrize("state", ["running", "paused", "cancelled"])
def test_a_record_leaves_the_state_as_it_is_or_is_refused(state: str) -> None:
    for record in RECORDS:
        journal = agent_in(state)
        position = journal.session.position
        if state in LEGAL[type_of(record)]:
            journal.write(record)
            assert journal.session.state == state, record
            continue
        with pytest.raises(TransitionError if state == "cancelled" else JournalError):
            journal.write(record)
        assert (journal.session.state, journal.session.position) == (state, position), record


def test_an_input_that_is_not_understood_begins_no_turn() -> None:
    journal = agent_in("paused").write(AnsweredRecord(query_id="q-0", answer=Value(value={"turn": "t-1"})))
    assert agent_fold(journal.session).turn is None


def test_a_turn_begins_with_its_input_and_ends_when_the_next_is_asked_for() -> None:
    brought = TurnInput(turn="t-1", content=[TextBlock("hello")])
    journal = agent_in("paused").write(AnsweredRecord(query_id="q-0", answer=brought.to_answer()))
    assert agent_fold(journal.session).turn == "t-1"
    journal.write(PausedRecord(queries=[InputQuery(id="q-1")]))
    assert agent_fold(journal.session).turn is None


def test_an_input_of_plain_text_is_kept_as_its_text() -> None:
    brought = TurnInput(turn="t", content=[TextBlock("Hello")])
    assert brought.to_answer() == Value(value={"turn": "t", "content": "Hello"})
    assert input_of(brought.to_answer()) == brought
