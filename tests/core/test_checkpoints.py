"""A fold that is written down and read back: complete, or not used at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.queries import ChildQuery, Failure, HumanQuery, TimerQuery, ToolQuery, Usage
from holdfast.core.records import AttemptedRecord, Fork, LoggedRecord, ProgressedRecord, StartedRecord, StatRecord
from holdfast.core.replay import ReplayFold
from tests.core.helpers import PROGRAM, Journal, check_checkpoints, llm, started


def dumped(journal: Journal) -> dict[str, Any]:
    fold = ReplayFold(journal.session.id)
    for entry in journal.entries:
        fold.apply(entry)
    plain: dict[str, Any] = msgspec.json.decode(fold.dump())
    return plain


def rich() -> Journal:
    """A journal with something of everything."""
    journal = started().write(LoggedRecord(message="begun"), StatRecord(key="k", value={"a": [1.0, None]}))
    journal.ask(llm("é", system="s"), ToolQuery(name="t"), HumanQuery(prompt="?", timeout_ms=50), wake="all_or_failure")
    journal.write(AttemptedRecord(query_id="q-1", driver="d"), ProgressedRecord(step=1, total=3))
    journal.answer("q-0", {"deep": ["x"]}, Usage(prompt_tokens=5, completion_tokens=7, cost=0.25))
    journal.answer("q-1", Failure("no", "refused"))
    journal.ask(ChildQuery(program="p"), TimerQuery(delay_ms=10), wake="first", withdrawn=["q-2"])
    journal.answer("q-3", "done", Usage(llm_calls=2, prompt_tokens=9, cost=0.5))
    return journal.ask(llm(), llm()).answer("q-6", "late")


def test_a_session_continues_from_a_checkpoint_at_any_position() -> None:
    check_checkpoints(rich().entries)
    check_checkpoints(rich().cancel("enough").entries)


def test_a_fork_continues_from_a_checkpoint_before_and_after_its_own_beginning() -> None:
    journal = Journal()
    journal.write(StartedRecord(program=PROGRAM, forked_from=Fork("s-0", 3, "s-0")))
    journal.ask(llm()).write(AttemptedRecord(query_id="q-0", driver="d"), LoggedRecord(message="its own"))
    check_checkpoints(journal.entries)


def test_no_answer_is_kept_that_the_program_was_given() -> None:
    journal = started()
    for number in range(1000):
        journal.ask(llm()).answer(f"q-{number}", "x" * 100)
    state = msgspec.json.encode(dumped(journal))
    assert b"xx" not in state
    assert len(state) < 4_000


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"format": 999},
        {"kind_format": 7},
        {"state": "asleep"},
        {"position": "many"},
        {"pending": [{"query": {}}]},
    ],
)
def test_what_another_version_wrote_is_not_used(change: dict[str, Any]) -> None:
    assert ReplayFold.restore("s-1", msgspec.json.encode({**dumped(rich()), **change})) is None


@pytest.mark.parametrize("damaged", [b"", b"{}", b"null", b"\x00", b'{"format":1}'])
def test_what_cannot_be_read_is_not_used(damaged: bytes) -> None:
    assert ReplayFold.restore("s-1", damaged) is None
