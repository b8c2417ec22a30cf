"""What upkeep asks of a store every few seconds finds its rows by an index, however many sessions there are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from holdfast.core.state import State
from holdfast.store.postgres import notify, shared_history
from holdfast.store.postgres import upkeep as postgres
from holdfast.store.postgres.presence import DEAD
from holdfast.store.postgres.statements import conditions
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.session_rows import SessionFilter
from holdfast.store.sqlite import overview, sound_sessions, statements, upkeep
from holdfast.store.sqlite.store import SqliteStore
from tests.store.pg_fixtures import database, postgres_url

__all__ = ["database", "postgres_url"]

SQLITE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "lost": (upkeep.LOST, (0, 1)),
    "expired": (upkeep.EXPIRED, (0, 1)),
    "needs": (upkeep.NEEDS, ("default", 1)),
    "services": (upkeep.SERVICES, ()),
    "due": (upkeep.served(upkeep.DUE, ["default"]), (0, 1, "default", 1)),
    "open sessions": (upkeep.served(upkeep.OPEN_SESSIONS, ["default"]), ("run", 1, "default", 1)),
    "mail": (upkeep.served(upkeep.MAIL, ["default"]), ("default", 1)),
    "children": (upkeep.served(upkeep.OPEN_CHILDREN, ["default"]), (1, "default", 1)),
    "ended": (upkeep.served(upkeep.OVER, ["default"]), (1, "default", 1)),
    "changes": (statements.CHANGES, (0, 0, 0)),
    "families": (sound_sessions.JOURNALS.format(ids="?, ?"), ("s", "s.q-0", 1)),
    "checked rows": (sound_sessions.ROWS, (1, 1)),
    "checked forks": (sound_sessions.FORKS, (1, 1)),
    "checked journals": (sound_sessions.OWN_JOURNALS, (1, 1, 1)),
}

TWO = ["default", "other"]
PROCESSES = SessionFilter(program="process", states=[State.RUNNING, State.PAUSED], children=True, services=TWO)
"""What an agent's runtime looks for, among many other children."""

SQLITE_OF_TWO: dict[str, tuple[str, tuple[Any, ...]]] = {
    "due": (upkeep.served(upkeep.DUE, TWO), (-1, 10_000, *TWO, 5)),
    "open sessions": (upkeep.served(upkeep.OPEN_SESSIONS, TWO), ("run", 10_000, *TWO, 5)),
    "mail": (upkeep.served(upkeep.MAIL, TWO), (*TWO, 5)),
    "children": (upkeep.served(upkeep.OPEN_CHILDREN, TWO), (10_000, *TWO, 5)),
    "ended": (upkeep.served(upkeep.OVER, TWO), (10_000, *TWO, 5)),
    "listed": overview.listing(SessionFilter(services=TWO), None, 5),
    "living children of a program": overview.listing(PROCESSES, None, 5),
    "listed by state": overview.listing(SessionFilter(services=TWO, states=[State.PAUSED]), None, 5),
}
"""The same of two services, and listings: SQLite plans those otherwise."""


def _listing(where: SessionFilter) -> tuple[str, tuple[Any, ...]]:
    condition, values = conditions(where, None)
    return f"select id from holdfast.sessions where {condition} order by num desc limit 5", tuple(values)


POSTGRES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dead": (DEAD, ()),
    "lost": (postgres.LOST, ([1], 1)),
    "expired": (postgres.RELEASE_EXPIRED, (1,)),
    "needs": (postgres.NEEDS, ("default", 1)),
    "services": (postgres.SERVICES, ()),
    "due": (postgres.DUE, (1, 1, ["default"], 0)),
    "open sessions": (postgres.OPEN_SESSIONS, ("run", ["default"], 1, 1)),
    "mail": (postgres.MAIL, (["default"], 1)),
    "children": (postgres.OPEN_CHILDREN, (["default"], 1, 1)),
    "ended": (postgres.OVER, (1, ["default"], 1)),
    "changes": (notify._MARKS, (["s"],)),
    "families": (shared_history.READ_MANY, (["s", "s.q-0"], 0, 1)),
    "living children of a program": _listing(PROCESSES),
}


