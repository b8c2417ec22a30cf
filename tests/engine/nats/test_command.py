"""`holdfast worker --dispatch nats://…` and `holdfast dispatch status`, as an operator uses them; and what they say."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.group import cli
from holdfast.core.errors import ExitCode
from holdfast.engine.dispatch import DispatchError
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.nats.connection import NatsConnection, stream_config
from holdfast.engine.nats.report import check_queue
from holdfast.engine.nats.settings import NatsSettings
from holdfast.testing.patience import HANG_S, soon, until
from tests.engine.dispatchers.commands import MODULE, worker_command
from tests.engine.dispatchers.steps import steps
from tests.engine.helpers import quiet
from tests.engine.nats.fleet import NatsFleet
from tests.engine.nats.server import nats_server


async def status(fleet: NatsFleet, *more: str) -> str:
    words = ["dispatch", "status", "--dispatch", fleet.dispatch, *more]
    result = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert result.exit_code == 0, result.output
    return result.output


async def waiting(fleet: NatsFleet) -> int:
    return sum(each.waiting for each in (await fleet.report()).consumers)


async def test_a_worker_that_drains_ends_what_it_has_and_leaves_the_rest(fleet: NatsFleet) -> None:
    async with fleet.front() as front:
        with worker_command(fleet) as old:
            await until(lambda: waiting(fleet))
            await front.start(steps, id="s", ctx={"count": 1, "ms": 2_000}, wait=0)
            await until(lambda: _is_held(front, "s"))
            with worker_command(fleet) as new:
                await until(lambda: _has_waiting(fleet, 2))
                old.send_signal(signal.SIGTERM)
                await until(lambda: _has_waiting(fleet, 1))
                await front.start(steps, id="after", ctx={"count": 3}, wait=0)
                assert await soon(front.result("after")) == [new.pid] * 3
                assert await asyncio.to_thread(old.wait, HANG_S) == ExitCode.OK
                assert await soon(front.result("s")) == [old.pid]
                await until(fleet.is_done)


async def _has_waiting(fleet: NatsFleet, count: int) -> bool:
    return await waiting(fleet) == count


async def _is_held(front: Holdfast, session_id: str) -> bool:
    return (await front.store.session(session_id)).owner is not None


async def test_status_tells_how_the_queue_is(fleet: NatsFleet) -> None:
    assert json.loads(await status(fleet, "--json"))["stream"] is None
    assert "There is no queue yet" in await status(fleet)
    async with fleet.front() as front:
        await front.start(steps, id="s", wait=0)
        await until(lambda: _has_messages(fleet, 1))
        assert "No worker has come yet" in await status(fleet)
    await fleet.worker()
    await fleet.until_served()
    found: dict[str, Any] = json.loads(await status(fleet, "--json"))
    assert found["service"] == fleet.name
    assert found["stream"] == f"holdfast-{fleet.name}"
    assert found["has_schedules"]
    assert found["scheduled"] == 0
    (workers,) = found["consumers"]
    assert workers.keys() == {"name", "pending", "taken", "redelivered", "waiting"}
    assert workers["waiting"] == 1
    assert "WORKERS WAITING" in await status(fleet)


async def _has_messages(fleet: NatsFleet, count: int) -> bool:
    return (await fleet.report()).messages == count


async def test_a_worker_says_why_a_server_is_of_no_use(fleet: NatsFleet, nats_program: Path, tmp_path: Path) -> None:
    more = 'authorization { user: "ann", password: "s3cret" }'
    with nats_server(nats_program, tmp_path / "nats", more) as server:
        with pytest.raises(DispatchError, match=r"refuses these credentials.*nats://USER:PASSWORD"):
            await check_queue(NatsSettings.parse(f"nats://{server.address}"))
        with pytest.raises(DispatchError, match=r"refuses these credentials") as raised:
            await check_queue(NatsSettings.parse(f"nats://ann:wr0ng@{server.address}"))
        assert "wr0ng" not in str(raised.value)
        with pytest.raises(DispatchError, match=r"no JetStream for this account.*nats-server -js"):
            await check_queue(NatsSettings.parse(f"nats://ann:s3cret@{server.address}"))
        words = ["worker", "--store", fleet.url, "--dispatch", f"nats://{server.address}", "--serve", f"{MODULE}:steps"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert "refuses these credentials" in result.output


async def test_a_stream_of_somebody_elses_is_left_alone(fleet: NatsFleet) -> None:
    connection = await NatsConnection.open(fleet.settings)
    await connection.jetstream.delete_stream(fleet.settings.stream)
    await connection.jetstream.add_stream(stream_config(fleet.settings).evolve(subjects=["other.>"]))
    await connection.close()
    with pytest.raises(DispatchError, match="is not as a fleet needs it"):
        await check_queue(fleet.settings)


async def test_a_user_who_may_not_use_the_queue_is_told_what_to_allow(nats_program: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    more = f'''
jetstream {{ store_dir: "{data}" }}
authorization {{ users: [ {{ user: "ann", password: "x", permissions: {{ publish: "nothing", subscribe: ">" }} }} ] }}
'''
    with nats_server(nats_program, tmp_path / "nats", more) as server:
        settings = NatsSettings.parse(f"nats://ann:x@{server.address}")
        with pytest.raises(DispatchError, match=r"does not permit what a fleet needs.*allow this user"):
            await check_queue(settings)


async def test_a_process_opens_and_accepts_work_though_the_credentials_are_refused(
    fleet: NatsFleet, nats_program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with nats_server(nats_program, tmp_path / "nats", 'authorization { user: "ann", password: "s3cret" }') as server:
        async with quiet(fleet.url, dispatch=f"nats://{server.address}") as front:
            await soon(front.start(steps, id="s", wait=0))
            await until(lambda: "refuses these credentials" in caplog.text)
            (trouble,) = [each for each in front.engine.owner.supervisor.troubles() if "connected" in each.name]
            assert "refuses these credentials" in trouble.error
