"""Back-ups made while sessions are written: a consistent past state, from which every session goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.testing.patience import soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import quiet, sqlite
from tests.store.backups import check_restored, load, postgres_tool, run

Backup = Callable[[str, str], None]
"""Copies the store behind the first URL to the second, while others write."""


def sqlite_backup(source: str, target: str) -> None:
    paths = [url.removeprefix("sqlite:///") for url in (source, target)]
    run("sqlite3", paths[0], f".backup '{paths[1]}'")


def postgres_backup(source: str, target: str) -> None:
    dump, restore = postgres_tool("pg_dump"), postgres_tool("pg_restore")
    assert dump is not None
    assert restore is not None
    archive = f"{os.environ['HOLDFAST_HOME']}/backup.dump"
    run(dump, "--schema=holdfast", "--format=custom", f"--file={archive}", source)
    run(restore, "--exit-on-error", f"--dbname={target}", archive)


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Backup]:
    if request.param == "sqlite":
        if shutil.which("sqlite3") is None:
            pytest.skip("the command sqlite3 is not installed")
        return sqlite(tmp_path), f"sqlite:///{tmp_path}/restored.db", sqlite_backup
    if postgres_tool("pg_dump") is None:
        pytest.skip("pg_dump is not installed (Debian: postgresql-client)")
    server = request.getfixturevalue("server")
    return fresh_database(server), fresh_database(server, empty=True), postgres_backup


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
        await check_restored(restored, before)
