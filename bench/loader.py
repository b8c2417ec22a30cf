"""A loader of large stores: copies of real sessions, written by the store's own bulk means instead of one by one.

    python -m bench.loader sqlite:///big.db chat 1000000

Each copy is a valid session with a journal, a row and checksums of its own, so that anything may be done with it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from holdfast.agent.runtime import Runtime
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.journal_rows import row_checksum
from holdfast.testing.provider import ScriptedProvider

BATCH = 20_000
"""Sessions written in one transaction."""

FAR_S = 30 * 24 * 3600.0
"""Seconds until the timers of loaded sessions fire: not while anything is measured."""

SERVICE = "default"


@strategy(name="load-model")
async def waits_for_model(ctx: Context) -> str:
    """Waits for a model, which its host answers for."""
    return str(await ctx.llm("What is the weather like?"))


@strategy(name="load-tool")
async def waits_for_tool(ctx: Context) -> str:
    """Waits for a tool that only a host has."""
    return str(await ctx.tool("weather", town="Ghent"))


@strategy(name="load-person")
async def waits_for_person(ctx: Context) -> str:
    """Waits for a person."""
    return str(await ctx.ask("May I go on?"))


@strategy(name="load-timer")
async def waits_for_timer(ctx: Context) -> str:
    """Sleeps for a month."""
    await ctx.sleep(FAR_S)
    return "awake"


@strategy(name="load-parent")
async def waits_for_child(ctx: Context) -> str:
    """Waits for a child, which waits for its host."""
    return str(await ctx.child(waits_for_model))


@strategy(name="load-ended")
async def ends(ctx: Context) -> str:
    """Ends at once."""
    return "done"


async def _strategy(url: str, session_id: str, program: Any) -> None:
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as holdfast:
        await holdfast.start(program, id=session_id, llm="host", wait=0)
        await _until_still(holdfast, session_id)


async def _until_still(holdfast: Holdfast, session_id: str) -> None:
    """Wait until nobody holds a session, nor a child that it waits for."""
    store = holdfast.engine.owner.store
    while True:
        rows = await store.all_sessions()
        waits_for_child = any(row.summary.waiting_for == "child" for row in rows if row.session_id == session_id)
        has_child = any(row.summary.parent == session_id for row in rows)
        if has_child >= waits_for_child and all(row.owner is None for row in rows):
            return
        await asyncio.sleep(0.02)


async def _chat(url: str, session_id: str) -> None:
    async with Runtime(url, provider=ScriptedProvider(["Hello."]), model="m") as runtime:
        session = await runtime.session(session_id).open()
        await session.turn("Hello?").run()


MAKERS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "model": lambda url, session_id: _strategy(url, session_id, waits_for_model),
    "tool": lambda url, session_id: _strategy(url, session_id, waits_for_tool),
    "person": lambda url, session_id: _strategy(url, session_id, waits_for_person),
    "timer": lambda url, session_id: _strategy(url, session_id, waits_for_timer),
    "parent": lambda url, session_id: _strategy(url, session_id, waits_for_child),
    "ended": lambda url, session_id: _strategy(url, session_id, ends),
    "chat": _chat,
}
"""How the first session of each kind is made, by the engine."""


async def load(url: str, kind: str, count: int, say: Callable[[int], None] = lambda _: None) -> None:
    """Add `count` sessions of a kind to a store; of parents, each with its child. Says how many are there."""
    first = f"{kind}-0"
    await MAKERS[kind](url, first)
    if url.startswith("sqlite:///"):
        await asyncio.to_thread(_copy_sqlite, url.removeprefix("sqlite:///"), first, count - 1, say)
    else:
        await _copy_postgres(url, first, count - 1, say)


class _Model:
    """A session with its children, to be copied."""

    def __init__(self, first: str, columns: Sequence[str], journal: Sequence[str]) -> None:
        self._first = first
        self._columns = columns
        self._journal = journal
        self._members: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    def add(self, row: Sequence[Any], journal: Sequence[Sequence[Any]]) -> None:
        """A session with its rows of the journal."""
        lines = [dict(zip(self._journal, line, strict=True)) for line in journal]
        self._members.append((dict(zip(self._columns, row, strict=True)), lines))

    def copies(self, count: int, num: int) -> Iterator[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
        """For each copy the rows of its sessions, the first of which has the number after `num`, and of journals."""
        kind = self._first.removesuffix("-0")
        for number in range(1, count + 1):
            name = f"{kind}-{number}"
            sessions: list[tuple[Any, ...]] = []
            lines: list[tuple[Any, ...]] = []
            for row, journal in self._members:
                num += 1
                row["num"], row["id"] = num, row["id"].replace(self._first, name)
                row["parent"] = row["parent"] and row["parent"].replace(self._first, name)
                sessions.append(tuple(row.values()))
                for line in journal:
                    lines.append(self._line(line, row["id"], num, name))
            self._first = name
            yield sessions, lines

    def _line(self, line: dict[str, Any], session_id: str, num: int, name: str) -> tuple[Any, ...]:
        line["session"], line["body"] = num, line["body"].replace(self._first, name)
        head = f"{session_id}/{line['first']}/{line['last']}/{line['at']}/{line['later']}/None/"
        line["checksum"] = row_checksum(head, line["body"].encode())
        return tuple(line.values())


_COLUMNS = (
    *("num", "id", "state", "position", "epoch", "owner", "lease_until", "pending", "waiting_for", "due_at"),
    *("created_at", "updated_at", "program_kind", "program", "parent", "service", "needs"),
    *("asks", "turns", "tokens", "cost", "title", "labels", "forked_from", "failure"),
)
_JOURNAL = ["session", "first", "last", "at", "later", "checksum", "body"]


_PLAIN_INDEXES = """
select c.relname as name, pg_get_indexdef(i.indexrelid) as statement
  from pg_index i join pg_class c on c.oid = i.indexrelid
 where i.indrelid in ('holdfast.sessions'::regclass, 'holdfast.journal'::regclass)
   and not exists (select from pg_constraint where conindid = i.indexrelid)
