"""Holders that die, are cut off and come back. What holds for every store is in `test_contract.py`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseHeldError, StoreUnavailableError
from holdfast.store.limits import DEFAULT_LEASE_MS
from holdfast.store.postgres.presence import DEAD, PostgresPresence
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S, soon
from holdfast.testing.sessions import begin, claim
from tests.store import holder_child
from tests.store.pg_fixtures import database, postgres_url, store
from tests.store.postgres.helpers import connected, end_connections, execute

__all__ = ["database", "postgres_url", "store"]


@asynccontextmanager
async def holder(url: str, prefix: str = "held", count: int = 1) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds sessions; killed at the end."""
    command = (sys.executable, "-m", f"{__package__}.{Path(holder_child.__file__).stem}", url, prefix, str(count))
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await soon(process.stdout.readline()) == b"held\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until(condition: Callable[[], Awaitable[object]]) -> float:
    """Seconds until something has come true."""
    began = time.monotonic()
    async with asyncio.timeout(HANG_S):
        while not await condition():  # noqa: ASYNC110 - nobody tells that somebody has died
            await asyncio.sleep(0.005)
    return time.monotonic() - began


async def lost(store: Store) -> list[str]:
    return [lease.session_id for lease in await store.lost()]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else request.getfixturevalue("database")


# --- death ------------------------------------------------------------------------------------------


async def test_leases_of_a_killed_process_are_lost_within_moments_and_those_of_others_are_not(url: str) -> None:
    async with open_store(url) as here, holder(url, "held", 3) as dies, holder(url, "living") as lives:
        await begin(here, "mine")
        assert await here.lost() == []
        with pytest.raises(LeaseHeldError):
            await claim(here, "held-0", "heir")
        dies.kill()
        took = await until(here.lost)
        print(f"{url.partition(':')[0]}: lost {took * 1000:.0f} ms after the kill")
        assert took < DEFAULT_LEASE_MS / 1000 / 2
        assert await lost(here) == ["held-0", "held-1", "held-2"]
        assert (await claim(here, "held-0", "heir")).epoch == 2
        assert await lost(here) == ["held-1", "held-2"]
        assert (await here.session("living-0")).owner == "living"
        assert (await here.session("mine")).owner == "alice"
        assert lives.returncode is None


async def test_of_many_who_claim_the_sessions_of_a_dead_holder_each_gets_those_it_won(url: str) -> None:
    async with open_store(url) as one, open_store(url) as two:
        async with holder(url, "held", 20):
            pass
        await until(one.lost)
        claims = [claim(side, f"held-{n}", name) for n in range(20) for side, name in ((one, "one"), (two, "two"))]
        results = await asyncio.gather(*claims, return_exceptions=True)
        assert [type(result) for result in results].count(LeaseHeldError) == 20
        assert await lost(one) == []
        assert {(await two.session(f"held-{n}")).epoch for n in range(20)} == {2}


async def test_a_closed_store_lets_go_of_its_leases_and_can_be_opened_again(url: str) -> None:
    async with open_store(url) as here:
        other = open_store(url)
        async with other:
            await begin(other, "s-1")
        assert await lost(here) == ["s-1"]
        async with other:
            await begin(other, "s-2")
            assert await lost(here) == ["s-1"]
        assert await lost(here) == ["s-1", "s-2"]


# --- PostgreSQL -------------------------------------------------------------------------------------


