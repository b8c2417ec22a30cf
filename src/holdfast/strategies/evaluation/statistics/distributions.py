"""Student's t, the normal and the binomial distribution, as far as evaluations need them.

The incomplete beta function is a continued fraction (Lentz's method); quantiles are found by bisection. Both agree with
scipy to about 1e-12, which a test checks where scipy is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()

_STEPS = 500
"""Terms of the continued fraction: it converges in some dozens for all degrees of freedom that occur."""

_TINY = 1e-300
"""Stands for 0 in a denominator of the continued fraction."""

_BISECTIONS = 200
"""Halvings of an interval: after that no float lies between its ends."""


def normal_quantile(probability: float) -> float:
    """The value that a standard normal variable stays below with this probability."""
    return _NORMAL.inv_cdf(probability)


def normal_cdf(value: float) -> float:
    """The probability that a standard normal variable is at most `value`."""
    return _NORMAL.cdf(value)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction of the mirror image converges faster
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value, before = d, 0.0
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            c = 1.0 + numerator / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            before, value = value, value * c * d
        if value == before:
            break
    return value


def t_cdf(value: float, df: float) -> float:
    """The probability that Student's t with `df` degrees of freedom is at most `value`."""
    tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + value * value))
    return 1.0 - tail if value > 0 else tail


def t_two_sided(value: float, df: float) -> float:
    """The probability that Student's t lies at least as far from 0 as `value`, on either side."""
    if math.isinf(value):
        return 0.0
    return incomplete_beta(df / 2.0, 0.5, df / (df + value * value))


@lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """The value that Student's t stays below with this probability."""
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    high = 1.0
    while t_cdf(high, df) < probability and high < 1e300:
        high *= 2.0
    return _bisected(lambda value: t_cdf(value, df) < probability, 0.0, high)


def _bisected(is_below: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if is_below(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def binomial_two_sided(first: int, second: int) -> float:
    """The exact probability of a split of `first + second` fair coins that is at least as uneven as this one."""
    total, least = first + second, min(first, second)
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, number) for number in range(least + 1))
    return min(1.0, float(2 * tail / 2**total)) if total < 1000 else min(1.0, _ratio(2 * tail, total))


def _ratio(tail: int, total: int) -> float:
    """`tail / 2**total` of integers that are too large for floats."""
    shift = max(0, tail.bit_length() - 64)
    return math.ldexp(float(tail >> shift), shift - total)
