"""The trace of a run: what happened, line by line, and how it is shown with all processes side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, AttemptedRecord, InterruptedRecord, PausedRecord, Record, type_of
from holdfast.store.commits import Commit, CommitReceipt

COLUMN = 40
"""Characters of a column: a process and its neighbour fit into a terminal."""


class TraceLine(NamedTuple):
    """One thing that happened."""

    at_s: float
    process: str
    text: str


def commit_text(commit: Commit, receipt: CommitReceipt) -> str:
    """What a commit has written, in a line."""
    what = ", ".join(_record_text(entry.record) for entry in commit.entries) or "nothing"
    held = f", holds it as {receipt.epoch}" if commit.hold_ms else ", lets it go"
    taken = f", takes {len(commit.takes)} messages" if commit.takes else ""
    return f"commits to {commit.session_id}, now at {receipt.position}: {what}{taken}{held}"


def commit_bytes(commit: Commit) -> Iterator[bytes]:
    """The JSON of everything that a commit has written."""
    bodies = commit.bodies or [None] * len(commit.entries)
    for entry, body in zip(commit.entries, bodies, strict=True):
        yield b"%d" % entry.at
        yield body or msgspec.json.encode(entry.record)


def _record_text(record: Record) -> str:
    match record:
        case AnsweredRecord():
            failed = f" with {record.answer.code}" if isinstance(record.answer, Failure) else ""
            return f"answered {record.query_id}{failed}"
        case AttemptedRecord():
            return f"attempted {record.query_id}"
        case InterruptedRecord():
            return f"{'interrupted' if record.was_begun else 'not begun'} {record.query_id}"
        case PausedRecord():
            asked = " ".join(query.id for query in record.queries)
            withdrawn = f" without {' '.join(record.withdrawn)}" if record.withdrawn else ""
            return f"paused {asked}{withdrawn}" + (" attempted" if record.attempted else "")
        case _:
            return type_of(record)


def side_by_side(trace: list[TraceLine], session_id: str = "") -> list[str]:
    """A trace with a column for each process; of what concerns sessions, only the one that is named."""
    names = sorted({line.process for line in trace})
    shown = [line for line in trace if _concerns(line, session_id)]
    rule = "-" * (COLUMN - 2)
    return [
        _row("time", dict(enumerate(names))),
        _row("", dict.fromkeys(range(len(names)), rule)),
        *(
            _row(f"{line.at_s:.4f}" if number == 0 else "", {names.index(line.process): text})
            for line in shown
            for number, text in enumerate(textwrap.wrap(line.text, COLUMN - 2) or [""])
        ),
    ]


def _concerns(line: TraceLine, session_id: str) -> bool:
    """Whether a line is about a session, or about none."""
    is_about_one = any(mark in line.text for mark in ("effect ", "fed ", "commits to ", "queued "))
    return not session_id or not is_about_one or session_id in line.text


def _row(at: str, texts: dict[int, str]) -> str:
    columns = [texts.get(index, "") for index in range(max(texts, default=-1) + 1)]
    return f"{at:>9}  " + "".join(f"{text:<{COLUMN}}" for text in columns).rstrip()
