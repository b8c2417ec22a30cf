"""What a process knows of the rows of sessions, because it wrote them last."""

from __future__ import annotations

import msgspec

from holdfast.core.summary import Summary

KNOWN_ROWS = 4_096
"""Sessions whose rows are remembered: more than are hot in one process, and a megabyte at most."""


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """The row of a session, as this process wrote it last."""

    num: int
    position: int
    epoch: int
    is_held: bool
    summary: Summary


class KnownRows(dict[str, KnownRow]):
    """The rows that this process knows, by session: the latest `KNOWN_ROWS` of sessions that have not ended.

    Whoever writes to a session takes its row out, which may change meanwhile, and puts back what is known then.
    """

    def put(self, session_id: str, row: KnownRow) -> None:
        if row.summary.state.is_terminal:
            return
        if len(self) >= KNOWN_ROWS:
            del self[next(iter(self))]
        self[session_id] = row
