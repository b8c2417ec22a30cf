"""Comparisons of two arms, of one evaluation or of two: paired by case, on the cases that both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.errors import ComparisonError
from holdfast.strategies.evaluation.statistics.comparisons import PairedDifference, TTest, holm, paired, welch

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.report.report import EvaluationReport


class ArmComparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How two arms differ, first minus second."""

    first: str
    second: str
    paired: PairedDifference
    unpaired: TTest | None = None
    """Welch's test, for those who compare with other tools; None with too few cases."""
    p_holm: float | None = None
    """p, corrected for the number of pairs that are told together."""
    common: int = 0
    only_first: int = 0
    """Cases that only the first has scores of."""
    only_second: int = 0
    changed: int = 0
    """Cases of one id that are not the same in both evaluations, and are left out."""
    is_comparable: bool = True
    """False if too many trials of one of them are missing."""

    @property
    def sentence(self) -> str:
        """The difference with its interval, in words."""
        found = self.paired.difference
        text = f"{self.first} − {self.second} = {found.mean:+.3f}"
        if found.interval is not None:
            text += f" (95 % {found.interval.low:+.3f} to {found.interval.high:+.3f}, {found.interval.method})"
        if self.paired.test is not None:
            text += f", p {self.paired.test.p:.3g}"
        if self.p_holm is not None:
            text += f", Holm {self.p_holm:.3g}"
        if self.paired.mcnemar is not None:
            text += f", McNemar {self.paired.mcnemar:.3g}"
        return text if self.is_comparable else f"{text}; not comparable: too many trials are missing"


def compare_arms(first: EvaluationReport, first_arm: str, second: EvaluationReport, second_arm: str) -> ArmComparison:
    """How two arms differ on the cases that both have. Raises `ComparisonError` if they have none in common."""
    sides = [_means_by_case(first, first_arm), _means_by_case(second, second_arm)]
    common = [case_id for case_id in sides[0] if case_id in sides[1]]
    same = [case_id for case_id in common if first is second or _is_same(sides[0][case_id][0], sides[1][case_id][0])]
    if not same:
        why = "they have no case in common" if not common else "all cases of equal ids have other contents"
        raise ComparisonError(f"{first.id}:{first_arm} and {second.id}:{second_arm}: {why}")
    values = [[side[case_id][1] for case_id in same] for side in sides]
    clusters = None
    if first.is_clustered:
        clusters = [sides[0][case_id][0].cluster or case_id for case_id in same]
    difference = paired(values[0], values[1], clusters)
    if first.plan.repeat > 1 or second.plan.repeat > 1:  # means of several tries do not pass or fail
        difference = msgspec.structs.replace(difference, mcnemar=None)
    is_one = first is second or first.id == second.id
    return ArmComparison(
        first=first_arm if is_one else f"{first.id}:{first_arm}",
        second=second_arm if is_one else f"{second.id}:{second_arm}",
        paired=difference,
        unpaired=welch(values[0], values[1]) if len(same) > 1 else None,
        common=len(same),
        only_first=len(sides[0]) - len(common),
        only_second=len(sides[1]) - len(common),
        changed=len(common) - len(same),
        is_comparable=first.arm(first_arm).is_comparable and second.arm(second_arm).is_comparable,
    )


def _means_by_case(report: EvaluationReport, arm: str) -> dict[str, tuple[Case, float]]:
    report.arm(arm)
    return {
        case.id: (case, value)
        for case, value in zip(report.cases, report.case_means(arm), strict=True)
        if value is not None
    }


def _is_same(first: Case, second: Case) -> bool:
    return (first.input, first.choices, first.expected) == (second.input, second.choices, second.expected)


def corrected(comparisons: Sequence[ArmComparison]) -> list[ArmComparison]:
    """The comparisons with their p corrected by Holm, if there are several."""
    tested = [each.paired.test.p for each in comparisons if each.paired.test is not None]
    if len(comparisons) < 2:
        return list(comparisons)
    values = iter(holm(tested))
    return [
        each if each.paired.test is None else msgspec.structs.replace(each, p_holm=next(values)) for each in comparisons
    ]