"""
"""Those that no constraint needs."""


def _copy_sqlite(path: str, first: str, count: int, say: Callable[[int], None]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -400000")
    columns = [*_COLUMNS, "ended_at"]
    model = _Model(first, columns, _JOURNAL)
    picked = f"SELECT {', '.join(columns)} FROM sessions WHERE id = ?1 OR parent = ?1 ORDER BY num"
    for row in connection.execute(picked, (first,)).fetchall():
        lines = connection.execute(f"SELECT {', '.join(_JOURNAL)} FROM journal WHERE session = ?", (row[0],))
        model.add(row, lines.fetchall())
    (num,) = connection.execute("SELECT max(num) FROM sessions").fetchone()
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indexes:  # made of all rows at once they take a fraction of the time
        connection.execute(f"DROP INDEX {name}")
    copies, done = model.copies(count, num), 0
    while batch := list(islice(copies, BATCH)):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            f"INSERT INTO sessions ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            (row for rows, _ in batch for row in rows),
        )
        connection.executemany(
            f"INSERT INTO journal ({', '.join(_JOURNAL)}) VALUES ({', '.join('?' * len(_JOURNAL))})",
            (line for _, lines in batch for line in lines),
        )
        connection.execute("COMMIT")
        done += len(batch)
        say(done)
    for _, statement in indexes:
        connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def _copy_postgres(url: str, first: str, count: int, say: Callable[[int], None]) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        columns = list(_COLUMNS)
        model = _Model(first, columns, _JOURNAL)
        picked = f"select {', '.join(columns)} from holdfast.sessions where id = $1 or parent = $1 order by num"
        for row in await connection.fetch(picked, first):
            lines = await connection.fetch(
                f"select {', '.join(_JOURNAL)} from holdfast.journal where session = $1", row["num"]
            )
            model.add(tuple(row), [tuple(line) for line in lines])
        copies = model.copies(count, await connection.fetchval("select max(num) from holdfast.sessions"))
        await connection.execute("alter table holdfast.sessions disable trigger refuse_deleted_id")
        indexes = await connection.fetch(_PLAIN_INDEXES)
        for index in indexes:  # made of all rows at once they take a fraction of the time
            await connection.execute(f"drop index holdfast.{index['name']}")
        done = 0
        while batch := list(islice(copies, BATCH)):
            for table, names, part in (("sessions", columns, 0), ("journal", _JOURNAL, 1)):
                records = [record for copy in batch for record in copy[part]]
                await connection.copy_records_to_table(table, schema_name="holdfast", columns=names, records=records)
            done += len(batch)
            say(done)
        for index in indexes:
            await connection.execute(index["statement"])
        await connection.execute("alter table holdfast.sessions enable trigger refuse_deleted_id")
        await connection.execute(
            "select setval(pg_get_serial_sequence('holdfast.sessions', 'num'), max(num)) from holdfast.sessions"
        )
        await connection.execute("analyze holdfast.sessions")
        await connection.execute("analyze holdfast.journal")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(load(sys.argv[1], sys.argv[2], int(sys.argv[3])))
