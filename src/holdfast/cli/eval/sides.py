"""Arms as they are named on a command line: `EVAL:ARM`, or `EVAL` if it has only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.options import settings

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.report.report import EvaluationReport


async def read_side(text: str, like: Evaluation | None = None) -> tuple[EvaluationReport, str]:
    """The report and the arm that a text names."""
    from holdfast.strategies.evaluation.evaluation import Evaluation

    id, _, arm = text.partition(":")
    if like is not None:
        async with like.store() as store:
            report = await Evaluation(id, store).report()
    else:
        report = await Evaluation(id, settings().url()).report()
    return report, report.arm(arm or None).arm
