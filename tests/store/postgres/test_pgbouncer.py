"""Through pgbouncer: in session mode all works as without it; transaction mode is refused with the reason."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.core.decide import WakeMessage
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.patience import soon, until, until_so
from holdfast.testing.sessions import begin
from tests.engine.processes import Process

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed (Debian has a package)")

CONFIGURATION = """
[databases]
* = host={socket} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 60
max_client_conn = 200
logfile = {folder}/log
"""


@contextlib.contextmanager
def pgbouncer(database: str, mode: str) -> Iterator[str]:
    """The URL of a database through a pooler."""
    url = urlsplit(database)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
    folder.chmod(0o777)
    (folder / "users").write_text('"postgres" ""\n')
    options = {"socket": parse_qs(url.query)["host"][0], "port": port, "folder": folder, "mode": mode}
    (folder / "ini").write_text(CONFIGURATION.format(**options))
    assert PGBOUNCER is not None
    user = ["-u", "pgserver"] if os.geteuid() == 0 else []  # who can reach the server's socket
    process = subprocess.Popen([PGBOUNCER, "-q", *user, str(folder / "ini")])
    try:
        until_so(lambda: _answers(port))
        yield f"postgresql://postgres@127.0.0.1:{port}{url.path}"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def session_mode(database: str) -> Iterator[str]:
    with pgbouncer(database, "session") as url:
        yield url


async def test_changes_are_heard_and_written_through_a_pooler_in_session_mode(session_mode: str) -> None:
    async with PostgresStore(session_mode) as one, PostgresStore(session_mode) as other:
        session = await begin(one, "s-1")
        with other.watch("s-1") as changes:
            await asyncio.sleep(0)
            await session.log("hello")
            assert await soon(changes.changed())
        await other.send("s-1", "m-1", WakeMessage(), 1)
        assert len(await one.mailbox("s-1")) == 1


async def test_the_session_of_a_killed_process_is_taken_over_long_before_its_lease_ends(
    session_mode: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Process.on(session_mode, ledger, lease_ms=600_000) as one:
        await one.do("drive", what="work", recovery="safe")
        await one.do("start", program="processes-called", ctx={"ms": 600_000}, id="s-1", wait=0)
        await until(lambda: ledger.exists() and ledger.read_text())
        async with Process.on(session_mode, ledger, lease_ms=600_000) as two:
            await two.do("drive", what="work", recovery="safe")
            await one.kill()
            await until(lambda: f"s-1 q-0 2 {two.pid}" in ledger.read_text())


async def test_a_pooler_that_shares_connections_is_refused_with_the_reason(database: str) -> None:
    with pgbouncer(database, "transaction") as url:
        store = PostgresStore(url)
        with pytest.raises(StoreUnavailableError, match="pool_mode = session") as refused:
            await store.open()
        assert "leases of sessions end with the connection" in str(refused.value)
