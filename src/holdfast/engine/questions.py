"""Questions: all that waits for a person or a host, over all sessions of a store."""

from __future__ import annotations

import contextlib

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.journal_tail import questions_in
from holdfast.core.needs import host_queries
from holdfast.core.queries import Query
from holdfast.engine.engine import Engine
from holdfast.store.session_rows import SessionFilter, SessionRow

TAIL_ENTRIES = 16
"""Last entries of each session that are read: what waits was nearly always asked in one of them."""


class WaitingQuestion(msgspec.Struct, frozen=True):
    """A query that waits for a person or a host."""

    row: SessionRow
    query: Query
    asked_at: int
    due_at: int | None = None


class QuestionPage(msgspec.Struct, frozen=True):
    """The questions of some sessions, the oldest first, and the cursor of the next page (None on the last one)."""

    questions: list[WaitingQuestion]
    next: str | None


async def waiting_questions(
    engine: Engine, where: SessionFilter, after: str | None, limit: int, kind: str | None = None
) -> QuestionPage:
    """The questions of a page of sessions. Only sessions whose last entries do not tell are read any further."""
    store = engine.owner.store
    page = await store.sessions(msgspec.structs.replace(where, asking=True), after=after, limit=limit)
    tails = await store.last_entries([row.session_id for row in page.rows], TAIL_ENTRIES)
    found: list[WaitingQuestion] = []
    for row in page.rows:
        asked = questions_in(tails.get(row.session_id, ()), row.position, row.summary)
        if asked is None:
            asked = []
            with contextlib.suppress(HoldfastError):  # deleted meanwhile, or damaged, which `doctor` reports
                asked = host_queries(await engine.known(row.session_id))
        found += [
            WaitingQuestion(row, each.query, each.asked_at, each.due_at)
            for each in asked
            if kind is None or each.query.kind == kind
        ]
    return QuestionPage(sorted(found, key=lambda each: each.asked_at), page.next)
