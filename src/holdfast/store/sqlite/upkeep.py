"""What upkeep asks of a SQLite file. Each statement finds its rows by an index: a test reads their query plans."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.store.commits import Lease
from holdfast.store.sqlite import shared_history as sharing
from holdfast.store.sqlite.schema import ENDED, LIVING
from holdfast.store.sqlite.statements import among, judged_now_ms
from holdfast.store.upkeep import OpenChild, OpenSession

LOST = """
WITH RECURSIVE held (lock) AS (
    SELECT min(lease_lock) FROM sessions WHERE lease_lock IS NOT NULL
    UNION ALL
    SELECT (SELECT min(lease_lock) FROM sessions WHERE lease_lock IS NOT NULL AND lease_lock > held.lock)
      FROM held WHERE held.lock IS NOT NULL
), gone (lock) AS MATERIALIZED (
    SELECT lock FROM held WHERE lock IS NOT NULL AND holder_gone(CAST(lock AS INTEGER))
)
SELECT s.id, s.owner, s.epoch, s.lease_until
  FROM gone CROSS JOIN sessions s ON s.lease_lock IS NOT NULL AND s.lease_lock = gone.lock
 WHERE s.lease_until > ? ORDER BY s.num LIMIT ?
"""
"""Asks once for each holder, and not for each session that it holds."""

EXPIRED = """
SELECT num FROM sessions WHERE lease_until IS NOT NULL AND lease_until <= ? ORDER BY lease_until LIMIT ?
"""
RELEASE = "UPDATE sessions SET owner = NULL, lease_until = NULL, lease_lock = NULL WHERE num = ?"

_OPEN = "owner IS NULL AND needs <> ''"
NEEDS = f"""
WITH RECURSIVE found (needs) AS (
    SELECT min(needs) FROM sessions WHERE {_OPEN} AND service = ?1
    UNION ALL
    SELECT (SELECT min(needs) FROM sessions WHERE {_OPEN} AND service = ?1 AND needs > found.needs)
      FROM found WHERE found.needs IS NOT NULL
)
SELECT needs FROM found WHERE needs IS NOT NULL LIMIT ?2
"""
"""From one to the next, so that all sessions with the same needs cost as much as one of them."""

SERVICES = """
WITH RECURSIVE found (service) AS (
    SELECT min(service) FROM sessions
    UNION ALL
    SELECT (SELECT min(service) FROM sessions WHERE service > found.service) FROM found WHERE found.service IS NOT NULL
)
SELECT service FROM found WHERE service IS NOT NULL
"""
MAIL = """
SELECT s.id, s.position, s.epoch, s.num, mail.last
  FROM (SELECT session, min(number) AS first, max(number) AS last
          FROM mailbox WHERE body IS NOT NULL GROUP BY session) AS mail
 CROSS JOIN sessions s ON s.num = mail.session
 WHERE s.owner IS NULL AND {served} ORDER BY mail.first LIMIT ?
"""
DUE = "SELECT id, due_at FROM sessions WHERE due_at > ? AND due_at <= ? AND {served} ORDER BY due_at, num LIMIT ?"
OPEN_SESSIONS = (
    f"SELECT id, position, epoch, num FROM sessions WHERE {_OPEN} AND needs = ? AND num < ? AND {{served}}"
    " ORDER BY num DESC LIMIT ?"
)
OPEN_CHILDREN = (  # of several services, SQLite would rather look through all sessions that live
    "SELECT id, parent, num FROM sessions INDEXED BY sessions_children"
    f" WHERE parent IS NOT NULL AND {LIVING} AND owner IS NULL AND num < ?"
    " AND {served} ORDER BY num DESC LIMIT ?"
)
OVER = f"SELECT id, num FROM sessions WHERE {ENDED} AND ended_at < ? AND {{served}} ORDER BY ended_at, num LIMIT ?"


def served(statement: str, services: Sequence[str]) -> str:
    """A statement for the sessions of some services."""
    return statement.format(served=among("service", services))


def lost(connection: sqlite3.Connection, limit: int) -> list[Lease]:
    return [Lease(*row) for row in connection.execute(LOST, (judged_now_ms(), limit))]


def expired(connection: sqlite3.Connection, limit: int) -> list[int]:
    """The numbers of sessions whose leases have run out."""
    return [num for (num,) in connection.execute(EXPIRED, (judged_now_ms(), limit))]


def release_expired(connection: sqlite3.Connection, limit: int) -> int:
    nums = expired(connection, limit)
    for num in nums:
        connection.execute(RELEASE, (num,))
    return len(nums)


def due(
    connection: sqlite3.Connection, now: int, limit: int, services: Sequence[str], after: int
) -> list[tuple[str, int]]:
    of = services or _all_services(connection)
    return connection.execute(served(DUE, of), (after, now, *of, limit)).fetchall()


def open_needs(connection: sqlite3.Connection, services: Sequence[str], limit: int) -> list[str]:
    found: set[str] = set()
    for service in services or _all_services(connection):
        found.update(needs for (needs,) in connection.execute(NEEDS, (service, limit)))
    return sorted(found)[:limit]


def open_sessions(
    connection: sqlite3.Connection, needs: str, services: Sequence[str], before: int, limit: int
) -> list[OpenSession]:
    of = services or _all_services(connection)
    return [OpenSession(*row) for row in connection.execute(served(OPEN_SESSIONS, of), (needs, before, *of, limit))]


def open_mail(connection: sqlite3.Connection, services: Sequence[str], limit: int) -> list[OpenSession]:
    of = services or _all_services(connection)
    return [OpenSession(*row) for row in connection.execute(served(MAIL, of), (*of, limit))]


def open_children(connection: sqlite3.Connection, services: Sequence[str], before: int, limit: int) -> list[OpenChild]:
    of = services or _all_services(connection)
    return [OpenChild(*row) for row in connection.execute(served(OPEN_CHILDREN, of), (before, *of, limit))]


def prune(connection: sqlite3.Connection, ended_before: int, limit: int, services: Sequence[str]) -> list[str]:
    of = services or _all_services(connection)
    over = connection.execute(served(OVER, of), (ended_before, *of, limit)).fetchall()
    for session_id, num in over:
        sharing.delete_session(connection, session_id, num, ended_before)
    return [session_id for session_id, _ in over]


class FilePages(NamedTuple):
    """The pages of the file, once the log is copied back."""

    pages: int
    free: int
    page_bytes: int

    @property
    def file_bytes(self) -> int:
        return self.pages * self.page_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that hold something."""
        return (self.pages - self.free) * self.page_bytes

    @property
    def has_spare(self) -> bool:
        """Whether more of the file is free than is soon used again."""
        return self.free > SPARE_PAGES + self.pages // 10


def file_pages(connection: sqlite3.Connection) -> FilePages:
    names = ("page_count", "freelist_count", "page_size")
    return FilePages(*(int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names))


FREED_PAGES = 128
"""Pages given back in one transaction: a few milliseconds."""

SPARE_PAGES = 512
"""Free pages that are kept for what is written next (512 KB), beside a tenth of the file."""


def free_pages(connection: sqlite3.Connection) -> None:
    """Give back some free pages, the last ones of the file."""
    for _ in range(FREED_PAGES):  # the driver steps such a statement once, which frees one page
        connection.execute("PRAGMA incremental_vacuum(1)")


def _all_services(connection: sqlite3.Connection) -> list[str]:
    return [service for (service,) in connection.execute(SERVICES)]
