"""Estimates of one arm: means with standard errors and intervals, pass rates, pass@k and the spread of repeats.

The unit is the case. Where a case was tried several times, its mean is taken first: the noise within cases is then part
of the spread between them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.strategies.evaluation.statistics.distributions import normal_quantile, t_quantile

IntervalMethod: TypeAlias = Literal["t", "t clustered", "wilson", "none"]

LEVEL = 0.95
"""The level of every interval."""

SMALL = 100
"""Cases below which pass rates have wide intervals, and the report says that this is so for a reason."""

BOOTSTRAP_DRAWS = 10_000


class Interval(msgspec.Struct, frozen=True):
    """An interval of confidence, and how it was made."""

    low: float
    high: float
    method: IntervalMethod = "t"
    level: float = LEVEL


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over cases and how exact it is."""

    mean: float
    n: int
    """Cases."""
    clusters: int | None = None
    std: float | None = None
    """Of the cases' means, with n − 1; None for a single case."""
    se: float | None = None
    df: int | None = None
    interval: Interval | None = None
    design_effect: float | None = None
    """By how much clusters widen the variance of the mean; None without clusters."""


SCORES = (0.0, 1.0)
"""What a score can be."""

DIFFERENCES = (-1.0, 1.0)
"""What the difference of two scores can be."""


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The variance of a sample, with n − 1."""
    middle = mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def estimate(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    scale: tuple[float, float] = SCORES,
) -> Estimate:
    """The mean of the cases' values, with its interval by Student's t; `clusters` says which cases belong together.

    `scale` cuts the interval to what the mean can be. That leaves no possible value out, so the interval covers the
    truth as often; the standard error, and any test, are those of the uncut one.
    """
    n, middle = len(values), mean(values)
    if n == 1:
        return Estimate(mean=middle, n=1, clusters=1 if clusters is not None else None)
    std = math.sqrt(variance(values))
    naive = std / math.sqrt(n)
    if clusters is None:
        return Estimate(mean=middle, n=n, std=std, se=naive, df=n - 1, interval=_t(middle, naive, n - 1, scale, "t"))
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + (value - middle)
    count = len(sums)
    if count == 1:
        return Estimate(mean=middle, n=n, clusters=1, std=std)
    se = math.sqrt(math.fsum(each * each for each in sums.values()) * count / (count - 1)) / n
    return Estimate(
        mean=middle,
        n=n,
        clusters=count,
        std=std,
        se=se,
        df=count - 1,
        interval=_t(middle, se, count - 1, scale, "t clustered"),
        design_effect=(se / naive) ** 2 if naive else None,
    )


def _t(middle: float, se: float, df: int, scale: tuple[float, float], method: IntervalMethod) -> Interval:
    half = t_quantile(0.5 + LEVEL / 2, df) * se
    return Interval(max(scale[0], middle - half), min(scale[1], middle + half), method)


def wilson(passed: int, n: int) -> Interval:
    """Wilson's interval of a pass rate."""
    z = normal_quantile(0.5 + LEVEL / 2)
    p, square = passed / n, z * z
    centre = p + square / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + square / (4 * n * n))
    low, high = (centre - half) / (1 + square / n), (centre + half) / (1 + square / n)
    return Interval(0.0 if passed == 0 else low, 1.0 if passed == n else high, "wilson")


def pass_at(k: int, n: int, passed: int) -> float | None:
    """The probability that at least one of `k` of `n` repeats of a case passes; None if there are fewer."""
    return None if k > n else 1.0 - math.comb(n - passed, k) / math.comb(n, k)


def pass_all(k: int, n: int, passed: int) -> float | None:
    """The probability that all of `k` of `n` repeats of a case pass; None if there are fewer."""
    return None if k > n else math.comb(passed, k) / math.comb(n, k)


class Spread(msgspec.Struct, frozen=True):
    """How much scores vary within a case, from repeat to repeat, and between cases."""

    within: float
    between: float


def spread(repeats: Sequence[Sequence[float]]) -> Spread | None:
    """The spread of the repeats of each case; None unless two cases have two repeats each."""
    several = [scores for scores in repeats if len(scores) > 1]
    if len(several) < 2:
        return None
    within = mean([variance(scores) for scores in several])
    least = 1 / mean([1 / len(scores) for scores in several])  # K, where all have as many
    return Spread(within, variance([mean(scores) for scores in several]) - within / least)


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = mean,
    *,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """The 2.5th and 97.5th percentile of a statistic of cases drawn again and again; of whole clusters, if given."""
    generator = random.Random(seed)
    if clusters is None:
        made = sorted(statistic(generator.choices(values, k=len(values))) for _ in range(draws))
    else:
        grouped: dict[Hashable, list[float]] = {}
        for value, cluster in zip(values, clusters, strict=True):
            grouped.setdefault(cluster, []).append(value)
        groups = list(grouped.values())
        drawn = (generator.choices(groups, k=len(groups)) for _ in range(draws))
        made = sorted(statistic([value for group in each for value in group]) for each in drawn)
    cut = draws // 40
    return made[cut], made[draws - 1 - cut]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies, between two of them where it falls between."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