@pytest_asyncio.fixture
async def sqlite_file(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    async with SqliteStore(str(tmp_path / "s.db")):
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.create_function("holder_gone", 1, lambda lock: False)
            yield connection


@pytest.mark.parametrize("name", SQLITE)
def test_no_statement_of_upkeep_scans_a_table_of_sqlite(sqlite_file: sqlite3.Connection, name: str) -> None:
    statement, values = SQLITE[name]
    plan = [row[3] for row in sqlite_file.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert not [line for line in plan if line.startswith("SCAN") and line.split()[1] not in HARMLESS], plan


@pytest.mark.parametrize("name", SQLITE_OF_TWO)
def test_no_statement_about_two_services_reads_many_more_sessions_of_sqlite_than_it_gives(
    sqlite_file: sqlite3.Connection, name: str
) -> None:
    sqlite_file.executescript(SQLITE_MANY)
    statement, values = SQLITE_OF_TWO[name]
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    sqlite_file.set_progress_handler(count, 1)
    found = sqlite_file.execute(statement, values).fetchall()
    assert len(found) == 5
    assert steps < 2_000, [row[3] for row in sqlite_file.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


SQLITE_MANY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 4000)
INSERT INTO sessions (num, id, state, position, epoch, pending, waiting_for, due_at, created_at, updated_at,
                      program_kind, program, parent, service, needs, asks, turns, tokens, cost, title, labels,
                      failure, ended_at)
SELECT n, 's-' || n, CASE WHEN n % 2 THEN 'completed' ELSE 'paused' END, 1, 0, 1, 'timer', n, n, n,
       'native', CASE WHEN n <= 20 THEN 'process' ELSE 'p' END,
       CASE WHEN n <= 10 OR n > 2000 THEN 'parent' END, CASE WHEN n % 3 THEN 'default' ELSE 'other' END, 'run',
       0, 0, 0, 0, '', '', '', CASE WHEN n % 2 THEN n END
  FROM numbers;
INSERT INTO mailbox (session, key, at, digest, body) SELECT num, 'k', 0, '', '{}' FROM sessions WHERE num <= 20;
"""
"""Many sessions of two services, of which a few have a parent or mail."""


HARMLESS = {"held", "gone", "found", "mail", "mailbox", "(subquery", "CONSTANT"}
"""What a statement makes itself, and waiting messages: there are as many of those as there is mail to be taken."""


@pytest_asyncio.fixture
async def planner(database: str) -> AsyncIterator[Any]:
    async with PostgresStore(database):
        connection = await asyncpg.connect(database)
        try:
            await connection.execute("set enable_seqscan = off")
            await connection.execute("set plan_cache_mode = force_generic_plan")
            yield connection
        finally:
            await connection.close()


@pytest.mark.parametrize("name", POSTGRES)
async def test_no_statement_of_upkeep_scans_the_sessions_of_postgres(planner: Any, name: str) -> None:
    statement, values = POSTGRES[name]
    plan = "\n".join(_lines(await _explained(planner, statement, values)))
    assert "Seq Scan on sessions" not in plan, plan
    assert "Seq Scan on mailbox" not in plan, plan
    if name in INDEXES:
        assert INDEXES[name] in plan, plan


INDEXES = {
    "lost": "sessions_held",
    "expired": "sessions_leased",
    "needs": "sessions_open",
    "due": "sessions_due",
    "open sessions": "sessions_open",
    "mail": "mailbox_waiting",
    "children": "sessions_children",
    "ended": "sessions_ended",
    "living children of a program": "sessions_programs",
}


MANY = """
insert into holdfast.sessions (id, state, position, epoch, pending, waiting_for, due_at, created_at, updated_at,
                               program_kind, program, parent, service, needs, asks, turns, tokens, cost, title, labels,
                               failure)
select 's-' || n, case when n % 2 = 0 then 'paused' else 'completed' end, 1, 0, 1, 'timer', n, n, n,
       'native', 'p', 'parent', 'default', 'run', 0, 0, 0, 0, '', '', ''
  from generate_series(1, 4000) as numbers (n)
"""
OF_MANY: dict[str, tuple[Any, ...]] = {
    "due": (10_000, 5, ["default", "other"], -1),
    "open sessions": ("run", ["default", "other"], 10_000, 5),
    "children": (["default", "other"], 10_000, 5),
    "ended": (10_000, ["default", "other"], 5),
}


@pytest.mark.parametrize("name", OF_MANY)
async def test_no_statement_of_upkeep_reads_more_sessions_of_postgres_than_it_gives(planner: Any, name: str) -> None:
    await planner.execute(MANY)
    await planner.execute("analyze holdfast.sessions")
    async with planner.transaction():
        explained = await planner.fetchval(f"explain (analyze, format json) {POSTGRES[name][0]}", *OF_MANY[name])
    (top,) = json.loads(explained)
    assert top["Plan"]["Actual Rows"] == 5
    assert max(_rows(top["Plan"])) <= 10, explained


def _rows(node: dict[str, Any]) -> list[int]:
    """How many rows the nodes of a plan gave or threw away."""
    thrown_away = node.get("Rows Removed by Filter", 0)
    own = [node["Actual Rows"] * node["Actual Loops"], thrown_away]
    return [*own, *(rows for each in node.get("Plans", []) for rows in _rows(each))]


async def _explained(planner: Any, statement: str, values: tuple[Any, ...]) -> list[Any]:
    """The plan of a statement as it is run: prepared, and with one plan for all values."""
    async with planner.transaction():
        types = ", ".join(map(_type, values))
        await planner.execute(f"prepare looked{f' ({types})' if types else ''} as {statement}")
        given = ", ".join(map(_literal, values))
        rows: list[Any] = await planner.fetch(f"explain execute looked{f' ({given})' if given else ''}")
        await planner.execute("deallocate looked")
        return rows


def _type(value: Any) -> str:
    if isinstance(value, list):
        return f"{_type(value[0])}[]"
    return "text" if isinstance(value, str) else "bigint"


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"array[{', '.join(map(_literal, value))}]"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _lines(rows: list[Any]) -> Iterator[str]:
    for (line,) in rows:
        yield line
