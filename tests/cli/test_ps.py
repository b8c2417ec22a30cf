"""`ps`, `kill` and `logs`: background processes from the command line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.agent.processes.processes import Processes
from holdfast.agent.processes.terms import OutsideWork
from holdfast.engine.holdfast import open_holdfast
from tests.cli.helpers import Home


def outside_jobs(home: Home, *ids: str) -> None:
    async def start() -> None:
        async with open_holdfast(home.url) as hf:
            for process in ids:
                work = OutsideWork(about="build")
                await Processes(hf).start(work, recovery="external", id=process, label=f"job {process}")

    asyncio.run(start())


def lines(home: Home, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.ok(*args, "--json").splitlines()]


def test_processes_are_listed_ended_and_shown(home: Home) -> None:
    outside_jobs(home, "p-1", "p-2")
    listed = home.call("ps").stdout
    assert "p-1" in listed
    assert "waiting" in listed
    assert [line["id"] for line in lines(home, "ps")] == ["p-2", "p-1"]
    ended = home.call("kill", "p-1", "--reason", "too late")
    assert (ended.exit_code, ended.stdout.strip()) == (0, "p-1 is cancelled")
    assert home.call("kill", "p-1").exit_code == 4
    assert [line["id"] for line in lines(home, "ps")] == ["p-2"]
    assert {line["id"]: line["status"] for line in lines(home, "ps", "--all")} == {
        "p-1": "cancelled",
        "p-2": "waiting",
    }
    given_up = home.call("kill", "p-2", "--abandon")
    assert given_up.stdout.strip() == "p-2 is abandoned"
    assert "No processes are at work" in home.ok("ps")
    logs = home.call("logs", "p-1")
    assert "too late" in logs.stdout
    assert "job p-1" in logs.stdout


def test_sessions_of_another_kind_are_no_processes(home: Home) -> None:
    session = home.start("greet")
    refused = home.call("kill", session)
    assert refused.exit_code == 4
    assert "is not a process" in refused.stderr


def test_a_process_that_is_not_there_is_said_to_be_none(home: Home) -> None:
    outside_jobs(home, "p-1")
    for command in ("kill", "logs"):
        missing = home.call(command, "p-9")
        assert missing.exit_code == 3
        assert "there is no process 'p-9'; `holdfast ps --all` lists them" in missing.stderr
