"""How far graders agree with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.strategies.evaluation.errors import ComparisonError
from holdfast.strategies.evaluation.graders.judges import read_human
from holdfast.strategies.evaluation.report.report import EvaluationReport
from holdfast.strategies.evaluation.statistics.comparisons import cohens_kappa


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often graders and people said the same."""

    kappa: float
    trials: int
    both: int
    """That both let pass."""
    only_graders: int
    only_people: int
    neither: int
    unknown: int
    """Labels that fit no graded trial."""


def agreement(report: EvaluationReport, labels: Sequence[Mapping[str, str]]) -> Agreement:
    """The agreement on labelled trials: `case` and `passed`, maybe `arm` and `repeat`. Raises `ComparisonError`."""
    numbers = {case.id: number for number, case in enumerate(report.cases)}
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    unknown = 0
    for label in labels:
        said = read_human(label["passed"]).score
        number = numbers.get(label["case"])
        arms = [label["arm"]] if label.get("arm") else [figures.arm for figures in report.arms]
        found = False
        for arm in arms if number is not None and said is not None else []:
            tries = report.trials.get(arm, [[]] * len(report.cases))[number or 0]
            wanted = tries if not label.get("repeat") else tries[int(label["repeat"]) : int(label["repeat"]) + 1]
            for trial in wanted:
                if trial.score is not None:
                    counts[trial.score >= 0.5, (said or 0.0) >= 0.5] += 1
                    found = True
        unknown += not found
    total = sum(counts.values())
    if not total:
        raise ComparisonError(f"no label fits a graded trial of {report.id}")
    both, only_graders = counts[True, True], counts[True, False]
    only_people, neither = counts[False, True], counts[False, False]
    return Agreement(
        kappa=cohens_kappa(both, only_graders, only_people, neither),
        trials=total,
        both=both,
        only_graders=only_graders,
        only_people=only_people,
        neither=neither,
        unknown=unknown,
    )
