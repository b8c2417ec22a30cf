"""The trials of an evaluation as JSONL and CSV, one line a trial, read from their sessions one after the other."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from holdfast.strategies.evaluation.evaluation import Evaluation, Trial
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.rows import TrialRows

_COLUMNS = (
    "session",
    "arm",
    "case",
    "repeat",
    "attempt",
    "status",
    "score",
    "calls",
    "prompt_tokens",
    "completion_tokens",
)
_MORE = ("cost", "own_ms", "waiting_ms", "error", "answer", "expected")


async def trial_lines(evaluation: Evaluation) -> AsyncGenerator[dict[str, Any], None]:
    """Each trial with its input, its answer, its figures and all its grades."""
    terms, _, _ = await evaluation.terms()
    async with evaluation.store() as store:
        rows = await TrialRows.load(store, evaluation.id)
    async with aclosing(evaluation.trials()) as trials:
        async for trial in trials:
            yield _line(trial, rows, terms.all_graders)


def _line(trial: Trial, rows: TrialRows, graders: Sequence[GraderSpec]) -> dict[str, Any]:
    row, key = trial.row, trial.key
    grades = {}
    for spec in graders:
        grade = rows.grade(spec.digest, key, row.attempt)
        if grade is not None:
            grades[f"{spec.name}:{spec.digest}"] = {"score": grade.score, "grade": grade.grade, "why": grade.why}
    return {
        "session": trial.session_id,
        "arm": key.arm,
        "case": trial.case.id,
        "repeat": key.repeat,
        "attempt": row.attempt,
        "reused": row.reused is not None,
        "status": row.status,
        "score": trial.score,
        "calls": row.calls,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "cost": row.cost,
        "own_ms": row.own_ms,
        "waiting_ms": row.waiting_ms,
        "error": row.error or None,
        "answer": trial.text if row.status == "done" else None,
        "result": trial.result,
        "input": trial.case.input,
        "expected": trial.case.expected,
        "tags": trial.case.tags,
        "cluster": trial.case.cluster,
        "grades": grades,
    }


async def as_jsonl(evaluation: Evaluation) -> AsyncGenerator[str, None]:
    """The trials as JSON, one a line."""
    async with aclosing(trial_lines(evaluation)) as lines:
        async for line in lines:
            yield msgspec.json.encode(line).decode() + "\n"


async def as_csv(evaluation: Evaluation) -> AsyncGenerator[str, None]:
    """The trials as CSV; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    columns = [*_COLUMNS, *_MORE]
    yield _csv_line(columns)
    async with aclosing(trial_lines(evaluation)) as lines:
        async for line in lines:
            yield _csv_line([_cell(line[column]) for column in columns])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = (
        value
        if isinstance(value, str)
        else msgspec.json.encode(value).decode()
        if isinstance(value, list)
        else str(value)
    )
    return f"'{text}" if isinstance(value, str) and text[:1] in "=+-@\t\r" else text


def _csv_line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()
