"""The crash table of background work: what becomes of a spawn, a wake, an event and a schedule whose process is killed.

`../crash_table.json` has a row for each seam. A seam that is new, or gone, fails the first test until there is a ruling
for it. Each row is executed: a process is killed there, and a fresh one does the same again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.processes.processes import Processes
from holdfast.agent.triggers.triggers import Triggers
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam, read_trace
from holdfast.testing.postgres_server import fresh_database
from tests.agent.background.jobs import Job
from tests.agent.background.table_child import PROCESS, SCENARIOS, SESSION, table_job

TABLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "crash_table.json").read_text())["background"]

SLICE = {"sqlite": 12, "postgresql": 4}
"""Rows that are executed in the default run, as a seed chooses them; `make soak` executes all."""

SEED = int(os.environ.get("HOLDFAST_SEED", "8"))
AT_ONCE = 4

MakeJob = Callable[[str, str], Job]


class Row:
    """A row of the table, for one scenario."""

    def __init__(self, scenario: str, ruled: dict[str, Any], number: int) -> None:
        self.scenario = scenario
        self.part, _, self.contract = scenario.partition("_")
        self.ruled = ruled
        self.seam = Seam(scenario, ruled["seam"], number)

    @property
    def name(self) -> str:
        return "-".join((self.scenario, *self.seam.name.split(), str(self.seam.number)))

    @property
    def expected(self) -> dict[str, Any]:
        own = self.ruled[self.contract] if self.contract else {}
        if "runs" in self.ruled:
            own = {"runs": self.ruled["runs"], "status": "completed"}
        return {**TABLE["end"][self.part], **own}

    def run(self, make: MakeJob) -> list[str]:
        """Kill a process there, let another one do the same again, and compare."""
        job = make(self.scenario, self.name)
        code = run_process(table_job, job._replace(deadly=self.seam))
        assert code == -signal.SIGKILL, f"{self.name}: it ended with {code} {job.error}"
        code = run_process(table_job, job._replace(name="second"))
        if code != 0:
            return [f"{self.name}: the second process ended with {code} {job.error}"]
        found = asyncio.run(came_to(job))
        where = f"{self.name} ({self.ruled['what']})"
        return [] if found == self.expected else [f"{where}: it came to {found}, the table says {self.expected}"]


def rows(scenario: str) -> list[Row]:
    counts: Counter[str] = Counter()
    found = []
    for ruled in TABLE[scenario.partition("_")[0]]:
        counts[ruled["seam"]] += 1
        found.append(Row(scenario, ruled, counts[ruled["seam"]]))
    return found


async def came_to(job: Job) -> dict[str, Any]:
    """What there is after all, in the words of the table."""
    async with open_holdfast(job.url, upkeep=Upkeep(on=False)) as hf:
        processes = Processes(hf)
        handles = await processes.list(every=True)
        found: dict[str, Any] = {"started": len(handles)}
        if job.scenario == "fire":
            history = await Triggers(hf, processes).history("clock")
            assert [(run.did, run.process) for run in history] == [("started", handles[0].id)], history
        if job.scenario in ("emit", "fire"):
            return found
        runs = [json.loads(line) for line in job.ledger.read_text().splitlines()] if job.ledger.exists() else []
        assert len(set(runs)) <= 1, f"the tool was run under several keys: {runs}"
        items = list(agent_fold(await hf.session(SESSION)).inbox.accepted)
        return {**found, "items": len(items), "runs": len(runs), "status": (await processes.show(PROCESS)).status}


def executed(chosen: Sequence[Row], make: MakeJob) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [sentence for broken in pool.map(lambda row: row.run(make), chosen) for sentence in broken]


@pytest.fixture(params=["sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> MakeJob:
    server: str = request.getfixturevalue("server") if request.param == "postgresql" else ""

    def made(scenario: str, name: str) -> Job:
        (tmp_path / name).mkdir()
        url = fresh_database(server) if server else f"sqlite:///{tmp_path / name}/sessions.db"
        return Job(url, tmp_path / name, scenario)

    return made


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_the_table_has_every_seam_in_its_order(make: MakeJob, scenario: str) -> None:
    job = make(scenario, "traced")
    assert run_process(table_job, job) == 0, job.error
    traced = [seam for seam in read_trace(job.trace) if seam.step == scenario and not seam.name.endswith(" renew")]
    assert traced == [row.seam for row in rows(scenario)]


def test_work_killed_at_a_seam_comes_to_what_the_table_says(make: MakeJob, request: pytest.FixtureRequest) -> None:
    every = [row for scenario in SCENARIOS for row in rows(scenario)]
    if "HOLDFAST_SOAK" not in os.environ:
        every = random.Random(SEED).sample(every, SLICE[request.node.callspec.params["make"]])
    assert executed(every, make) == []
