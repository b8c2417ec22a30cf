"""Processes that are killed while subagents are started, work, and report: each is started once, and told once.

A first run shows every seam that the turn of the root reaches, those of its subagents included. Then a process is
killed at each of them, in the default run at some that a seed chooses, and another one goes on.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from holdfast.agent.machine.turn import MessageOutcome
from holdfast.agent.results import TurnResult
from holdfast.core.records import AnsweredRecord, Entry, StartedRecord
from holdfast.core.state import State
from holdfast.store import open_store
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam
from tests.agent.crash.child import Job
from tests.agent.crash.harness import MakeJob, at_once, find, successor, traced
from tests.agent.crash.services import USAGE, read_ledger
from tests.agent.crash.subagents_child import family_job

SLICE = 8
"""Seams at which a process is killed in the default run."""

SEED = int(os.environ.get("HOLDFAST_SEED", "8"))
ROOT = "family"
CHILDREN = [f"{ROOT}.q-2", f"{ROOT}.q-2.q-2", f"{ROOT}.q-3"]


def ended(job: Job, code: int = 0) -> None:
    found = run_process(family_job, job)
    errors = job.directory / "error"
    assert found == code, f"{job.name} ended with {found} {errors.read_text() if errors.exists() else ''}"


def killed_at(seam: Seam, make: MakeJob) -> list[str]:
    job = make(f"{'-'.join(seam.name.split())}-{seam.number}", {ROOT: "go"})
    ended(replace(job, deadly=[seam]), -signal.SIGKILL)
    ended(successor(job))
    ended(successor(job, "third"))
    return [f"{seam}: {broken}" for broken in broken_laws(job)]


def broken_laws(job: Job) -> Iterator[str]:
    result = find(job)[ROOT].result
    if result.outcome != MessageOutcome() or result.text != "leaf of the middle | leaf of the root":
        yield f"the turn came to {result.outcome}: {result.text}"
    told = [
        msgspec.convert(line["result"], TurnResult) for line in read_ledger(job.directory) if line["what"] == "told"
    ]
    if len(told) < 2 or any(each.text != result.text for each in told):
        yield f"clients were told {told}"
    journals = asyncio.run(_journals(job.url))
    if sorted(journals) != sorted([ROOT, *CHILDREN]):
        yield f"there are the sessions {sorted(journals)}"
    for session, entries in journals.items():
        if sum(isinstance(entry.record, StartedRecord) for entry in entries) != 1:
            yield f"'{session}' was started more than once"
        answered = Counter(entry.record.query_id for entry in entries if isinstance(entry.record, AnsweredRecord))
        if any(count > 1 for count in answered.values()):
            yield f"'{session}' has several answers to one query: {answered}"
    calls = {source: used.calls for source, used in result.report.by_source.items()}
    models = {model: used.calls for model, used in result.report.by_model.items()}
    if calls != {"turn": 2, "subagent": 4} or models != {"m": 2, "m-middle": 2, "m-leaf": 2}:
        yield f"usage is counted as {calls} and {models}"
    if result.usage.total != 6 * ((USAGE.prompt_tokens or 0) + (USAGE.completion_tokens or 0)):
        yield f"usage is {result.usage}"


async def _journals(url: str) -> dict[str, list[Entry]]:
    async with open_store(url) as store:
        rows = (await store.sessions()).rows
        for row in rows:
            if row.session_id != ROOT:
                assert row.summary.state is State.COMPLETED, row
        return {row.session_id: [entry async for entry in store.journal(row.session_id)] for row in rows}


def all_killed(make: MakeJob, most: int | None) -> None:
    whole = make("whole", {ROOT: "go"})
    ended(whole)
    ended(successor(whole, "second"))
    assert list(broken_laws(whole)) == []
    seams = traced(whole)[ROOT]
    seams = seams[next(number for number, seam in enumerate(seams) if seam.name == "after feed") :]
    names = [seam.name for seam in seams]
    assert names.count("model asked") == 6, names
    chosen = seams
    if most is not None:
        # Around each start of a child, always one: the others are drawn.
        sure = [seam for seam in seams if seam.name in ("before start", "after start")][:2]
        rest = [seam for seam in seams if seam not in sure]
        chosen = [*sure, *random.Random(SEED).sample(rest, min(len(rest), most - len(sure)))]
    broken = at_once(lambda seam: killed_at(seam, make), chosen)
    assert not any(broken), "\n".join(sentence for each in broken for sentence in each)


def test_a_process_that_dies_at_any_seam_of_a_delegation_is_gone_on_for(on_sqlite: MakeJob) -> None:
    all_killed(on_sqlite, None if "HOLDFAST_SOAK" in os.environ else SLICE)


def test_the_same_on_postgresql(on_postgres: MakeJob) -> None:
    all_killed(on_postgres, None if "HOLDFAST_SOAK" in os.environ else 3)
