"""What listings ask of a SQLite file, as works of a reader."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry
from holdfast.store.errors import CorruptSessionError
from holdfast.store.filters import cursor_of
from holdfast.store.journal_rows import blobs_of, check_parts, decode_parts
from holdfast.store.limits import TOTALLED_SESSIONS
from holdfast.store.overview import DAY_MS, SessionTotals, Trait, total_of
from holdfast.store.session_rows import SessionFilter, SessionPage
from holdfast.store.sqlite import statements as sql

_TRAITS: dict[Trait, str] = {
    "session": "id",
    "state": "state",
    "waiting_for": "waiting_for",
    "program": "program",
    "service": "service",
    "labels": "labels",
    "day": f"created_at / {DAY_MS}",
    "owner": sql.HOLDER,
}


def listing(where: SessionFilter, before: int | None, limit: int) -> tuple[str, tuple[Any, ...]]:
    """The statement that lists sessions, the newest first, and its parameters."""
    conditions, values = sql.conditions(where, before)
    listed = f"SELECT {sql.ROW}, num FROM {sql.listed_table(where)} WHERE {conditions} ORDER BY num DESC LIMIT ?"
    return listed, (*values, limit)


def listed(connection: sqlite3.Connection, where: SessionFilter, before: int | None, limit: int) -> SessionPage:
    """See `Store.sessions`."""
    rows = connection.execute(*listing(where, before, limit + 1)).fetchall()
    page = SessionPage([], cursor_of(rows[limit - 1][-1]) if len(rows) > limit > 0 else None, [])
    now = sql.judged_now_ms()
    for row in rows[:limit]:
        try:
            page.rows.append(sql.row_of(row[:-1], now))
        except CorruptSessionError as error:
            page.damaged.append(error.session_id)
    return page


def totals(connection: sqlite3.Connection, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals:
    """See `Store.totals`."""
    conditions, values = sql.conditions(where, None)
    keys = [f"k{number}" for number in range(len(by))]
    traits = "".join(f", {_TRAITS[trait]} AS {key}" for trait, key in zip(by, keys, strict=True))
    order = ", ".join(["cost DESC", "tokens DESC", "sessions DESC", *keys])
    rows = connection.execute(
        f"WITH found AS (SELECT asks, tokens, cost{traits} FROM {sql.listed_table(where)} WHERE {conditions}"
        " ORDER BY num DESC LIMIT ?)"
        f" SELECT {''.join(f'{key}, ' for key in keys)}count(*) AS sessions, total(asks) AS asks,"
        " total(tokens) AS tokens, total(cost) AS cost, sum(count(*)) OVER () AS all_sessions FROM found"
        f"{' GROUP BY ' + ', '.join(keys) if keys else ''} ORDER BY {order} LIMIT ?",
        (*values, TOTALLED_SESSIONS + 1, limit),
    ).fetchall()
    is_partial = bool(rows) and rows[0][-1] > TOTALLED_SESSIONS
    return SessionTotals([total_of(by, row) for row in rows if row[len(by)]], is_partial)


def last_entries(connection: sqlite3.Connection, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
    """See `Store.last_entries`."""
    found: dict[str, list[Entry]] = {}
    for session_id in session_ids:
        with contextlib.suppress(HoldfastError, sqlite3.DatabaseError):
            num, head = sql.find(connection, session_id)
            after = max(0, head.position - limit)
            found[session_id] = list(_entries(connection, session_id, num, after, head.position))
    return found


def _entries(connection: sqlite3.Connection, session_id: str, num: int, after: int, last: int) -> Iterator[Entry]:
    rows = sql.read_journal(connection, session_id, num, after, last - after)
    parts = check_parts(session_id, rows, after, last)
    yield from decode_parts(session_id, parts, sql.read_blobs(connection, blobs_of(parts)))
