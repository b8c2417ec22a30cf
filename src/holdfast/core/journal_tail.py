"""What the last entries of a journal tell without the others: the questions that wait, nearly always."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.pending_queries import PendingQuery
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord
from holdfast.core.summary import Summary


def questions_in(entries: Sequence[Entry], position: int, summary: Summary) -> list[PendingQuery] | None:
    """The queries of a session that wait for a host, if its last entries and its summary tell all of them.

    None if only the whole session tells: something that waits was asked earlier, or waits for somebody else.
    """
    if summary.asks != summary.pending or not entries or entries[-1].position != position:
        return None
    pending: dict[str, PendingQuery] = {}
    for entry in entries:
        match entry.record:
            case PausedRecord(queries=queries, withdrawn=withdrawn):
                for gone in withdrawn:
                    pending.pop(gone, None)
                pending |= {query.id: PendingQuery(query, entry.at) for query in queries}
            case AnsweredRecord(query_id=asked):
                pending.pop(asked, None)
            case _:
                pass
    return list(pending.values()) if len(pending) == summary.pending else None
