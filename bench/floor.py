"""Raw floors: what SQLite and PostgreSQL do with the same bytes when nothing of Holdfast stands in between."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import Rate, UnavailableError, texts

ROW_BYTES = 2048
"""Bytes of text in a row, and in a record."""

GROUP_ROWS = 200
"""Rows in one transaction of the group floor: as many as there are appenders in `append-200`."""


WARM_UP_SECONDS = 0.5
"""Seconds of commits between looks at the log: enough to fill a good part of it."""


class SqliteFloor:
    """One connection with SQLite's own defaults, but for WAL and FULL, and a table of one text column."""

    def __init__(self, path: Path) -> None:
        self._rows = itertools.cycle([(text,) for text in texts(ROW_BYTES)])
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)")

    def commit_one(self) -> int:
        self._connection.execute("INSERT INTO rows (body) VALUES (?)", next(self._rows))
        return 1

    def commit_group(self) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO rows (body) VALUES (?)", itertools.islice(self._rows, GROUP_ROWS))
        self._connection.execute("COMMIT")
        return GROUP_ROWS

    async def singles(self, seconds: float) -> float:
        """Commits of one row each per second."""
        return _rate(self.commit_one, seconds)

    async def groups(self, seconds: float) -> float:
        """Rows per second in commits of `GROUP_ROWS`."""
        return _rate(self.commit_group, seconds)

    def close(self) -> None:
        self._connection.close()


async def warm_up(path: Path, rate: Rate) -> None:
    """Commit until the log of a database no longer grows: from then on it is overwritten in place, and syncs faster."""
    log = path.with_name(path.name + "-wal")
    size = -1
    while log.stat().st_size > size:
        size = log.stat().st_size
        await rate(WARM_UP_SECONDS)


def _rate(work: Callable[[], int], seconds: float) -> float:
    done = 0
    began = time.perf_counter()
    until = began + seconds
    while (now := time.perf_counter()) < until:
        done += work()
    return done / (now - began)


class PostgresFloor:
    """Prepared single-row inserts through asyncpg, each its own commit, on several connections at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[Any] = []

    async def open(self, connections: int) -> None:
        driver = asyncpg_module()
        self._connections = [await driver.connect(self._url) for _ in range(connections)]
        if await self._connections[0].fetchval("show fsync") != "on":
            raise UnavailableError("this PostgreSQL server does not wait for its disk, so there is nothing to compare")
        await self._connections[0].execute(
            "create table if not exists public.rows (id bigserial primary key, body text)"
        )

    async def singles(self, seconds: float) -> float:
        """Commits of one row each per second, over all connections."""
        began = time.perf_counter()
        until = began + seconds
        done = await asyncio.gather(*(self._insert(connection, until) for connection in self._connections))
        return sum(done) / (time.perf_counter() - began)

    async def _insert(self, connection: Any, until: float) -> int:
        insert = await connection.prepare("insert into public.rows (body) values ($1)")
        done = 0
        for text in itertools.cycle(texts(ROW_BYTES)):
            if time.perf_counter() >= until:
                break
            await insert.fetch(text)
            done += 1
        return done

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


def asyncpg_module() -> ModuleType:
    """asyncpg, or `UnavailableError`."""
    try:
        import asyncpg
    except ImportError:
        raise UnavailableError("asyncpg is not installed (pip install 'holdfast[postgres]')") from None
    module: ModuleType = asyncpg
    return module
