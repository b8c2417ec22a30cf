"""A fleet that Restate brings work to."""

from __future__ import annotations

from holdfast.testing.patience import soon, until
from tests.engine.dispatchers.laws import FleetLaws
from tests.engine.process_child import called
from tests.engine.restate.fleet import RestateFleet


class TestRestateFleet(FleetLaws):
    """The laws of all dispatchers."""


async def test_the_engine_keeps_nothing_of_a_session_but_its_id(fleet: RestateFleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await front.start(called, id="s", ctx={"ms": 1_000}, wait=0)
        journal = "select j.entry_type from sys_journal j join sys_invocation i on i.id = j.id"
        found = await until(lambda: fleet.servers[0].query(f"{journal} where i.target_service_key = 's'"))
        await soon(front.result("s"))
    assert {row["entry_type"].rpartition(":")[2].strip().lower() for row in found} <= {"input", "output"}