async def test_a_holder_that_was_cut_off_comes_back_with_its_leases(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(database) as other:
        task = await begin(other, "s-1")
        may_return = _kept_away(other, monkeypatch)
        for number in range(2):
            may_return.clear()
            await end_connections(database)
            assert await lost(store) == ["s-1"]
            may_return.set()
            await until(lambda: _none_lost(store))
            row = await store.session("s-1")
            assert (row.owner, row.epoch) == ("alice", task.epoch)
            with pytest.raises(LeaseHeldError):
                await claim(store, "s-1", "bob")
            await task.log(f"still mine after {number}")


def _kept_away(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """A store that is cut off comes back once the event is set."""
    connect, may_return = store._listener._server.connect, asyncio.Event()

    async def connect_later() -> Any:
        await may_return.wait()
        return await connect()

    monkeypatch.setattr(store._listener, "_server", store._listener._server._replace(connect=connect_later))
    return may_return


async def _none_lost(store: Store) -> bool:
    return await store.lost() == []


async def test_a_session_claimed_while_its_holder_was_cut_off_stays_with_its_new_owner(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(database) as other:
        await begin(other, "s-1")
        await begin(other, "s-2")
        may_return = _kept_away(other, monkeypatch)
        await end_connections(database)
        await claim(store, "s-1", "bob")
        may_return.set()
        await until(lambda: _none_lost(store))
        assert [(await store.session(f"s-{n}")).owner for n in (1, 2)] == ["bob", "alice"]


async def test_leases_from_before_a_restart_of_the_server_end_by_time_alone(
    store: PostgresStore, database: str
) -> None:
    async with PostgresStore(database) as other:
        await begin(other, "s-1")
    await execute(database, "update holdfast.sessions set lease_lock = lease_lock - (1::bigint << 32)")
    await execute(database, "update holdfast.holders set lock = lock - (1::bigint << 32)")
    assert await store.lost() == []
    with pytest.raises(LeaseHeldError):
        await claim(store, "s-1", "bob")
    await begin(store, "s-2")
    async with connected(database) as connection:
        assert await connection.fetchval("select count(*) from holdfast.holders") == 1


async def test_a_lease_without_a_lock_ends_by_time_alone(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as other:
        await begin(other, "s-1")
        await execute(database, "update holdfast.sessions set lease_lock = null")
    assert await store.lost() == []
    with pytest.raises(LeaseHeldError):
        await claim(store, "s-1", "bob")


async def test_a_lock_that_the_server_still_gives_to_our_old_connection_is_replaced(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.presence.COME_BACK_S", 0.1)
    presence = PostgresPresence()
    async with connected(database) as old, connected(database) as new:
        await presence.take(old)
        first = presence.lock
        await begin(store, "s-1")
        await execute(database, "update holdfast.sessions set lease_lock = $1", first)
        await presence.take(new)
        assert presence.lock not in (None, first)
        assert {lock for (lock,) in await new.fetch("select lock from holdfast.holders")} >= {first, presence.lock}
        await old.close()
        assert [lock for (lock,) in await store._fetch(DEAD)] == [first]
        assert await store.lost() == [], "a lease ended with the old connection of a holder that lives"


async def test_a_holder_that_comes_back_takes_the_same_lock(store: PostgresStore, database: str) -> None:
    presence = PostgresPresence()
    async with connected(database) as old:
        await presence.take(old)
    first = presence.lock
    async with connected(database) as asker, asker.transaction():
        assert [lock for (lock,) in await asker.fetch(DEAD)] == [first]
        async with connected(database) as new:
            coming = asyncio.create_task(presence.take(new))
            await asyncio.sleep(0.1)
            assert not coming.done(), "it did not wait for who has just found it dead"
            await asker.execute("commit; begin")
            await coming
            assert presence.lock == first
            assert await store._fetch(DEAD) == []


async def test_the_dead_are_forgotten_once_they_hold_nothing(store: PostgresStore, database: str) -> None:
    async def holders() -> Any:
        async with connected(database) as connection:
            return await connection.fetchval("select count(*) from holdfast.holders")

    async with holder(database):
        assert await holders() == 1
    await until(store.lost)
    await store.lost()
    assert await holders() == 1
    await store.release((await store.lost())[0])
    await store.lost()
    assert await holders() == 0


async def test_a_store_that_cannot_show_that_it_lives_still_takes_leases(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> Any:
        raise asyncpg.TooManyConnectionsError("sorry, too many clients already")

    async with PostgresStore(database) as poor:
        monkeypatch.setattr(poor._listener, "_server", poor._listener._server._replace(connect=refuse))
        await begin(poor, "s-1")
        assert (await store.session("s-1")).owner == "alice"
    assert await store.lost() == []
    assert (await store.session("s-1")).owner == "alice"


async def test_closing_waits_for_a_first_lease_that_is_just_being_taken(database: str) -> None:
    for number in range(8):
        async with PostgresStore(database) as brief:
            beginning = asyncio.create_task(begin(brief, f"s-{number}"))
            await asyncio.sleep(number * 0.002)
        await soon(beginning)
    async with PostgresStore(database) as store:
        assert len(await lost(store)) == 8


async def test_a_store_that_is_not_open_takes_no_lock(database: str) -> None:
    closed = PostgresStore(database)
    with pytest.raises(StoreUnavailableError, match="it is not open"):
        await begin(closed, "s-1")
    assert not closed.supervisor.names


# --- SQLite -----------------------------------------------------------------------------------------


async def test_without_a_place_for_the_lock_leases_end_by_time_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Path(f"{path}-holders").mkdir()
    async with SqliteStore(str(path)) as here:
        async with SqliteStore(str(path)) as other:
            await begin(other, "s-1")
        assert await here.lost() == []
        with pytest.raises(LeaseHeldError):
            await claim(here, "s-1", "bob")


@pytest.mark.parametrize("made_anew", [False, True])
async def test_a_file_of_locks_that_was_removed_proves_nothing(tmp_path: Path, made_anew: bool) -> None:
    path = tmp_path / "store.db"
    locks = Path(f"{path}-holders")
    async with SqliteStore(str(path)) as holder:
        await begin(holder, "s-1")
        locks.rename(tmp_path / "elsewhere")
        if made_anew:
            locks.touch()
        async with SqliteStore(str(path)) as here:
            assert await here.lost() == []
            assert (await here.session("s-1")).owner == "alice"


async def test_a_copy_of_the_files_proves_nothing_about_the_holders_of_the_original(tmp_path: Path) -> None:
    original, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with SqliteStore(str(original)) as holder:
        await begin(holder, "s-1")
    for end in ("", "-holders"):
        shutil.copy(f"{original}{end}", f"{copy}{end}")
    async with SqliteStore(str(copy)) as here:
        assert await here.lost() == []


async def test_one_file_under_two_names_has_one_place_for_locks(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    real, link = tmp_path / "data" / "store.db", tmp_path / "link.db"
    async with SqliteStore(str(real)) as holder:
        link.symlink_to(real)
        await begin(holder, "s-1")
        async with SqliteStore(str(link)) as here:
            assert await here.lost() == []
            await begin(here, "s-2")
        assert await lost(holder) == ["s-2"]


async def test_a_store_that_only_looks_leaves_no_file_of_locks(tmp_path: Path) -> None:
    async with SqliteStore(str(tmp_path / "store.db")) as store:
        await begin(store, "s-1", hold_ms=0)
        await store.sessions()
        await store.lost()
        assert not (tmp_path / "store.db-holders").exists()
        await claim(store, "s-1", "alice")
        assert (tmp_path / "store.db-holders").stat().st_size == 0
