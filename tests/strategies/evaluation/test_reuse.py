"""Trials that another evaluation has run: taken over where they are the same, marked, and asked again by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.strategies.evaluation.errors import EvaluationNotFoundError, PlanError
from holdfast.strategies.evaluation.orders import WorkOrder
from holdfast.strategies.evaluation.report.report import EvaluationReport
from tests.strategies.evaluation.helpers import MODEL, Bench, bench, cases, plan


async def report_of(here: Bench, id: str, **changes: object) -> EvaluationReport:
    return await (await here.evaluate(plan(**changes), id=id)).report()  # type: ignore[arg-type]


async def test_trials_of_the_same_arm_and_input_are_not_run_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        first = await report_of(here, "e-0", count=4, repeat=2)
        assert here.calls == 8
        second = await report_of(here, "e-1", count=6, repeat=2, models=[MODEL, "other:model"], reuse=["e-0"])
        assert here.calls == 8 + 4 + 12, "two cases more, and a model more"
    own, other = second.arms
    assert (own.reused, other.reused, first.arms[0].reused) == (8, 0, 0)
    assert own.score is not None
    assert own.score.mean == 0.5
    assert "8 trials were taken over from e-0" in " ".join(second.notes)


async def test_a_trial_that_was_taken_over_names_the_session_that_ran_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await report_of(here, "e-0", count=2)
        await report_of(here, "e-1", count=2, reuse=["e-0"])
        again = await here.evaluate(plan(2, reuse=["e-1"]), id="e-2")
        trials = [trial async for trial in again.trials()]
        assert here.calls == 2
    assert [trial.session_id for trial in trials] == [f"e-0.t-model@gpt-4o-{case}-0" for case in (0, 1)]
    assert [trial.text for trial in trials] == ["0", "?"]


async def test_another_expectation_changes_the_grade_and_not_the_trial(tmp_path: Path) -> None:
    other = [{**case, "expected": "?"} for case in cases(4)]
    async with bench(tmp_path) as here:
        await report_of(here, "e-0", count=4)
        report = await report_of(here, "e-1", data=other[1:], reuse=["e-0"])
        assert here.calls == 4
    assert report.case_means(report.arms[0].arm) == [1.0, 0.0, 1.0]


async def test_another_option_or_input_is_another_trial(tmp_path: Path) -> None:
    subject = {"strategy": "model", "options": {"max_tokens": 7}}
    async with bench(tmp_path) as here:
        await report_of(here, "e-0", count=2)
        options = await report_of(here, "e-1", count=2, strategies=[subject], reuse=["e-0"])
        inputs = await report_of(here, "e-2", data=[{"id": "c0", "input": "Just say 0"}], reuse=["e-0"])
        assert here.calls == 5
    assert options.arms[0].reused == inputs.arms[0].reused == 0


async def test_what_was_taken_over_costs_nothing_here_and_counts_for_the_arm(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        first = await report_of(here, "e-0", count=4)
        second = await report_of(here, "e-1", count=4, reuse=["e-0"], budget={"max_cost": 1e-9})
    assert second.state == "done"
    assert second.arms[0].cost == first.arms[0].cost
    assert second.arms[0].cost


async def test_a_retry_of_a_trial_that_was_taken_over_runs_here(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await report_of(here, "e-0", count=2)
        await report_of(here, "e-1", count=2, reuse=["e-0"])
        again = await here.evaluate(id="e-1", order=WorkOrder(do="retry", which="failed"))
        sessions = [trial.session_id async for trial in again.trials()]
    assert sessions == ["e-0.t-model@gpt-4o-0-0", "e-1.t-model@gpt-4o-1-0+2"]


async def test_only_an_evaluation_that_exists_and_another_one_can_be_reused(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        with pytest.raises(EvaluationNotFoundError, match="nowhere"):
            await here.evaluate(plan(2, reuse=["nowhere"]))
        with pytest.raises(PlanError, match="the evaluation itself"):
            await here.evaluate(plan(2, reuse=["e-1"]))
        assert here.calls == 0
