"""Comparisons: paired differences of two arms, corrections for many, cases that are needed, agreement of judges."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import msgspec

from holdfast.strategies.evaluation.statistics.distributions import (
    binomial_two_sided,
    normal_quantile,
    t_two_sided,
)
from holdfast.strategies.evaluation.statistics.estimates import (
    DIFFERENCES,
    Estimate,
    estimate,
    mean,
    variance,
)


class TTest(msgspec.Struct, frozen=True):
    """A difference that was tested by Student's t."""

    t: float
    df: float
    p: float


class PairedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How two arms differ on the same cases."""

    difference: Estimate
    test: TTest | None
    """None for a single case, and where all differences are equal but not 0: nothing can be said about chance."""
    mcnemar: float | None = None
    """The exact p of McNemar's test, where each case was tried once and passed or failed."""
    better: int = 0
    """Cases on which the first is better."""
    worse: int = 0


def paired(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> PairedDifference:
    """The mean difference of two arms' case scores, first minus second, and whether chance alone would explain it.

    Scores are 0 to 1, so the interval of their difference is cut to −1 to 1.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    found = estimate(differences, clusters, scale=DIFFERENCES)
    is_pass_fail = all(value in (0.0, 1.0) for value in (*first, *second))
    better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    return PairedDifference(
        difference=found,
        test=_test(found),
        mcnemar=binomial_two_sided(better, worse) if is_pass_fail and clusters is None else None,
        better=better,
        worse=worse,
    )


def _test(found: Estimate) -> TTest | None:
    if found.se is None or found.df is None:
        return None
    if found.se == 0.0:
        return TTest(0.0, found.df, 1.0) if found.mean == 0.0 else None
    t = found.mean / found.se
    return TTest(t, found.df, t_two_sided(t, found.df))


def welch(first: Sequence[float], second: Sequence[float]) -> TTest | None:
    """The unpaired test of two means with unequal variances; None if neither varies."""
    parts = [variance(each) / len(each) for each in (first, second)]
    total = sum(parts)
    if total == 0.0:
        return None
    t = (mean(first) - mean(second)) / math.sqrt(total)
    df = total**2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (first, second), strict=True))
    return TTest(t, df, t_two_sided(t, df))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's correction of several p, in the order given."""
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, highest = [0.0] * len(values), 0.0
    for rank, number in enumerate(order):
        highest = max(highest, min(1.0, values[number] * (len(values) - rank)))
        corrected[number] = highest
    return corrected


class Noise(msgspec.Struct, frozen=True):
    """The variance within cases of an arm, and how often each case is tried."""

    variance: float = 0.0
    repeats: int = 1


_QUIET = Noise()


def cases_needed(
    delta: float,
    between: float,
    first: Noise = _QUIET,
    second: Noise = _QUIET,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int:
    """Cases after which a paired comparison finds a difference of `delta` with this power.

    `between` is the variance of the true difference from case to case.
    """
    spread = between + first.variance / first.repeats + second.variance / second.repeats
    return math.ceil(_factor(power, alpha) ** 2 * spread / delta**2 - 1e-9)


def detectable_difference(n: int, std: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The least difference that `n` cases find with this power, if case differences have this standard deviation."""
    return _factor(power, alpha) * std / math.sqrt(n)


def _factor(power: float, alpha: float) -> float:
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)


def cohens_kappa(both: int, only_first: int, only_second: int, neither: int) -> float:
    """The agreement of two who said yes or no, beyond what chance gives; 1 if chance leaves no room."""
    total = both + only_first + only_second + neither
    observed = (both + neither) / total
    by_chance = (
        (both + only_first) * (both + only_second) + (only_second + neither) * (only_first + neither)
    ) / total**2
    return 1.0 if by_chance == 1.0 else (observed - by_chance) / (1 - by_chance)
