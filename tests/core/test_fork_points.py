"""Where a session can be forked: which places are sound, what they are called, and which ones are near."""

from __future__ import annotations

import msgspec

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import TextBlock, ToolUseBlock
from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.agent.machine.records import EnqueuedRecord, TurnRecord
from holdfast.agent.machine.turn import RecordedReply, StoppedOutcome
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.core.fork_points import ForkPoints, fork_points
from holdfast.core.queries import Failure, Value
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    Fork,
    LoggedRecord,
    PausedRecord,
    Program,
    StartedRecord,
    StatRecord,
)
from holdfast.core.state import Session
from tests.core.helpers import Journal, llm, started


def sound(journal: Journal) -> list[int]:
    """For each position, the sound place that a fork there is made at."""
    found = ForkPoints(journal.session.id)
    places = []
    for entry in journal.entries:
        found.apply(entry)
        places.append(found.sound)
    return places


def points(journal: Journal) -> list[tuple[int, str, str]]:
    return [(each.position, each.kind, each.id) for each in fork_points("s-1", journal.entries).points]


def test_between_notes_and_what_they_lead_to_the_place_before_the_notes_is_taken() -> None:
    journal = started().write(LoggedRecord(message="a"), StatRecord(key="k", value=1)).ask(llm())
    journal.answer("q-0").write(LoggedRecord(message="b")).complete()
    assert sound(journal) == [1, 1, 1, 4, 5, 5, 7]


def test_what_others_write_while_the_program_runs_is_no_note_of_it() -> None:
    journal = started().ask(llm(), llm(), wake="first").answer("q-0").answer("q-1")
    journal.write(LoggedRecord(message="a")).complete()
    assert sound(journal) == [1, 2, 3, 4, 4, 6]


def test_after_an_end_nothing_is_in_the_middle_of_anything() -> None:
    journal = started().write(LoggedRecord(message="a")).cancel("enough")
    assert sound(journal) == [1, 1, 3]


def test_every_pause_has_a_place_before_it_for_each_of_its_queries() -> None:
    journal = started().write(LoggedRecord(message="a")).ask(llm("one"), llm("two")).answer("q-0").answer("q-1")
    journal.ask(llm("three"))
    found = fork_points("s-1", journal.entries)
    assert points(journal) == [(1, "start", ""), (1, "pause", "q-0"), (5, "pause", "q-2")]
    assert [found.position("pause", f"q-{number}") for number in range(4)] == [1, 1, 5, None]
    assert [point.text for point in found.points] == ["demo", "one; two", "three"]


def test_the_nearest_ids_are_named() -> None:
    journal = started()
    for number in range(9):
        journal.ask(llm(f"{number}?")).answer(f"q-{number}")
    found = fork_points("s-1", journal.entries)
    assert found.near("pause", "q-20") == ["q-5", "q-6", "q-7", "q-8"]
    assert found.near("pause", "q-3x", most=3) == ["q-2", "q-3", "q-4"]
    assert found.near("pause", "nonsense", most=2) == ["q-7", "q-8"]
    assert found.near("turn", "t-1") == []


