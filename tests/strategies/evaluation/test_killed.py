"""Evaluations whose processes are killed: nothing recorded is asked again, and the report is as if nothing had been."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.evaluation import Evaluation
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import until_so
from tests.strategies.evaluation.helpers import bench, calls_made, plan, run_evaluation


def run_with_kills(where: Path, count: int, repeat: int, jobs: int, delay_s: float, kills: list[int]) -> None:
    """Run an evaluation to its end, in processes that are killed after so many calls in all."""
    where.mkdir(exist_ok=True)
    for calls in kills:
        process = CrashProcess(run_evaluation, str(where), count, repeat, jobs, delay_s)
        while len(calls_made(where)) < calls and process.exit_code is None:
            time.sleep(0.005)
        assert process.kill() != 0, "it ended before it was killed"
    last = CrashProcess(run_evaluation, str(where), count, repeat, jobs, delay_s)
    until_so(lambda: last.exit_code is not None)
    assert last.wait() == 0
    assert (where / "finished").exists()


async def figures(where: Path) -> dict[str, Any]:
    """The report, without times."""
    report = (await Evaluation("e-1", f"sqlite:///{where / 'eval.db'}").report()).to_json()
    for arm in report["arms"]:
        del arm["own_ms"], arm["waiting_ms"]
    return report


async def check(where: Path, count: int, repeat: int, jobs: int, kills: int) -> None:
    asked = Counter(calls_made(where))
    assert len(asked) == count * repeat
    assert sum(asked.values()) - len(asked) <= kills * jobs, "only what was under way is asked again"
    async with bench(where) as here:
        store = here.runtime.mount.holdfast.store
        trials = await store.all_sessions(SessionFilter(id_prefix="e-1.t-"))
        assert len(trials) == count * repeat
        for row in trials[:50]:
            answers = [
                e.record for e in await store.entries(row.session_id) if type(e.record).__name__ == "AnsweredRecord"
            ]
            assert len(answers) == 1
        await here.evaluate(plan(count, repeat=repeat))
        assert here.calls == 0


async def test_an_evaluation_killed_again_and_again_reports_as_an_unbroken_one(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    run_with_kills(killed, 20, 3, 4, 0.01, [10, 20, 30, 40])
    run_with_kills(whole, 20, 3, 4, 0.0, [])
    await check(killed, 20, 3, 4, 4)
    assert await figures(killed) == await figures(whole)


async def test_a_second_process_goes_on_when_the_first_is_killed(tmp_path: Path) -> None:
    arguments = (str(tmp_path), 20, 2, 4, 0.02)
    first = CrashProcess(run_evaluation, *arguments)
    until_so(lambda: len(calls_made(tmp_path)) >= 5)
    second = CrashProcess(run_evaluation, *arguments)
    until_so(lambda: len(calls_made(tmp_path)) >= 15)
    first.kill()
    assert second.wait() == 0
    asked = Counter(calls_made(tmp_path))
    assert len(asked) == 40
    assert sum(asked.values()) - 40 <= 4, "each trial once, but for those under way"
    assert (await figures(tmp_path))["state"] == "done"


@pytest.mark.soak
@pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="a long run: set HOLDFAST_SOAK=1")
async def test_3000_trials_killed_twice(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    run_with_kills(killed, 1_000, 3, 50, 0.01, [1_000, 2_000])
    run_with_kills(whole, 1_000, 3, 50, 0.0, [])
    await check(killed, 1_000, 3, 50, 2)
    assert await figures(killed) == await figures(whole)
