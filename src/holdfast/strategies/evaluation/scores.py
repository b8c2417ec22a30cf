"""Scores of trials: the weighted mean of their grades."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.trials import TrialKey, TrialRow


def trial_score(rows: TrialRows, grading: Sequence[GraderSpec], key: TrialKey, row: TrialRow) -> float | None:
    """The score of a trial; None if it counts for nothing: a service was down, or a grade is missing.

    A strategy that raised scores 0.
    """
    if row.status == "error":
        return 0.0
    if row.status != "done":
        return None
    total = weight = 0.0
    for spec in grading:
        grade = rows.grade(spec.digest, key, row.attempt)
        if not spec.weight:
            continue
        if grade is None or grade.score is None:
            return None
        total += spec.weight * grade.score
        weight += spec.weight
    return total / weight
