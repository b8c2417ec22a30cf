"""Scorers: how what a grader found (a yes or no, a rating, a length) becomes a score from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.core.values import Json
from holdfast.strategies.evaluation.errors import GraderError

Scorer: TypeAlias = Callable[[Json], float]


def _clamped(value: float) -> float:
    return max(0.0, min(1.0, value))


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def yes_or_number(value: Json) -> float:
    """True is 1, false is 0, and a number is cut to the scale."""
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    number = _number(value)
    return 0.0 if number is None else _clamped(number)


def linear(low: float, high: float) -> Scorer:
    """From 0 at `low` to 1 at `high`."""

    def score(value: Json) -> float:
        number = _number(value)
        return 0.0 if number is None else _clamped((number - low) / (high - low))

    return score


def at_least(least: float) -> Scorer:
    """1 from this value on."""

    def score(value: Json) -> float:
        number = float(value) if isinstance(value, bool) else _number(value)
        return 1.0 if number is not None and number >= least else 0.0

    return score


def steps(pairs: list[tuple[float, float]]) -> Scorer:
    """The score of the highest threshold that a value reaches."""
    ordered = sorted(pairs)

    def score(value: Json) -> float:
        number = _number(value)
        reached = [result for threshold, result in ordered if number is not None and number >= threshold]
        return _clamped(reached[-1]) if reached else 0.0

    return score


def _inverse(value: Json) -> float:
    number = _number(value)
    return 1.0 if number is None or number <= 0 else 1.0 / (1.0 + number / 1000.0)


PRESETS: dict[str, Scorer] = {
    "bool": yes_or_number,
    "linear_1_5": linear(1, 5),
    "linear_1_10": linear(1, 10),
    "linear_0_100": linear(0, 100),
    "pass_50": at_least(0.5),
    "pass_80": at_least(0.8),
    "band_1_5": steps([(1, 0.0), (3, 0.5), (4, 1.0)]),
    "inverse_linear": _inverse,
}


def make_scorer(given: Json, grader: str) -> Scorer:
    """The scorer that a plan describes: a name, `{min, max}`, `{pass}` or `{steps}`. Raises `GraderError`."""
    match given:
        case str() if given in PRESETS:
            return PRESETS[given]
        case {"min": int() | float() as low, "max": int() | float() as high} if low != high:
            return linear(low, high)
        case {"pass": int() | float() as least}:
            return at_least(least)
        case {"steps": list() as pairs} if len(pairs) > 1:
            try:
                return steps([(float(threshold), float(score)) for threshold, score in pairs])
            except (TypeError, ValueError):
                raise GraderError(grader, "steps must be pairs of numbers, [threshold, score]") from None
    names = ", ".join(sorted(PRESETS))
    raise GraderError(grader, f"unknown scorer {given!r}; use one of {names}, or {{min, max}}, {{pass}} or {{steps}}")
