"""Several hosts: a worker that is cut off from the store stops what it may not finish, and others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.records import AnsweredRecord
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.patience import until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import attempts_at, of_type
from tests.engine.hosts import Hosts, cannot_make_hosts
from tests.engine.processes import Process

WHY_NOT = cannot_make_hosts()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are namespaces")

LEASE_MS = 3_000


async def test_the_work_of_a_host_that_is_cut_off_goes_on_elsewhere_and_is_recorded_once(
    server: str, tmp_path: Path
) -> None:
    database, ledger, hosts = fresh_database(server), tmp_path / "ledger", Hosts(2)
    with hosts.on(database) as url:
        at: list[dict[str, Any]] = [{"before": hosts.command(worker), "lease_ms": LEASE_MS} for worker in range(2)]
        async with Process.on(url, ledger, **at[0]) as cut_off, Process.on(url, ledger, **at[1]) as other:
            for each in (cut_off, other):
                await each.do("drive", what="work", recovery="safe")
            await cut_off.do("start", program="processes-called", ctx={"ms": 0}, id="acknowledged")
            await cut_off.do("start", program="processes-called", ctx={"ms": 2 * LEASE_MS}, id="s-1", wait=0)
            await until(lambda: f"s-1 q-0 1 {cut_off.pid}" in ledger.read_text())
            hosts.cut(0)
            await until(lambda: f"s-1 q-0 2 {other.pid}" in ledger.read_text())
            assert await other.do("result", session="s-1", timeout=600) == f"done by {other.pid}"
            assert str(await other.do("result", session="acknowledged", timeout=600)).startswith("done by")
            hosts.heal(0)
            assert await cut_off.do("result", session="s-1", timeout=600) == f"done by {other.pid}"
            done = await cut_off.do("start", program="processes-called", ctx={"ms": 0}, id="afterwards")
            assert done["status"] == "completed"
    async with PostgresStore(database) as store:
        assert len(await of_type(store, "s-1", AnsweredRecord)) == 1
        assert await attempts_at(store, "s-1") == ["q-0", "q-0"]
