"""Export to Inspect's log format: one `.eval` file for each arm, which its viewer, its readers and its tools open.

A `.eval` file is a zip with a header, a file for each sample and summaries. No part of Inspect is needed to write it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.evaluation import Evaluation, Trial
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.report.arm_figures import ArmFigures
from holdfast.strategies.evaluation.report.report import EvaluationReport
from holdfast.strategies.evaluation.rows import TrialRows

_VERSION = 2
"""Of Inspect's log format."""


async def write_inspect_logs(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write a log for each arm, and give the files."""
    report = await evaluation.report()
    async with evaluation.store() as store:
        rows = await TrialRows.load(store, evaluation.id)
        begun = (await store.session(evaluation.id)).summary.created_at
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for arm in report.plan.arms:
        trials = [trial async for trial in evaluation.trials(arm=arm.name)]
        path = folder / f"{evaluation.id}_{arm.name}.eval"
        _write(path, _Log(report, arm, begun), trials, rows)
        written.append(path)
    return written


class _Log:
    """What all parts of one log share."""

    def __init__(self, report: EvaluationReport, arm: Arm, begun_ms: int) -> None:
        self.report = report
        self.arm = arm
        self.created = datetime.fromtimestamp(begun_ms / 1000, UTC).isoformat()
        self.model = (arm.model or "any").replace(":", "/")
        self.graders: Sequence[GraderSpec] = report.grading

    @property
    def plan(self) -> FrozenPlan:
        return self.report.plan

    @property
    def figures(self) -> ArmFigures:
        return self.report.arm(self.arm.name)

    def spec(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "eval_id": f"{self.report.id}.{self.arm.name}",
            "run_id": self.report.id,
            "created": self.created,
            "task": f"{plan.dataset}:{self.arm.name}",
            "task_id": f"{self.report.id}.{self.arm.digest}",
            "task_version": 0,
            "task_attribs": {},
            "task_args": {"strategy": self.arm.subject, "options": self.arm.options},
            "dataset": {"name": plan.dataset, "samples": len(self.report.cases), "shuffled": False},
            "model": self.model,
            "model_args": {},
            "model_generate_config": {},
            "config": {"epochs": plan.repeat},
            "packages": {"holdfast": __version__},
            "metadata": {"dataset_digest": plan.dataset_digest, "arm_digest": self.arm.digest},
        }

    def usage(self) -> dict[str, Any]:
        figures = self.figures
        return {self.model: _usage(figures.prompt_tokens, figures.completion_tokens)}

    def results(self) -> dict[str, Any]:
        figures = self.figures
        score = figures.score
        metrics = {}
        if score is not None:
            metrics["accuracy"] = {"name": "accuracy", "value": score.mean, "params": {}}
            if score.se is not None:
                metrics["stderr"] = {"name": "stderr", "value": score.se, "params": {}}
        total = len(self.report.cases) * self.plan.repeat
        scores = [{"name": "score", "scorer": "score", "params": {}, "metrics": metrics}]
        return {"total_samples": total, "completed_samples": figures.trials, "scores": scores}


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


def _write(path: Path, log: _Log, trials: Sequence[Trial], rows: TrialRows) -> None:
    start = {"version": _VERSION, "eval": log.spec(), "plan": _steps(log)}
    summaries = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "_journal/start.json", start)
        for trial in trials:
            sample = _sample(log, trial, rows)
            _add(archive, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
            summaries.append(_summary(sample))
        _add(archive, "_journal/summaries/1.json", summaries)
        _add(archive, "summaries.json", summaries)
        state = log.report.state
        header = {
            **start,
            "status": "success" if state in ("done", "waiting") else "started" if state == "running" else "error",
            "results": log.results(),
            "stats": {"started_at": log.created, "completed_at": log.created, "model_usage": log.usage()},
        }
        _add(archive, "header.json", header)


def _add(archive: zipfile.ZipFile, name: str, value: Any) -> None:
    archive.writestr(name, json.dumps(value, ensure_ascii=False))


def _steps(log: _Log) -> dict[str, Any]:
    step = {"solver": log.arm.subject, "params": log.arm.options}
    return {"name": "plan", "steps": [step], "config": {}}


def _sample(log: _Log, trial: Trial, rows: TrialRows) -> dict[str, Any]:
    case, row = trial.case, trial.row
    messages = [{"role": "user", "content": case.task}]
    answer = trial.text if row.status == "done" else ""
    if row.status == "done":
        messages.append({"role": "assistant", "content": answer, "source": "generate"})
    choices = [{"message": {"role": "assistant", "content": answer}, "stop_reason": "stop"}] if answer else []
    usage = _usage(row.prompt_tokens, row.completion_tokens)
    sample: dict[str, Any] = {
        "id": case.id.replace("/", "_"),
        "epoch": trial.key.repeat + 1,
        "input": case.task,
        "target": case.expected if len(case.expected) != 1 else case.expected[0],
        "messages": messages,
        "output": {"model": log.model, "choices": choices, "usage": usage},
        "scores": _scores(log, trial, rows, answer),
        "metadata": {**case.context, "session": trial.session_id, "status": row.status, "tags": case.tags},
        "store": {},
        "events": [],
        "model_usage": {log.model: usage},
        "attachments": {},
        "total_time": (row.own_ms + row.waiting_ms) / 1000,
    }
    if case.choices:
        sample["choices"] = case.choices
    if row.status != "done":
        sample["error"] = {"message": row.error or row.status, "traceback": "", "traceback_ansi": ""}
    return sample


def _scores(log: _Log, trial: Trial, rows: TrialRows, answer: str) -> dict[str, Any]:
    if trial.score is None:
        return {}
    found = {"score": {"value": trial.score, "answer": answer, "explanation": trial.row.error or None}}
    for spec in log.graders:
        grade = rows.grade(spec.digest, trial.key, trial.row.attempt)
        if grade is not None and grade.score is not None:
            value = {1.0: "C", 0.0: "I"}.get(grade.score, grade.score)
            found[spec.name] = {"value": value, "answer": answer, "explanation": grade.why}
    return found


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    shown = {
        key: sample[key]
        for key in ("id", "epoch", "input", "target", "metadata", "scores", "model_usage", "total_time")
    }
    if "error" in sample:
        shown["error"] = sample["error"]["message"]
    return {**shown, "completed": True}
