"""Where a session can be forked, found in its journal: at its start, before a pause, and where its program kind says.

The theory
----------
Any beginning of a journal is a journal, and its program can be rebuilt from it. But what a program does in one step
(notes, then a question or its end) is written at once, and a beginning that ends between the notes and what they lead
to would have the program note the same again. So such places are passed over: between a waking and what follows from
it, a fork is made before the first note. All other places are *sound*.

What a fork asks when it continues follows from where it is made: before a pause the program runs and asks anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

import msgspec

from holdfast.core.kinds import find_kind
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.records import (
    Entry,
    KindRecord,
    LoggedRecord,
    PatchedRecord,
    PausedRecord,
    ProgressedRecord,
    StartedRecord,
    StatRecord,
)
from holdfast.core.replay import OUTCOMES, ReplayFold

_NOTES = (LoggedRecord, ProgressedRecord, StatRecord, PatchedRecord, KindRecord)
"""What a program says beside its questions, written before what it leads to."""


class ForkPoint(msgspec.Struct, frozen=True):
    """A place to fork a session at."""

    position: int
    """The last record that the fork shares."""
    kind: str
    """`start`, `pause`, or a word of the program kind."""
    id: str
    """Of the first query of the pause, or of what the program kind names; empty for the start."""
    text: str
    """The beginning of what is asked or said there."""


class KindForkPoints(Protocol):
    """Finds the fork points that only a program kind knows about."""

    def follow(self, points: ForkPoints, entry: Entry, before: int) -> None:
        """See one more entry, and add its points; `before` is the last sound place before it."""


class ForkPoints:
    """The fork points of one session, as far as its journal was folded."""

    def __init__(self, session_id: str) -> None:
        self.points: list[ForkPoint] = []
        self.sound = 0
        """The last sound place so far."""
        self.before_end = 0
        """The last sound place before the session ended, or so far if it has not."""
        self._tracker = ReplayFold(session_id)
        self._finder: KindForkPoints | None = None
        self._wakes = self._noted = False
        """Whether the program is to continue, and has noted something since."""
        self._positions: dict[str, dict[str, int]] = {"pause": {}}

    @property
    def is_ended(self) -> bool:
        """Whether the session has ended."""
        return self._tracker.session.is_terminal

    def apply(self, entry: Entry) -> None:
        """Fold one more entry."""
        before = self.sound
        self._judge(entry)
        match entry.record:
            case StartedRecord(program=program):
                self.points.append(ForkPoint(entry.position, "start", "", program.name))
                kind = find_kind(program.kind)
                if kind is not None and kind.fork_points is not None:
                    self._finder = kind.fork_points(self._tracker.session.id)
            case PausedRecord(queries=[first, *_] as queries):
                for query in queries:
                    self._positions["pause"][query.id] = before
                self.add(before, "pause", first.id, "; ".join(query.text for query in queries))
            case _:
                pass
        if self._finder is not None:
            self._finder.follow(self, entry, before)

    def add(self, position: int, kind: str, found: str, text: str) -> None:
        """Add a point."""
        self._positions.setdefault(kind, {})[found] = position
        self.points.append(ForkPoint(position, kind, found, " ".join(text.split())[:PROMPT_PREVIEW_CHARS]))

    def position(self, kind: str, wanted: str) -> int | None:
        """The place that an id of this kind stands for, or None if there is no such id."""
        return self._positions.get(kind, {}).get(wanted)

    def near(self, kind: str, wanted: str, most: int = 4) -> list[str]:
        """Ids of this kind: those whose numbers are nearest to the one in `wanted`; else the last ones."""
        known = list(self._positions.get(kind, {}))
        number = _number(wanted)
        if number is None or any(_number(each) is None for each in known):
            return known[-most:]
        nearest = sorted(known, key=lambda each: abs((_number(each) or 0) - number))[:most]
        return sorted(nearest, key=known.index)

    def _judge(self, entry: Entry) -> None:
        """Whether the place after an entry is sound."""
        record = entry.record
        if type(record) in OUTCOMES:
            self._wakes = self._noted = False
        if self._tracker.apply(entry) is not None:
            self._wakes, self._noted = True, False
        elif self._wakes and isinstance(record, _NOTES):
            self._noted = True
        if not self._noted or self.is_ended:
            self.sound = entry.position
        if not self.is_ended:
            self.before_end = self.sound


def fork_points(session_id: str, entries: Iterable[Entry]) -> ForkPoints:
    """The fork points of a journal."""
    found = ForkPoints(session_id)
    for entry in entries:
        found.apply(entry)
    return found


def _number(found: str) -> int | None:
    match = re.match(r"[a-z]-(\d+)", found)
    return int(match[1]) if match else None
