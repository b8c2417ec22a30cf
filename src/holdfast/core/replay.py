"""Replay: which answers a program is given at which of its wakings, found in the journal.

`ReplayFold` folds a journal and says when the program continues, and with what. `LazyReplayFold` says the same of a
journal that is replayed, and folds it only as far as the program looks.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.core.folded import decode_folded, encode_folded, folded_session
from holdfast.core.queries import Answer, Failure
from holdfast.core.records import (
    AnsweredRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    PausedRecord,
    RefusedRecord,
    StartedRecord,
)
from holdfast.core.state import PAUSED, Session
from holdfast.core.wake import pause_is_over


class Waking(msgspec.Struct, frozen=True, gc=False):
    """The program continues at `at` with these answers, or with a refusal."""

    at: int
    answers: list[tuple[str, Answer]]
    refusal: Failure | None = None


Outcome: TypeAlias = PausedRecord | RefusedRecord | CompletedRecord | FailedRecord
"""How each step of a program ends."""

OUTCOMES = frozenset((PausedRecord, RefusedRecord, CompletedRecord, FailedRecord))

ENDS = (CompletedRecord, FailedRecord, CancelledRecord, ExpiredRecord)
"""After one of these there is nothing to replay."""


class ReplayFold:
    """A session, and the answers that its program has not been given."""

    def __init__(self, session_id: str) -> None:
        self.session = Session(session_id)
        self.undelivered: list[tuple[str, Answer]] = []

    def dump(self) -> bytes:
        """All that it is, for a checkpoint."""
        return encode_folded(folded_session(self.session, self.undelivered))

    @classmethod
    def restore(cls, session_id: str, state: bytes) -> ReplayFold | None:
        """The fold that `dump` was called on; None if that was another version's, or if it cannot be read."""
        folded = decode_folded(state)
        session = Session.restore(session_id, folded) if folded is not None else None
        if folded is None or session is None:
            return None
        replay = cls(session_id)
        replay.session, replay.undelivered = session, folded.undelivered
        return replay

    def apply(self, entry: Entry) -> Waking | None:
        """Fold one more entry; the waking that follows from it, if one does."""
        is_over = self.session.apply(entry)
        record = entry.record
        if type(record) is AnsweredRecord:
            self.undelivered.append((record.query_id, record.answer))
        elif type(record) is not PausedRecord:
            if type(record) is StartedRecord:
                return Waking(entry.at, [])
            if type(record) is RefusedRecord:
                return Waking(entry.at, [], record.failure)
        if not is_over:
            return None
        answers, self.undelivered = self.undelivered, []
        return Waking(entry.at, answers)


class LazyReplayFold:
    """As `ReplayFold`, for a journal that is there already: it finds the wakings, and folds the session when needed.

    Folding takes as long as the replay itself, and most programs never look at their session. What they would see is
    the same: the session as it was after the last entry that was applied.
    """

    def __init__(self, begun: ReplayFold) -> None:
        """Goes on from where another fold has come to."""
        session = begun.session
        self.session_id = session.id
        self._begun = begun
        self._unfolded: list[Entry] = []
        self._is_paused = session.state is PAUSED
        self._wake = session.wake
        self._pending = set(session.pending)
        self._undelivered = [*begun.undelivered]
        self._has_failure = any(type(answer) is Failure for _, answer in begun.undelivered)

    @property
    def session(self) -> Session:
        """The session as it is at this entry."""
        return self.folded().session

    def folded(self) -> ReplayFold:
        """The fold of everything that was applied."""
        unfolded, self._unfolded = self._unfolded, []
        for entry in unfolded:
            self._begun.apply(entry)
        return self._begun

    def fold_some(self, most: int) -> bool:
        """Fold at most so many of the entries that were applied; True if there are more."""
        some, self._unfolded = self._unfolded[:most], self._unfolded[most:]
        for entry in some:
            self._begun.apply(entry)
        return bool(self._unfolded)

    def apply(self, entry: Entry) -> Waking | None:
        """Go on with one more entry; the waking that follows from it, if one does."""
        self._unfolded.append(entry)
        record, pending, undelivered = entry.record, self._pending, self._undelivered
        if type(record) is AnsweredRecord:
            asked, answer = record.query_id, record.answer
            pending.discard(asked)
            undelivered.append((asked, answer))
            if type(answer) is Failure:
                self._has_failure = True
            if not self._is_paused:
                return None
        elif type(record) is PausedRecord:
            self._is_paused, self._wake = True, record.wake
            for query in record.queries:
                pending.add(query.id)
            if record.withdrawn:
                pending.difference_update(record.withdrawn)
            if not undelivered:
                return None
        elif type(record) is StartedRecord:
            return Waking(entry.at, [])
        else:
            return Waking(entry.at, [], record.failure) if type(record) is RefusedRecord else None
        if pending and not pause_is_over(self._wake, pending, undelivered, self._has_failure):
            return None
        self._undelivered = []
        self._is_paused = self._has_failure = False
        return Waking(entry.at, undelivered)
