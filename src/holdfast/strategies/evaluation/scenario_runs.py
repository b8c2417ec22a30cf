"""Evaluations that one Lua session ran with `alc.eval`, as reports: one arm, every case tried once.

Their program is written by whoever starts them; what is read here is only what they recorded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.records import CompletedRecord, Program
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.store.contract import Store
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.data.case import Case, make_case
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.errors import EvaluationNotFoundError
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.report.arm_figures import TrialScore
from holdfast.strategies.evaluation.report.report import EvaluationReport
from holdfast.strategies.evaluation.trials import TrialRow

SCENARIO_RUN = "alc.eval"
"""The name of the program of such sessions."""

_DIGEST_CHARS = 16


class ScenarioRun(msgspec.Struct, frozen=True):
    """What such a session was started with, and what it has returned."""

    session: Session
    strategy: str
    scenario: str
    result: dict[str, Any] | None
    """The report of `alc.eval`; None while it runs, and if it failed."""

    @property
    def results(self) -> list[dict[str, Any]]:
        """The cases that ran."""
        return list(self.result["results"]) if self.result is not None else []


async def read_scenario_run(store: Store, id: str) -> ScenarioRun:
    """The evaluation that a session is. Raises `EvaluationNotFoundError`."""
    session = await store.load(id)
    started = session.started
    if started is None or started.program.name != SCENARIO_RUN:
        raise EvaluationNotFoundError(id, f"it runs {started.program.name if started is not None else 'nothing'}")
    ctx = started.ctx if isinstance(started.ctx, dict) else {}
    result = session.ended.result if isinstance(session.ended, CompletedRecord) else None
    is_report = isinstance(result, dict) and isinstance(result.get("results"), list)
    return ScenarioRun(
        session,
        str(ctx.get("strategy") or "?"),
        str(ctx.get("scenario") or "inline"),
        result if is_report else None,
    )


def report_of(run: ScenarioRun) -> EvaluationReport:
    """Its figures. Raises `EvaluationNotFoundError` if there are none, because it has not returned any."""
    if run.result is None:
        raise EvaluationNotFoundError(run.session.id, f"it has no report ({run.session.state})")
    arm = Arm(name=run.strategy, subject=run.strategy, program=Program("lua", run.strategy))
    cases = _cases(run)
    metrics = run.session.metrics
    rows = [_row(number, each) for number, each in enumerate(run.results)]
    if rows:  # the session counts calls and tokens as a whole: the first row carries them
        usage = metrics.to_json(metrics.last_activity_at, None)["auto"]
        rows[0] = msgspec.structs.replace(
            rows[0],
            calls=usage["llm_calls"],
            prompt_tokens=usage["prompt_tokens"]["tokens"],
            completion_tokens=usage["response_tokens"]["tokens"],
        )
        if usage.get("cost"):
            rows = [msgspec.structs.replace(row, cost=0.0 if row.case else usage["cost"]) for row in rows]
    stopped = run.result.get("stopped")
    last: Json = {"state": "stopped" if stopped else "done", **({"why": stopped} if stopped else {})}
    tries = [[TrialScore(row, float(each["score"]))] for row, each in zip(rows, run.results, strict=True)]
    tries += [[] for _ in range(len(cases) - len(tries))]
    return EvaluationReport(
        id=run.session.id,
        plan=FrozenPlan(
            arms=[arm],
            graders=_graders(run),
            dataset=run.scenario,
            dataset_digest=digest([msgspec.to_builtins(case) for case in cases], _DIGEST_CHARS),
        ),
        grading=_graders(run),
        cases=cases,
        trials={arm.name: tries},
        last=last,
        grading_cost=None,
        is_one_session=True,
    )


def _row(number: int, result: dict[str, Any]) -> TrialRow:
    response = result.get("response") or {}
    error = response.get("error")
    return TrialRow(
        case=number,
        attempt=1,
        order=1,
        status="error" if error else "done",
        waiting_ms=round(float(response.get("latency_ms") or 0)),
        error=str(error or ""),
    )


def _graders(run: ScenarioRun) -> list[GraderSpec]:
    first = run.results[0]["grades"] if run.results else []
    named = [(str(each["grader"]), float(each["weight"])) for each in first]
    return [GraderSpec(grader=name, name=name, weight=weight) for name, weight in named]


def _cases(run: ScenarioRun) -> list[Case]:
    """The cases that ran, then those that did not. Two of one name are told apart by their number."""
    assert run.result is not None
    given = [each["case"] for each in run.results] + list(run.result.get("not_run") or [])
    made: list[Case] = []
    seen: set[str] = set()
    for number, each in enumerate(given):
        context = each.get("context")
        row = {"id": each.get("name") or None, "input": each["input"] or "(empty)", "tags": each.get("tags") or []}
        row |= {"expected": each.get("expected") or [], "context": context if isinstance(context, dict) else None}
        try:
            case = make_case(row, f"case {number + 1}")
        except HoldfastError:
            case = Case(id=f"case-{number + 1}", input=str(each["input"]))
        if case.id in seen:
            case = msgspec.structs.replace(case, id=f"{case.id}-{number + 1}")
        seen.add(case.id)
        made.append(case)
    return made
