"""Background work survives a kill at every seam of spawn, wake, emit, fire and handover: each starts once, tells once,
and is paid for once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.processes.processes import Processes
from holdfast.agent.triggers.triggers import Triggers
from holdfast.core.metrics import BackgroundUsage
from holdfast.core.state import Session
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam, read_trace
from holdfast.testing.postgres_server import fresh_database
from tests.agent.background.crash_child import background_job
from tests.agent.background.jobs import Job

SHARE = {"sqlite": 6, "postgresql": 20}
"""One in so many seams is tried in the default run; a soak tries all of them."""

AT_ONCE = 4

NAMES = {"before start", "after start", "before effect", "after effect", "before feed", "after feed"}
"""Seams that spawning, waking, emitting and firing have to pass."""


def died_at(seam: Seam, job: Job) -> list[str]:
    """Kill a process there, let another one do the same again, and say what is not as it should be."""
    code = run_process(background_job, job._replace(deadly=seam))
    if code == 0:
        return []  # who is first of two who write at the same time may differ, and with it how often a seam is reached
    assert code == -signal.SIGKILL, f"{seam}: it ended with {code} {job.error}"
    code = run_process(background_job, job._replace(name="second"))
    if code != 0:
        return [f"{seam}: the second process ended with {code} {job.error}"]
    return [f"{seam}: {sentence}" for sentence in asyncio.run(broken(job))]


async def broken(job: Job, *, is_whole: bool = False) -> list[str]:
    """What was promised, and is not so."""
    sentences = []
    async with open_holdfast(job.url, upkeep=Upkeep(on=False)) as hf:
        processes = Processes(hf)
        chat: Session = await hf.session("chat")
        handles = await processes.list(every=True)
        kinds = sorted((each.work, each.status) for each in handles)
        if kinds != [("event", "completed"), ("strategy", "completed"), *[("tool", "completed")] * 3]:
            sentences.append(f"there are {kinds}")
        if chat.metrics.background != BackgroundUsage(1, 10, 5):
            sentences.append(f"the session has paid for {chat.metrics.background}")
        schedules = [row.session_id for row in await hf.store.all_sessions() if ":clock" in row.session_id]
        if is_whole and len(schedules) != 2:  # else its time may have come before it had looked at the clock at all
            sentences.append(f"the schedule was not handed over: {schedules}")
        history = await Triggers(hf, processes).history("clock")
        if [run.did for run in history] != ["started"]:
            sentences.append(f"the schedule has {history}")
        if list(agent_fold(chat).inbox.accepted) != ["wake-p-spawned"]:
            sentences.append(f"the session was woken by {list(agent_fold(chat).inbox.accepted)}")
    keys: dict[str, set[str]] = defaultdict(set)
    for line in job.ledger.read_text().splitlines():
        keys[json.loads(line)["what"]].add(json.loads(line)["key"])
    if {what: len(known) for what, known in keys.items()} != {"spawned": 1, "emitted": 1, "fired": 1}:
        sentences.append(f"the tool was run for {dict(keys)}")
    return sentences


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_background_work_survives_a_kill_at_every_seam(
    request: pytest.FixtureRequest, store: str, tmp_path: Path
) -> None:
    server: str = request.getfixturevalue("server") if store == "postgresql" else ""

    def make(name: str) -> Job:
        (tmp_path / name).mkdir()
        url = fresh_database(server) if server else f"sqlite:///{tmp_path / name}/sessions.db"
        return Job(url, tmp_path / name)

    traced = make("traced")
    assert run_process(background_job, traced) == 0, traced.error
    assert asyncio.run(broken(traced, is_whole=True)) == []
    seams = [seam for seam in read_trace(traced.trace) if not seam.name.endswith(" renew")]
    assert {seam.name for seam in seams} >= NAMES
    if "HOLDFAST_SOAK" not in os.environ:
        seams = seams[:: SHARE[store]]

    def die(seam: Seam) -> list[str]:
        return died_at(seam, make("-".join((*seam.name.split(), str(seam.number)))))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [sentence for sentences in pool.map(die, seams) for sentence in sentences] == []
