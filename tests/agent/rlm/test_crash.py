"""A process that dies inside a cell costs nothing: another one goes on there, and no call is made twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.records import AnsweredRecord, AttemptedRecord, PausedRecord
from holdfast.store import open_store
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam, read_trace
from holdfast.testing.postgres_server import fresh_database
from tests.agent.rlm.crash_child import EXPECTED, CellJob, take_turn

AT_ONCE = 3
"""Runs under way at the same time: most of each is waiting for a lease to run out."""

SLICE, POSTGRES_SLICE = 12, 4
"""Places to die at in the default run; `make soak` tries them all."""

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")


def run_whole(job: CellJob) -> list[Seam]:
    """Run a job that nothing kills; gives the places at which it could have died."""
    job.directory.mkdir()
    assert run_process(take_turn, job) == 0
    assert (job.directory / "result").read_text() == repr(EXPECTED)
    return [seam for seam in read_trace(job.trace) if not seam.name.endswith(" renew")]


def broken_laws(job: CellJob, seam: Seam) -> Iterator[str]:
    """Die at a seam and go on in another process; gives what went wrong, in sentences."""
    job.directory.mkdir()
    second = replace(job, name="second")
    code = run_process(take_turn, replace(job, deadly=seam))
    if code not in (-signal.SIGKILL, 0):
        yield f"{seam}: the process ended with {code}"
    answered = asyncio.run(answered_calls(job.url))
    if (code := run_process(take_turn, second)) != 0:
        yield f"{seam}: the process after it ended with {code}"
        return
    if (came_to := (job.directory / "result").read_text()) != repr(EXPECTED):
        yield f"{seam}: it came to {came_to}"
    again = Counter(begun_calls(second))
    if repeated := answered & again.keys():
        yield f"{seam}: {sorted(repeated)} had an answer, and were called again"
    for name, calls in (("first", Counter(begun_calls(job))), ("second", again)):
        if twice := [key for key, count in calls.items() if count > 1]:
            yield f"{seam}: the {name} process called {twice} more than once"
    yield from asyncio.run(asked_again(job.url, seam))


def begun_calls(job: CellJob) -> list[str]:
    """The keys of the calls that a process has begun."""
    return job.ledger.read_text().split() if job.ledger.exists() else []


async def answered_calls(url: str) -> set[str]:
    """The keys of the calls that have an answer."""
    async with open_store(url) as store:
        return {
            f"{row.session_id}/{entry.record.query_id}"
            for row in (await store.sessions()).rows
            for entry in await store.entries(row.session_id)
            if isinstance(entry.record, AnsweredRecord)
        }


async def asked_again(url: str, seam: Seam) -> list[str]:
    """What the journals say about queries that were asked, attempted or answered after they had an answer."""
    broken = []
    async with open_store(url) as store:
        for row in (await store.sessions()).rows:
            answered: set[str] = set()
            for entry in await store.entries(row.session_id):
                match entry.record:
                    case AnsweredRecord(query_id=asked):
                        late = {asked} & answered
                        answered.add(asked)
                    case AttemptedRecord(query_id=asked):
                        late = {asked} & answered
                    case PausedRecord(queries=queries):
                        late = {query.id for query in queries} & answered
                    case _:
                        late = set()
                if late:
                    what = type(entry.record).__name__
                    broken.append(f"{seam}: {row.session_id} has {what} at {entry.position} for {sorted(late)}")
    return broken


def spread(seams: Sequence[Seam], most: int) -> list[Seam]:
    """Some of many seams: the first of each name, and then others, evenly."""
    first = list({seam.name: seam for seam in reversed(seams)}.values())
    others = [seam for seam in seams if seam not in first]
    wanted = max(0, most - len(first))
    return [*first, *(others[len(others) * number // wanted] for number in range(wanted))][:most]


def crash_table(folder: Path, url_of: Callable[[str], str], most: int | None) -> None:
    seams = run_whole(CellJob(url_of("whole"), folder / "whole"))
    chosen = seams if most is None else spread(seams, most)
    jobs = [CellJob(url_of(f"d{number}"), folder / f"d{number}") for number in range(len(chosen))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        broken = list(pool.map(lambda job, seam: list(broken_laws(job, seam)), jobs, chosen))
    assert not any(broken), "\n".join(sentence for each in broken for sentence in each)


def test_death_at_any_place_of_cells_on_sqlite(tmp_path: Path) -> None:
    crash_table(tmp_path, lambda name: f"sqlite:///{tmp_path}/{name}.db", SLICE)


def test_death_at_any_place_of_cells_on_postgresql(server: str, tmp_path: Path) -> None:
    crash_table(tmp_path, lambda name: fresh_database(server), POSTGRES_SLICE)


@soak
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_death_at_every_place_of_cells(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "sqlite":
        crash_table(tmp_path, lambda name: f"sqlite:///{tmp_path}/{name}.db", None)
    else:
        server: str = request.getfixturevalue("server")
        crash_table(tmp_path, lambda name: fresh_database(server), None)