def chat() -> Journal:
    """A chat: a turn with two calls, and one that was stopped."""
    journal = Journal().write(StartedRecord(program=Program("agent", "chat"), ctx={"policy": {}}))
    calls = [ToolUseBlock("c-0", "look", {}), ToolUseBlock("c-1", "look", {})]

    def said(query: str, value: object) -> AnsweredRecord:
        return AnsweredRecord(query_id=query, answer=Value(value=msgspec.to_builtins(value)))

    journal.write(PausedRecord(queries=[InputQuery(id="q-0")]))  # 2
    journal.write(said("q-0", TurnInput(turn="t-1", content=[TextBlock("hello")])))  # 3
    journal.write(PausedRecord(queries=[ReplyQuery(id="q-1", iteration=1)]))  # 4
    journal.write(AttemptedRecord(query_id="q-1", driver="llm"))  # 5
    journal.write(said("q-1", RecordedReply(content=[TextBlock("see"), *calls], stop="tool_use")))  # 6
    journal.write(PausedRecord(queries=[CallQuery(id=f"q-{2 + n}", name="look", call_id=f"c-{n}") for n in (0, 1)]))
    journal.write(said("q-3", "second"), said("q-2", "first"))  # 8, 9
    journal.write(PausedRecord(queries=[ReplyQuery(id="q-4", iteration=2)]))  # 10
    journal.write(said("q-4", RecordedReply(content=[TextBlock("done")])))  # 11
    journal.write(PausedRecord(queries=[InputQuery(id="q-5")]))  # 12
    journal.write(said("q-5", TurnInput(turn="t-2", content=[TextBlock("more")])))  # 13
    journal.write(PausedRecord(queries=[ReplyQuery(id="q-6", iteration=1)]))  # 14
    journal.write(AnsweredRecord(query_id="q-6", answer=Failure("down")))  # 15
    journal.write(TurnRecord(outcome=StoppedOutcome("max_turns", "enough")))  # 16
    return journal.write(PausedRecord(queries=[InputQuery(id="q-7")]))  # 17


def test_a_turn_is_forked_before_its_input_and_a_message_of_the_user_too() -> None:
    found = fork_points("s-1", chat().entries)
    assert [found.position("turn", turn) for turn in ("t-1", "t-2")] == [2, 12]
    assert [found.position("node", node) for node in ("n-3", "n-13")] == [2, 12]


def test_what_a_model_said_is_forked_after_it() -> None:
    found = fork_points("s-1", chat().entries)
    assert [found.position("node", node) for node in ("n-6", "n-11")] == [6, 11]


def test_results_of_tools_are_forked_once_all_of_them_are_part_of_the_conversation() -> None:
    found = fork_points("s-1", chat().entries)
    assert [found.position("node", node) for node in ("n-8", "n-9")] == [9, 9]


def test_a_remark_of_the_runtime_is_forked_where_the_agent_waits_again() -> None:
    found = fork_points("s-1", chat().entries)
    assert found.position("node", "n-16") == 17


def test_what_was_said_as_the_session_ended_is_forked_before_the_end() -> None:
    journal = Journal().write(*[entry.record for entry in chat().entries[:8]]).cancel("enough")
    found = fork_points("s-1", journal.entries)
    assert found.position("node", "n-8") == 8
    assert found.position("node", "n-9.0") == 8


def test_points_say_what_is_asked_or_said_there() -> None:
    texts = {each.id: each.text for each in fork_points("s-1", chat().entries).points}
    assert texts["t-1"] == "hello"
    assert texts["n-6"] == "assistant: see calls look {} calls look {}"
    assert texts["n-9"] == "tool: first"
    assert texts["q-4"] == "the model, call 2 of the turn"


# --- what a fork leaves behind ---------------------------------------------------------------------


def forked(journal: Journal, at: int) -> Session:
    first = journal.entries[0]
    assert isinstance(first.record, StartedRecord)
    record = msgspec.structs.replace(first.record, forked_from=Fork("s-1", at, "s-1"))
    return Session.fold("f", [msgspec.structs.replace(first, record=record), *journal.entries[1:at]])


def test_what_the_source_had_attempted_is_not_attempted_in_the_fork() -> None:
    journal = chat()
    assert Session.fold("s-1", journal.entries[:5]).pending["q-1"].attempts == 1
    assert forked(journal, 5).pending["q-1"].attempts == 0


def test_what_the_fork_attempts_itself_counts() -> None:
    journal = chat()
    session = forked(journal, 5)
    session.apply(msgspec.structs.replace(journal.entries[4], position=6))
    assert session.pending["q-1"].attempts == 1


def test_what_waits_in_the_inbox_of_the_source_was_not_sent_to_the_fork() -> None:
    journal = Journal().write(*[entry.record for entry in chat().entries[:4]])
    journal.write(EnqueuedRecord(item=Item(id="i-1", content=[TextBlock("and this")])))
    assert list(agent_fold(Session.fold("s-1", journal.entries)).inbox.waiting) == ["i-1"]
    assert list(agent_fold(forked(journal, 5)).inbox.waiting) == []
