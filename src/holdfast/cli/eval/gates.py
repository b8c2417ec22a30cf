"""Gates for continuous integration: whether scores are high enough. The bound of the interval decides, not the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.eval.options import RunTerms

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.report.report import EvaluationReport


async def failed_gates(evaluation: Evaluation, report: EvaluationReport, terms: RunTerms) -> list[str]:
    """What is not good enough, in sentences."""
    failed: list[str] = []
    if terms.min_score is not None:
        for figures in report.arms:
            low = figures.interval.low if figures.interval is not None else None
            if low is None:
                failed.append(
                    f"{figures.arm}: its score has no interval, so it is not known to reach {terms.min_score:g}"
                )
            elif low < terms.min_score:
                failed.append(
                    f"{figures.arm}: the interval of its score begins at {low:.3f}, below {terms.min_score:g}"
                )
    if terms.no_worse_than is not None:
        failed += await _worse(evaluation, report, terms.no_worse_than, terms.margin)
    return failed


async def _worse(evaluation: Evaluation, report: EvaluationReport, base: str, margin: float) -> list[str]:
    from holdfast.cli.eval.sides import read_side
    from holdfast.strategies.evaluation.report.comparison import compare_arms

    is_own = base in [figures.arm for figures in report.arms]
    other, arm = (report, base) if is_own else await read_side(base, evaluation)
    failed: list[str] = []
    for figures in report.arms:
        if (other.id, figures.arm) == (report.id, arm):
            continue
        found = compare_arms(report, figures.arm, other, arm)
        interval = found.paired.difference.interval
        if not found.is_comparable:
            failed.append(f"{figures.arm}: not comparable with {base}, too many trials are missing")
        elif interval is None or interval.low < -margin:
            low = "is not known" if interval is None else f"begins at {interval.low:+.3f}"
            failed.append(f"{figures.arm}: the interval of its difference to {base} {low}, below -{margin:g}")
    return failed
