"""Restoring PostgreSQL as it was at a point in time, from a copy made under load and the archived log."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.testing.patience import soon, until
from holdfast.testing.postgres_server import RunningServer, fresh_database, running_server
from tests.engine.helpers import quiet
from tests.store.backups import SERVER_USER, check_restored, load, postgres_tool, run
from tests.store.postgres.helpers import connected

PG_BASEBACKUP, PG_CTL = postgres_tool("pg_basebackup"), postgres_tool("pg_ctl")

pytestmark = pytest.mark.skipif(
    PG_BASEBACKUP is None or PG_CTL is None, reason="pg_basebackup is not installed (Debian: postgresql-client)"
)


@contextmanager
def archiving_server(folder: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A server that copies its log to an archive, and where that is: beside its data, in a folder of its user."""
    with running_server(folder, durable=True) as server:
        (data,) = parse_qs(urlsplit(server.get_uri()).query)["host"]
        archive = Path(data).with_name(Path(data).name + "-archive")
        run("mkdir", str(archive), user=SERVER_USER)
        command = f"test ! -f {archive}/%f && cp %p {archive}/%f"
        server.psql(f"alter system set archive_mode = on; alter system set archive_command = '{command}';")
        server.stop()
        server.start()
        try:
            yield server, archive
        finally:
            shutil.rmtree(archive)


async def archive_all(url: str) -> None:
    """Until what was written so far is in the archive."""
    async with connected(url) as connection:
        segment = await connection.fetchval("select pg_walfile_name(pg_switch_wal())")
        archived = "select coalesce(last_archived_wal >= $1, false) from pg_stat_archiver"
        await until(lambda: connection.fetchval(archived, segment))


@asynccontextmanager
async def restored_server(copy: Path, archive: Path, target: str) -> AsyncIterator[str]:
    """Start a server on a copy, which restores it from the archive as far as the target; the folder of its socket."""
    assert PG_CTL is not None
    data = copy.with_name(copy.name + "-restored")
    run("cp", "-r", "--preserve=mode", str(copy), str(data), user=SERVER_USER)
    (data / ".s.PGSQL.5432.lock").unlink()  # the test server has its socket among its data
    settings = (f"restore_command = 'cp {archive}/%f %p'", target, "recovery_target_action = 'promote'")
    with (data / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{setting}\n" for setting in (*settings, "archive_mode = off"))
    run("touch", str(data / "recovery.signal"), user=SERVER_USER)
    control = (PG_CTL, "-w", "-D", str(data))
    log = data / "restore.log"
    try:
        await asyncio.to_thread(run, *control, "-o", f"-h '' -k {data}", "-l", str(log), "start", user=SERVER_USER)
    except AssertionError as error:
        raise AssertionError(log.read_text()) from error
    try:
        yield str(data)
    finally:
        await asyncio.to_thread(run, *control, "-m", "immediate", "stop", user=SERVER_USER)
        shutil.rmtree(data)


def clients(session_ids: Iterable[str]) -> set[str]:
    """Who has started sessions: each starts the next one when it knows of the last."""
    return {session_id.rpartition("-")[0] for session_id in session_ids}


async def test_a_store_is_restored_as_it_was_before_a_mistake_by_time_and_by_name(tmp_path: Path) -> None:
    assert PG_BASEBACKUP is not None
    with archiving_server(tmp_path) as (server, archive):
        url, copy = fresh_database(server.get_uri()), archive.with_name(archive.name + "-copy")
        async with quiet(url) as hf, load(hf) as acknowledged, connected(url) as connection:
            await until(lambda: len(acknowledged) >= 20)
            command = (PG_BASEBACKUP, "--checkpoint=fast", "-D", str(copy), "-d", server.get_uri())
            await soon(asyncio.to_thread(run, *command, user=SERVER_USER))
            await until(lambda: len(acknowledged) >= 60)
            before = dict(acknowledged)
            named = "select pg_create_restore_point('before-the-mistake')"
            await connection.execute(named)
            time = await connection.fetchval("select clock_timestamp()::text")
            seen = set(acknowledged)
            await until(lambda: clients(acknowledged.keys() - seen) == clients(seen))  # no start is as old as that time
            since = {*acknowledged, *(row.session_id for row in await hf.store.all_sessions())}
            for session_id in list(before)[:5]:
                await hf.delete(session_id)  # the mistake
            await until(lambda: len(acknowledged) >= len(since) + 30)
        after = acknowledged.keys() - since
        assert len(after) > 20
        await archive_all(url)
        try:
            for target in (f"recovery_target_time = '{time}'", "recovery_target_name = 'before-the-mistake'"):
                async with restored_server(copy, archive, target) as socket:
                    there = f"postgresql://postgres@{urlsplit(url).path}?host={socket}"
                    async with connected(there) as connection:
                        await until(lambda connection=connection: is_promoted(connection))  # type: ignore[misc]
                    async with quiet(there) as restored:
                        assert after.isdisjoint(await check_restored(restored, before))
        finally:
            shutil.rmtree(copy)


async def is_promoted(connection: object) -> bool:
    return not await connection.fetchval("select pg_is_in_recovery()")  # type: ignore[attr-defined]
