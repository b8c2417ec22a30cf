"""Replay: which answers a program is given at which of its wakings, found in the journal.

`ReplayFold` folds a journal and says when the program continues, and with what. A live session and a replayed one use
the same tracker, so they cannot differ.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.core.folded import decode_folded, encode_folded
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
from holdfast.core.state import Session


class Waking(msgspec.Struct, frozen=True):
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
        self._inbox: list[tuple[str, Answer]] = []

    def dump(self) -> bytes:
        """All that it is, for a checkpoint."""
        return encode_folded(self.session.folded(self._inbox))

    @classmethod
    def restore(cls, session_id: str, state: bytes) -> ReplayFold | None:
        """The fold that `dump` was called on; None if that was another version's, or if it cannot be read."""
        folded = decode_folded(state)
        session = Session.restore(session_id, folded) if folded is not None else None
        if folded is None or session is None:
            return None
        replay = cls(session_id)
        replay.session, replay._inbox = session, folded.undelivered
        return replay

    def apply(self, entry: Entry) -> Waking | None:
        """Fold one more entry; the waking that follows from it, if one does."""
        is_over = self.session.apply(entry)
        record = entry.record
        if type(record) is AnsweredRecord:
            self._inbox.append((record.query_id, record.answer))
        elif type(record) is not PausedRecord:
            if type(record) is StartedRecord:
                return Waking(entry.at, [])
            if type(record) is RefusedRecord:
                return Waking(entry.at, [], record.failure)
        if not is_over:
            return None
        answers, self._inbox = self._inbox, []
        return Waking(entry.at, answers)
