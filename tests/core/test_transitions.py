"""The table of states and records, written out again by hand, and what a refused record leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.decide import CancelMessage, decide_cancel, decide_complete, decide_fail, decide_pause
from holdfast.core.errors import JournalError, TransitionError
from holdfast.core.queries import Failure, LlmQuery, Value
from holdfast.core.records import (
    KERNEL_RECORDS,
    AdoptedRecord,
    AnsweredRecord,
    AssignedRecord,
    AttemptedRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    InterruptedRecord,
    LabelledRecord,
    LoggedRecord,
    PatchedRecord,
    PausedRecord,
    ProgressedRecord,
    Record,
    RefusedRecord,
    StartedRecord,
    StatRecord,
    type_of,
)
from holdfast.core.state import Session, State
from tests.core.helpers import PROGRAM, Journal, in_state, llm, paused, picture, refused, started
from tests.tables import each_row

# Which state follows when a record meets a state in which q-0 is pending and q-2 is the next query to be asked
# (q-1 in PAUSED). A record that is not named under a state is refused there.
FOLLOWING: dict[str, dict[str, str]] = {
    "absent": {"started": "running"},
    "running": {
        "paused": "paused",
        "refused": "running",
        "attempted": "running",
        "interrupted": "running",
        "answered": "running",
        "assigned": "running",
        "labelled": "running",
        "adopted": "running",
        "logged": "running",
        "progressed": "running",
        "stat": "running",
        "patched": "running",
        "completed": "completed",
        "failed": "failed",
        "cancelled": "cancelled",
    },
    "paused": {
        "attempted": "paused",
        "interrupted": "paused",
        "answered": "running",  # q-0 is the only pending query, so its answer wakes the session
        "assigned": "paused",
        "labelled": "paused",
        "adopted": "paused",
        "logged": "paused",
        "progressed": "paused",
        "stat": "paused",
        "cancelled": "cancelled",
        "expired": "expired",
    },
    "imported": {"adopted": "paused", "cancelled": "cancelled"},
    "completed": {},
    "failed": {},
    "cancelled": {},
    "expired": {},
}

EXPECTED: dict[str, str] = {
    "started": "absent",
    "paused": "running",
    "refused": "running",
    "attempted": "running or paused",
    "interrupted": "running or paused",
    "answered": "running or paused",
    "assigned": "running or paused",
    "labelled": "running or paused",
    "adopted": "running or paused or imported",
    "logged": "running or paused",
    "progressed": "running or paused",
    "stat": "running or paused",
    "patched": "running",
    "completed": "running",
    "failed": "running",
    "cancelled": "running or paused or imported",
    "expired": "paused",
}

RECORDS: list[Record] = [
    StartedRecord(program=PROGRAM),
    PausedRecord(queries=[llm(id="q-2")]),
    RefusedRecord(queries=2, failure=Failure("too dear", "budget_exceeded")),
    AttemptedRecord(query_id="q-0", driver="model"),
    InterruptedRecord(query_id="q-0"),
    AnsweredRecord(query_id="q-0", answer=Value(value="ok")),
    AssignedRecord(llm="host"),
    LabelledRecord(title="an export that is empty"),
    AdoptedRecord(),
    LoggedRecord(message="hello"),
    ProgressedRecord(step=1, total=2),
    StatRecord(key="score", value=1),
    PatchedRecord(name="two-drafts"),
    CompletedRecord(result=1),
    FailedRecord(error="boom"),
    CancelledRecord(),
    ExpiredRecord(reason="idle"),
]

CELLS = [(state, record) for state in State for record in RECORDS]


def test_the_table_speaks_of_every_state_and_every_record() -> None:
    assert set(FOLLOWING) == {str(state) for state in State}
    assert {type(record) for record in RECORDS} == {PausedRecord, *KERNEL_RECORDS}
    assert {type_of(record) for record in RECORDS} == set(EXPECTED)


@each_row(("state", "record"), CELLS, ids=lambda cell: cell if isinstance(cell, State) else type_of(cell))
def test_a_record_leads_to_the_state_in_the_table_or_is_refused(state: State, record: Record) -> None:
    journal = in_state(state)
    assert journal.session.state is state
    name = type_of(record)
    if (following := FOLLOWING[state].get(name)) is not None:
        journal.write(record)
        assert journal.session.state == following
        return
    with refused(journal.session, TransitionError) as caught:
        journal.write(record)
    error = caught.value
    assert (error.session_id, error.record, error.expected, error.actual) == ("s-1", name, EXPECTED[name], state)
    told = f"holdfast adopt {journal.session.id}" if state == "imported" else f"expected {EXPECTED[name]}, got {state}"
    assert told in str(error)


@each_row("state", list(State))
def test_a_session_is_terminal_exactly_in_its_four_endings(state: State) -> None:
    assert in_state(state).session.is_terminal == (state in {"completed", "failed", "cancelled", "expired"})


@each_row("state", [state for state in State if state is not State.RUNNING])
def test_only_a_running_program_can_pause_complete_or_fail(state: State) -> None:
    session = in_state(state).session
    for decision in (
        lambda: decide_pause(session, [llm()], 0),
        lambda: decide_complete(session, None),
        lambda: decide_fail(session, "boom"),
    ):
        with refused(session, TransitionError) as caught:
            decision()
        assert (caught.value.expected, caught.value.actual) == ("running", state)


@each_row("state", [State.COMPLETED, State.FAILED, State.EXPIRED])
def test_a_session_that_ended_otherwise_cannot_be_cancelled(state: State) -> None:
    session = in_state(state).session
    with refused(session, TransitionError) as caught:
        decide_cancel(session, CancelMessage())
    assert (caught.value.expected, caught.value.actual) == ("running or paused or imported", state)


def test_cancelling_twice_is_a_replay_of_the_first_time() -> None:
    journal = paused().cancel("enough")
    decision = decide_cancel(journal.session, CancelMessage("another reason"))
    assert decision.is_replay
    assert journal.reply(decision) == {**journal.wire(), "replayed": True}
    assert journal.wire()["reason"] == "enough"


@each_row("position", [-1, 0, 1, 2, 4, 5, 2**63])
def test_only_the_next_position_is_accepted(position: int) -> None:
    journal = paused()
    with refused(journal.session, JournalError) as caught:
        journal.session.apply(Entry(position, journal.now, LoggedRecord(message="hello")))
    assert caught.value.position == position
    assert "expected position 3" in str(caught.value)


def test_a_journal_with_a_gap_cannot_be_folded() -> None:
    entries = paused().answer("q-0").complete().entries
    with pytest.raises(JournalError):
        Session.fold("s-1", [entries[0], *entries[2:]])


def test_a_journal_in_another_order_cannot_be_folded() -> None:
    entries = paused().entries
    with pytest.raises(JournalError):
        Session.fold("s-1", reversed(entries))


@each_row("query_id", ["q-0", "q-2", "", "q-01", "x"])
def test_a_pause_must_number_its_queries_on_from_the_last_one(query_id: str) -> None:
    journal = paused().answer("q-0")
    with refused(journal.session, JournalError):
        journal.write(PausedRecord(queries=[llm(id=query_id)]))


def test_a_pause_cannot_ask_the_same_id_twice() -> None:
    journal = started()
    with refused(journal.session, JournalError):
        journal.write(PausedRecord(queries=[llm(id="q-0"), llm(id="q-0")]))


def test_a_pause_that_waits_for_nothing_is_refused() -> None:
    session = started().session
    with refused(session, JournalError):
        decide_pause(session, [], 0)


def test_a_pause_that_withdraws_all_it_could_wait_for_is_refused() -> None:
    journal = in_state(State.RUNNING)
    with refused(journal.session, JournalError):
        decide_pause(journal.session, [], 0, withdrawn=["q-0"])


@each_row("query_id", ["q-1", "q-7", ""])
def test_only_a_pending_query_can_be_withdrawn(query_id: str) -> None:
    journal = in_state(State.RUNNING)
    with refused(journal.session, JournalError):
        decide_pause(journal.session, [llm()], 0, withdrawn=[query_id])


@each_row(
    "record",
    [AnsweredRecord(query_id="q-1", answer=Value(value="other")), AttemptedRecord(query_id="q-7", driver="model")],
    ids=type_of,
)
def test_a_record_about_a_query_that_is_not_pending_is_refused(record: Record) -> None:
    journal = in_state(State.RUNNING)
    with refused(journal.session, JournalError):
        journal.write(record)


def test_a_record_that_breaks_while_it_is_folded_changes_nothing() -> None:
    journal = in_state(State.RUNNING)
    with refused(journal.session, TypeError):
        journal.write(AnsweredRecord(query_id="q-0", answer=Value(value=object())))


def test_an_attempt_leaves_its_query_pending_and_is_counted() -> None:
    journal = paused().write(AttemptedRecord(query_id="q-0", driver="model"))
    assert journal.session.pending["q-0"].attempts == 1


def test_a_pause_may_say_itself_that_its_queries_are_attempted() -> None:
    journal = started().write(PausedRecord(queries=[llm(id="q-0"), llm(id="q-1")], attempted=True))
    assert [pending.attempts for pending in journal.session.pending.values()] == [1, 1]


def test_a_query_gets_its_id_when_it_is_asked_whatever_it_was_called_before() -> None:
    journal = started().ask(llm(id="q-99"), llm(id="mine"))
    assert list(journal.session.pending) == ["q-0", "q-1"]
    assert all(isinstance(p.query, LlmQuery) and p.query.id == key for key, p in journal.session.pending.items())


def test_a_fold_does_not_touch_another_session() -> None:
    first, second = paused(), Journal()
    before = picture(second.session)
    first.write(StatRecord(key="a", value=1), LoggedRecord(message="hello")).answer("q-0").complete()
    assert picture(second.session) == before


_FOLD_AND_SHOW = """
import json
from tests.core.helpers import picture, paused
print(json.dumps(picture(paused().answer("q-0", {"a": [1]}).complete().session)))
"""


def test_the_same_journal_folds_to_the_same_session_in_any_process() -> None:
    def fold_elsewhere(seed: str) -> Any:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _FOLD_AND_SHOW]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, check=True, cwd=root, env=environment, text=True)
        return json.loads(done.stdout)

    assert fold_elsewhere("1") == fold_elsewhere("2")
