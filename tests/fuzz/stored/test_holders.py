"""Where stores note who is alive, changed behind their backs: nobody who lives loses a lease, and stores still open."""

from __future__ import annotations

import asyncio
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis.strategies as st

from holdfast.store import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin, claim
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.generation import Draw, changed_bytes
from tests.store.pg_fixtures import database, postgres_url
from tests.store.postgres.helpers import connected

__all__ = ["database", "postgres_url"]

HELD, HURT = "held", "hurt"


async def check_held(*stores: Store) -> None:
    """The session that a living store holds is held, as everyone sees it; what was changed is not lost either way."""
    for store in stores:
        assert HELD not in [lease.session_id for lease in await store.lost()]
        assert (await store.session(HELD)).owner == "alice"
        assert {row.session_id for row in (await store.sessions()).rows} == {HELD, HURT}


# --- rows of PostgreSQL --------------------------------------------------------------------------------

ODD_LOCKS = (0, 1, -1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**62 + 7)

Statement: TypeAlias = tuple[str, int]


@st.composite
def statements(draw: Draw) -> list[Statement]:
    """What happens to the rows: one is added, of this server or of none; ours is changed; all are gone; or a lease."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        what = draw(st.sampled_from(["add", "add a dead one", "change", "drop", "lease", "lease of a dead one"]))
        found.append((what, draw(st.sampled_from(ODD_LOCKS))))
    return found


async def apply(connection: Any, started: int, made: list[Statement]) -> None:
    insert = "insert into holdfast.holders values ($1) on conflict do nothing"
    lease = f"update holdfast.sessions set lease_lock = $1, lease_until = 1e15 where id = '{HURT}'"
    for what, number in made:
        dead = started << 32 | number & 0xFFFF_FFFF
        match what:
            case "add":
                await connection.execute(insert, number)
            case "add a dead one":
                await connection.execute(insert, dead)
            case "change":
                await connection.execute("delete from holdfast.holders where lock = $1", number)
                first = "(select min(lock) from holdfast.holders)"
                await connection.execute(f"update holdfast.holders set lock = $1 where lock = {first}", number)
            case "drop":
                await connection.execute("delete from holdfast.holders")
            case "lease":
                await connection.execute(lease, number)
            case _:
                await connection.execute(insert, dead)
                await connection.execute(lease, dead)


def test_changed_holders_of_postgresql_end_no_lease(fuzzer: Fuzzer, database: str) -> None:
    with asyncio.Runner() as runner:
        store, beside = PostgresStore(database), connected(database)
        runner.run(store.open())
        connection = runner.run(beside.__aenter__())
        query = "select extract(epoch from pg_postmaster_start_time())::bigint & 2147483647"
        started = runner.run(connection.fetchval(query))
        runner.run(begin(store, HELD))
        runner.run(begin(store, HURT))
        number = count()
        lock = runner.run(connection.fetchval(f"select lease_lock from holdfast.sessions where id = '{HELD}'"))

        async def check(made: list[Statement]) -> None:
            await connection.execute("delete from holdfast.holders")
            await connection.execute("insert into holdfast.holders values ($1)", lock)
            await apply(connection, started, made)
            async with PostgresStore(database) as other:
                await check_held(store, other)
                new = await begin(other, f"new-{next(number)}")
                await other.delete(new.id, at=1)
            await check_held(store)

        try:
            fuzzer.run(lambda made: runner.run(check(made)), statements(), examples=25)
        finally:
            runner.run(beside.__aexit__(None, None, None))
            runner.run(store.close())


# --- the file beside SQLite's --------------------------------------------------------------------------

Beside: TypeAlias = tuple[str, bytes]


@st.composite
def files(draw: Draw) -> Beside:
    """What lies where the locks are to be: a file with something in it, a folder, or a link that leads nowhere."""
    kind = draw(st.sampled_from(["file", "file", "read-only", "folder", "link", "loop", "none"]))
    return kind, draw(changed_bytes([b"", b"\0" * 100]))


def put(path: Path, kind: str, data: bytes) -> None:
    match kind:
        case "file" | "read-only":
            path.write_bytes(data)
            path.chmod(0o644 if kind == "file" else 0o444)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(path.parent / "nowhere" / "at all")
        case "loop":
            path.symlink_to(path)
        case _:
            pass


def test_what_lies_beside_a_sqlite_file_ends_no_lease(fuzzer: Fuzzer, tmp_path: Path) -> None:
    path = tmp_path / "store" / "s.db"

    async def check(before: Beside, during: Beside) -> None:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        beside = path.with_name("s.db-holders")
        put(beside, *before)
        async with SqliteStore(str(path)) as store:
            await begin(store, HELD)
            await claim(store, (await begin(store, HURT, hold_ms=0)).id, "alice")
            if os.path.lexists(beside) and during[0] != "none":
                shutil.rmtree(beside) if beside.is_dir() and not beside.is_symlink() else beside.unlink()
                put(beside, *during)
            async with SqliteStore(str(path)) as other:
                await check_held(store, other)

    fuzzer.run(lambda both: asyncio.run(check(*both)), st.tuples(files(), files()), examples=40)
