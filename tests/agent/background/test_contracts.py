"""What becomes of work, by its recovery contract, when the OS process that runs it is killed or loses its store."""

from __future__ import annotations

from pathlib import Path

from holdfast import Runtime
from holdfast.agent.processes.processes import tool_call
from holdfast.engine.drivers import MAX_DEATHS
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import soon, until_so
from holdfast.testing.provider import ScriptedProvider
from tests.agent.background.bound_child import asking_runtime, bound_job, runtime_on, turn_job
from tests.agent.helpers import Home, add


async def test_rerunnable_work_is_resumed_and_bound_work_is_abandoned(shared_home: Home, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    process = CrashProcess(bound_job, shared_home.url, tmp_path)
    until_so(lambda: (tmp_path / "ready").exists() or process.exit_code is not None)
    process.kill()
    assert (tmp_path / "ready").exists()
    (tmp_path / "hold").unlink()
    async with runtime_on(shared_home.url, tmp_path) as runtime:
        processes = runtime.processes
        again = await soon(processes.wait("p-tool-rerunnable"))
        assert (again.status, again.result) == ("completed", "rerunnable")
        given_up = await soon(processes.wait("p-tool-owner_bound"))
        assert given_up.status == "abandoned"
        assert "may or may not have run" in (given_up.error or "")
        run = await soon(processes.wait("p-run-owner_bound"))
        assert run.status == "abandoned"
        await processes.signal("p-run-rerunnable", "go on?", "yes")
        assert (await soon(processes.wait("p-run-rerunnable"))).result == "they said yes"

        assert run.works_in is not None
        assert await soon(_ended(runtime, run.works_in)) == "cancelled"
    assert (tmp_path / "rerunnable").read_text() == "x\nx\n"
    assert (tmp_path / "owner_bound").read_text() == "x\n"


async def test_a_wait_outlives_more_processes_than_may_die_of_a_call(shared_home: Home, tmp_path: Path) -> None:
    for number in range(MAX_DEATHS + 1):
        waits = tmp_path / str(number)
        process = CrashProcess(turn_job, shared_home.url, tmp_path, waits.name)
        until_so(lambda waits=waits, process=process: waits.exists() or process.exit_code is not None)  # type: ignore[misc]
        process.kill()
        assert waits.exists()
    async with asking_runtime(shared_home.url, tmp_path) as runtime, runtime.work():
        await soon(runtime.mount.holdfast.feed("chat", "approve"))
        report = await soon(runtime.processes.wait("p-turn"))
        assert (report.status, report.result) == ("completed", "done")


async def _ended(runtime: object, session_id: str) -> str:
    hf = runtime.mount.holdfast  # type: ignore[attr-defined]
    async for _ in hf.watch(session_id):
        pass
    return str((await hf.store.session(session_id)).summary.state)


class Trouble(SqliteStore):
    """A store that cannot be reached once, when a process looks at itself before its work."""

    is_over = False

    async def position(self, session_id: str) -> int:
        if session_id == "bound" and not self.is_over:
            self.is_over = True
            raise StoreUnavailableError(self.url, "it is away")
        return await super().position(session_id)


async def test_a_store_in_trouble_before_bound_work_is_no_outcome_of_it(tmp_path: Path) -> None:
    store = Trouble(str(tmp_path / "sessions.db"))
    async with Runtime(store, provider=ScriptedProvider(["Yes."], loop=True), tools=[add]) as runtime:
        await runtime.processes.start(tool_call("add", {"a": 2, "b": 40}), recovery="owner_bound", id="bound")
        report = await soon(runtime.processes.wait("bound"))
    assert store.is_over
    assert (report.status, report.result) == ("completed", 42)
