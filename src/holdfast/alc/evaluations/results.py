"""Results of evaluations in algocline's keys: those of its own sessions, of plans, and of the files that it wrote.

Every one is a "completed" event: `result` has `name`, `aggregated`, `results`, `failures` and `summary`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import ExitCode, HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.programs.paths import algocline_home, home
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionRow
from holdfast.strategies.evaluation.errors import EvaluationNotFoundError
from holdfast.strategies.evaluation.evaluation import Evaluation, Trial
from holdfast.strategies.evaluation.programs import EVALUATION
from holdfast.strategies.evaluation.report.report import EvaluationReport
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN, ScenarioRun, read_scenario_run
from holdfast.strategies.evaluation.statistics.distributions import t_quantile

MAX_RESULTS = 2_000
"""Trials of a plan that a result lists: a reply of some MiB. Exports have all."""

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Bytes of a result that algocline wrote."""


class EvalMeta(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation in the history."""

    eval_id: str
    strategy: str
    timestamp: int
    """Seconds."""
    status: str
    pass_rate: float | None = None
    mean_score: float | None = None
    total_cases: int | None = None
    passed: int | None = None
    llm_calls: int | None = None
    elapsed_ms: int | None = None
    summary: str | None = None


class EvalResultNotFoundError(HoldfastError):
    """There is no such evaluation, or it has no result."""

    kind = "eval_not_found"
    exit_code = ExitCode.NOT_FOUND


# --- history -------------------------------------------------------------------------------------------


async def read_history(store: Store, strategy: str | None, limit: int) -> tuple[list[EvalMeta], list[str]]:
    """Evaluations, the newest first, and what could not be read."""
    warnings: list[str] = []
    found = list(_file_history(warnings))
    rows: list[SessionRow] = []
    for program in (SCENARIO_RUN, EVALUATION):
        rows += await store.all_sessions(SessionFilter(program=program))
    rows.sort(key=lambda row: -row.summary.created_at)
    known = 0
    for row in rows:
        if known >= limit:
            break
        try:
            made = await _session_history(store, row)
        except HoldfastError as error:
            warnings.append(f"{row.session_id}: {error}")
            continue
        found += made
        known += sum(strategy is None or meta.strategy == strategy for meta in made)
    chosen = [meta for meta in found if strategy is None or meta.strategy == strategy]
    return sorted(chosen, key=lambda meta: -meta.timestamp)[:limit], warnings


async def _session_history(store: Store, row: SessionRow) -> list[EvalMeta]:
    summary = row.summary
    if summary.program == SCENARIO_RUN:
        run = await read_scenario_run(store, row.session_id)
        aggregated = run.result["aggregated"] if run.result is not None else {}
        return [
            EvalMeta(
                eval_id=row.session_id,
                strategy=run.strategy,
                timestamp=summary.created_at // 1000,
                status=_status(run),
                pass_rate=aggregated.get("pass_rate"),
                mean_score=(aggregated.get("scores") or {}).get("mean"),
                total_cases=aggregated.get("total"),
                passed=aggregated.get("passed"),
                llm_calls=run.session.metrics.llm_calls,
                elapsed_ms=summary.updated_at - summary.created_at,
                summary=run.result.get("summary") if run.result is not None else None,
            )
        ]
    report = await Evaluation(row.session_id, store).report()
    return [
        EvalMeta(
            eval_id=_arm_id(report, figures.arm),
            strategy=report.plan.arm(figures.arm).subject,
            timestamp=summary.created_at // 1000,
            status=report.state,
            pass_rate=figures.pass_rate,
            mean_score=figures.score.mean if figures.score is not None else None,
            total_cases=len(report.cases),
            passed=sum(each.score == 1.0 for tries in report.trials[figures.arm] for each in tries),
            llm_calls=figures.calls,
            elapsed_ms=summary.updated_at - summary.created_at,
            summary=_sentence(report, figures.arm),
        )
        for figures in report.arms
    ]


def _status(run: ScenarioRun) -> str:
    return "completed" if run.result is not None else str(run.session.state)


def _arm_id(report: EvaluationReport, arm: str) -> str:
    return report.id if len(report.arms) == 1 else f"{report.id}:{arm}"


def _sentence(report: EvaluationReport, arm: str) -> str:
    figures = report.arm(arm)
    if figures.score is None:
        return f"{arm}: nothing was scored"
    interval = figures.interval
    where = "" if interval is None else f", 95 % interval {interval.low:.3f} to {interval.high:.3f}"
    return f"{arm}:{report.plan.dataset}: mean score {figures.score.mean:.3f} over {figures.score.n} cases{where}"


# --- single results ------------------------------------------------------------------------------------


async def read_result(store: Store, eval_id: str) -> dict[str, Any]:
    """The result of an evaluation, `EVAL` or `EVAL:ARM`, as a "completed" event. Raises `EvalResultNotFoundError`."""
    id, _, arm = eval_id.partition(":")
    try:
        row = await store.session(id)
    except (SessionNotFoundError, InvalidIdError):
        return _file_result(eval_id)
    if row.summary.program == SCENARIO_RUN:
        return _run_result(await read_scenario_run(store, id))
    try:
        return await _plan_result(Evaluation(id, store), arm or None, row)
    except EvaluationNotFoundError as error:
        raise EvalResultNotFoundError(f"Eval result not found: {eval_id[:200]} ({error.why})") from None


def _run_result(run: ScenarioRun) -> dict[str, Any]:
    if run.result is None:
        why = f"that session has not ended with a result ({run.session.state})"
        raise EvalResultNotFoundError(f"Eval result not found: {run.session.id}: {why}")
    metrics = run.session.metrics
    budget = run.session.started.budget if run.session.started is not None else None
    return _completed(run.session.id, run.strategy, run.result, metrics.to_json(metrics.last_activity_at, budget))


def _completed(eval_id: str, strategy: str, result: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": "completed",
        "eval_id": eval_id,
        "session_id": eval_id.partition(":")[0],
        "strategy": strategy,
        "result": dict(result),
        "stats": dict(stats),
    }


async def _plan_result(evaluation: Evaluation, arm: str | None, row: SessionRow) -> dict[str, Any]:
    report = await evaluation.report()
    figures = report.arm(arm)
    trials = [trial async for trial in evaluation.trials(arm=figures.arm)]
    async with evaluation.store() as store:
        rows = await TrialRows.load(store, evaluation.id)
    results = [_result(report, trial, rows) for trial in trials if trial.score is not None]
    auto = {"llm_calls": figures.calls, "elapsed_ms": row.summary.updated_at - row.summary.created_at}
    auto |= {"prompt_tokens": figures.prompt_tokens, "response_tokens": figures.completion_tokens}
    result: dict[str, Any] = {
        "name": f"{figures.arm}:{report.plan.dataset}",
        "aggregated": aggregate(results),
        "results": results[:MAX_RESULTS],
        "failures": [each for each in results if not each["passed"]][:MAX_RESULTS],
        "summary": _sentence(report, figures.arm),
    }
    if len(results) > MAX_RESULTS:
        result["results_left_out"] = len(results) - MAX_RESULTS
    return _completed(_arm_id(report, figures.arm), report.plan.arm(figures.arm).subject, result, {"auto": auto})


def _result(report: EvaluationReport, trial: Trial, rows: TrialRows) -> dict[str, Any]:
    case, row = trial.case, trial.row
    said = [(spec, rows.grade(spec.digest, trial.key, row.attempt)) for spec in report.grading]
    response = {"text": trial.text if row.status == "done" else "", "latency_ms": row.own_ms + row.waiting_ms}
    if row.error:
        response["error"] = row.error
    return {
        "case": {"name": case.id, "input": case.task, "expected": case.expected, "tags": case.tags},
        "response": response,
        "grades": [
            {"grader": spec.name, "weight": spec.weight, "score": grade.score, "grade": grade.grade}
            for spec, grade in said
            if grade is not None
        ],
        "score": trial.score,
        "passed": trial.score == 1.0,
        "session_id": trial.session_id,
    }


def aggregate(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of some results, as `alc.eval` reports them."""
    scores = [float(each["score"]) for each in results]
    passed = sum(bool(each["passed"]) for each in results)
    described = describe(scores)
    margin = 0.0
    if len(scores) > 1:
        margin = t_quantile(0.975, len(scores) - 1) * described["std_dev"] / math.sqrt(len(scores))
    rate = passed / len(scores) if scores else 0.0
    tags: dict[str, list[Mapping[str, Any]]] = {}
    for each in results:
        for tag in each["case"].get("tags") or ():
            tags.setdefault(tag, []).append(each)
    return {
        "total": len(scores),
        "passed": passed,
        "pass_rate": rate,
        "pass_at_1": rate,
        "scores": described,
        "ci_95": {"lower": max(0.0, described["mean"] - margin), "upper": min(1.0, described["mean"] + margin)},
        "by_tag": {tag: _tagged(tagged) for tag, tagged in sorted(tags.items())},
    }


def _tagged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    passed = sum(bool(each["passed"]) for each in results)
    stats = describe([float(each["score"]) for each in results])
    return {"pass": passed, "fail": len(results) - passed, "rate": passed / len(results), "stats": stats}


def describe(values: Sequence[float]) -> dict[str, Any]:
    """A list of scores in short."""
    if not values:
        return {"n": 0, "mean": 0.0, "std_dev": 0.0, "min": 0.0, "max": 0.0, "median": 0.0}
    return {
        "n": len(values),
        "mean": math.fsum(values) / len(values),
        "std_dev": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
        "median": statistics.median(values),
    }


# --- files of algocline --------------------------------------------------------------------------------


def _folders() -> list[Path]:
    return list(dict.fromkeys(place / "evals" for place in (home(), algocline_home())))


def _file_history(warnings: list[str]) -> list[EvalMeta]:
    found: dict[str, EvalMeta] = {}
    for folder in _folders():
        try:
            files = sorted(each.path for each in os.scandir(folder) if each.name.endswith(".meta.json"))
        except OSError:
            continue
        for file in files:
            try:
                table = _read_json(Path(file))
                fields = {name: table[name] for name in EvalMeta.__struct_fields__ if name in table}
                meta = msgspec.convert({"status": "completed", **fields}, EvalMeta, strict=False)
                found.setdefault(meta.eval_id, meta)
            except (OSError, ValueError, msgspec.ValidationError) as error:
                warnings.append(f"{file}: {error}")
    return list(found.values())


def _file_result(eval_id: str) -> dict[str, Any]:
    is_name = bool(eval_id) and eval_id[0] != "." and not any(each in eval_id for each in "/\\\0")
    for folder in _folders() if is_name else ():
        try:
            stored = _read_json(folder / f"{eval_id}.json")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise EvalResultNotFoundError(f"Failed to read eval: {eval_id[:200]}: {error}") from None
        return {**stored, "eval_id": eval_id}
    raise EvalResultNotFoundError(f"Eval result not found: {eval_id[:200]}")


def _read_json(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES:,} bytes")
    try:
        table = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError("it is no JSON object")
    return table
