"""`EvaluationReport`: the figures of an evaluation, made from its rows whenever somebody wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from holdfast.core.values import Json
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.errors import PlanError
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.orders import Terms
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.report.arm_figures import ArmFigures, TrialScore, arm_figures
from holdfast.strategies.evaluation.report.comparison import ArmComparison, compare_arms, corrected
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.scores import trial_score
from holdfast.strategies.evaluation.statistics.estimates import LEVEL, SMALL, mean
from holdfast.strategies.evaluation.trials import TrialKey


@dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    """The figures of one evaluation under one grading."""

    id: str
    plan: FrozenPlan
    grading: list[GraderSpec]
    cases: list[Case]
    trials: dict[str, list[list[TrialScore]]]
    """By arm and number of the case: those that have run."""
    last: Json
    """What became of the last order; None while it is carried out."""
    grading_cost: float | None
    gradings: int = 1
    accepted_drift: list[str] = field(default_factory=list)
    is_one_session: bool = False
    """Whether one session ran all cases, instead of one for each trial."""

    @property
    def is_clustered(self) -> bool:
        return any(case.cluster is not None for case in self.cases)

    @property
    def state(self) -> str:
        """`running`, `done`, `waiting` for people, `stopped` for lack of budget, or `failed`."""
        return str(self.last.get("state")) if isinstance(self.last, dict) else "running"

    @cached_property
    def arms(self) -> list[ArmFigures]:
        return [
            arm_figures(arm, self.cases, self.trials[arm.name], repeat=self.plan.repeat, clustered=self.is_clustered)
            for arm in self.plan.arms
        ]

    def arm(self, name: str | None) -> ArmFigures:
        """The figures of an arm; without a name, of the only one. Raises `PlanError`."""
        if name is None and len(self.arms) == 1:
            return self.arms[0]
        for figures in self.arms:
            if figures.arm == name:
                return figures
        names = ", ".join(figures.arm for figures in self.arms)
        raise PlanError(self.id, f"name one of its arms, as in {self.id}:{self.arms[0].arm} (there are {names})")

    def case_means(self, arm: str) -> list[float | None]:
        """The mean score of each case; None where nothing was scored."""
        return [
            mean(scores) if (scores := [each.score for each in tries if each.score is not None]) else None
            for tries in self.trials[arm]
        ]

    def session_of(self, arm: str, case: int, repeat: int) -> str:
        """The session of a trial that has run."""
        row = self.trials[arm][case][repeat].row
        return self.id if self.is_one_session else row.session_id(self.id, TrialKey(arm, case, repeat))

    @cached_property
    def comparisons(self) -> list[ArmComparison]:
        """Every pair of arms that have cases in common, corrected for their number."""
        names = [figures.arm for figures in self.arms if figures.score is not None]
        pairs = [(first, second) for number, first in enumerate(names) for second in names[number + 1 :]]
        made = [compare_arms(self, first, self, second) for first, second in pairs if self._have_common(first, second)]
        return corrected(made)

    def _have_common(self, first: str, second: str) -> bool:
        sides = zip(self.case_means(first), self.case_means(second), strict=True)
        return any(a is not None and b is not None for a, b in sides)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know to read the figures right."""
        found = list(self.plan.warnings)
        arms = [figures for figures in self.arms if figures.score is not None]
        if any(figures.score is not None and figures.score.n < SMALL for figures in arms):
            found.append(f"fewer than {SMALL} cases: the intervals are wide for a reason")
        for figures in self.arms:
            if not figures.is_comparable:
                share = figures.missing / figures.trials
                found.append(f"{figures.arm}: {share:.0%} of its trials are missing, so it is not comparable")
            if figures.reused:
                found.append(
                    f"{figures.arm}: {figures.reused} trials were taken over from {', '.join(self.plan.reuse)}"
                )
            if figures.ungraded:
                found.append(f"{figures.arm}: {figures.ungraded} trials are ungraded and count for nothing")
            if figures.not_run:
                found.append(f"{figures.arm}: {figures.not_run} trials have not run")
            if figures.cost is None and figures.calls:
                found.append(f"{figures.arm}: nobody knows what {figures.model or 'its model'} costs; give prices")
        found += [f"drift was accepted: {each}" for each in self.accepted_drift]
        return found

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        clusters = len({case.cluster for case in self.cases}) if self.is_clustered else None
        return {
            "id": self.id,
            "state": self.state,
            "last": self.last,
            "cases": len(self.cases),
            "repeat": self.plan.repeat,
            "clusters": clusters,
            "level": LEVEL,
            "dataset": {"name": self.plan.dataset, "digest": self.plan.dataset_digest},
            "graders": [{"name": spec.name, "digest": spec.digest, "weight": spec.weight} for spec in self.grading],
            "gradings": self.gradings,
            "grading_cost": self.grading_cost,
            "arms": [
                {**msgspec.to_builtins(each), "interval": msgspec.to_builtins(each.interval)} for each in self.arms
            ],
            "comparisons": [msgspec.to_builtins(each) for each in self.comparisons],
            "notes": self.notes,
        }


def make_report(
    id: str, stand: tuple[Terms, Sequence[Case], Json], rows: TrialRows, grading: int = -1
) -> EvaluationReport:
    """The report of an evaluation from what `read_terms` says of it, and its rows."""
    terms, cases, last = stand
    try:
        chosen = terms.gradings[grading]
    except IndexError:
        raise PlanError("grading", f"there are {len(terms.gradings)}, counted from 0; got {grading}") from None
    trials: dict[str, list[list[TrialScore]]] = {arm.name: [[] for _ in cases] for arm in terms.plan.arms}
    for key, row in sorted(rows.trials(), key=_by_repeat):
        if key.arm in trials and key.case < len(cases):
            trials[key.arm][key.case].append(TrialScore(row, trial_score(rows, chosen, key, row)))
    costs = [grade.cost for spec in chosen for _, grade in rows.grades(spec.digest) if grade.cost is not None]
    return EvaluationReport(
        id=id,
        plan=terms.plan,
        grading=chosen,
        cases=list(cases),
        trials=trials,
        last=last,
        grading_cost=math.fsum(costs) if costs else None,
        gradings=len(terms.gradings),
        accepted_drift=terms.accepted_drift,
    )


def _by_repeat(item: tuple[TrialKey, object]) -> int:
    return item[0].repeat
