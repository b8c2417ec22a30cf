"""`ArmFigures`: all figures of one arm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.statistics.estimates import (
    Estimate,
    Interval,
    Spread,
    estimate,
    mean,
    pass_all,
    pass_at,
    percentile,
    spread,
    wilson,
)
from holdfast.strategies.evaluation.trials import TrialRow

MAX_MISSING = 0.05
"""The share of an arm's trials that may be missing before comparisons with it say nothing."""

PASS_KS = (1, 2, 3, 5, 10)
"""The k for which pass@k and pass^k are told, as far as there are as many repeats."""

MOST_GROUPS = 8
"""Groups of failures that are told, the largest first."""


class TrialScore(msgspec.Struct, frozen=True):
    """A trial with its score; None if it counts for nothing."""

    row: TrialRow
    score: float | None


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds that half and 95 of 100 sessions took at most."""

    p50: float
    p95: float


class FailureGroup(msgspec.Struct, frozen=True):
    """Trials that failed in the same way."""

    why: str
    count: int
    example: int
    """The number of one of the cases."""


class TagScore(msgspec.Struct, frozen=True):
    """The mean score on the cases with a tag."""

    tag: str
    n: int
    score: float


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an arm."""

    arm: str
    digest: str
    model: str | None
    score: Estimate | None
    """Over the cases' means; None if nothing was scored."""
    weighted_score: float | None = None
    """With the weights of cases, if they have any."""
    pass_rate: float | None = None
    pass_interval: Interval | None = None
    """Wilson's, where each case was tried once and no clusters are given."""
    pass_at: dict[str, float] = {}
    pass_all: dict[str, float] = {}
    spread: Spread | None = None
    trials: int = 0
    """That have run."""
    errors: int = 0
    missing: int = 0
    ungraded: int = 0
    reused: int = 0
    """Of the trials, those that another evaluation ran."""
    not_run: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """None if the price is not known."""
    cost_per_trial: float | None = None
    cost_per_pass: float | None = None
    own_ms: Latency | None = None
    waiting_ms: Latency | None = None
    tags: list[TagScore] = []
    failures: list[FailureGroup] = []

    @property
    def interval(self) -> Interval | None:
        """The interval of the score: Wilson's, if scores are passes and fails."""
        if self.score is None:
            return None
        is_rate = self.pass_interval is not None and self.pass_rate == self.score.mean
        return self.pass_interval if is_rate else self.score.interval

    @property
    def is_comparable(self) -> bool:
        """Whether few enough trials are missing."""
        return not self.trials or self.missing / self.trials <= MAX_MISSING


def arm_figures(
    arm: Arm, cases: Sequence[Case], trials: Sequence[Sequence[TrialScore]], *, repeat: int, clustered: bool
) -> ArmFigures:
    """The figures of an arm; `trials` has those of each case that have run."""
    scored = [
        (case, [each.score for each in tries if each.score is not None])
        for case, tries in zip(cases, trials, strict=True)
    ]
    kept = [(case, scores) for case, scores in scored if scores]
    rows = [each.row for tries in trials for each in tries]
    run = [row for row in rows if row.status != "over_budget"]
    costs = [row.cost for row in rows]
    cost = None if None in costs or not costs else math.fsum(each for each in costs if each is not None)
    passes = sum(score == 1.0 for _, scores in kept for score in scores)
    return ArmFigures(
        arm=arm.name,
        digest=arm.digest,
        model=arm.model,
        score=_score(kept, clustered),
        weighted_score=_weighted(kept),
        **_passes(kept, clustered),
        spread=spread([scores for _, scores in kept]),
        trials=len(run),
        errors=sum(row.status == "error" for row in run),
        missing=sum(row.status in ("missing", "cancelled") for row in run),
        ungraded=sum(each.row.status == "done" and each.score is None for tries in trials for each in tries),
        reused=sum(row.reused is not None for row in run),
        not_run=repeat * len(cases) - len(run),
        calls=sum(row.calls for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        completion_tokens=sum(row.completion_tokens for row in rows),
        cost=cost,
        cost_per_trial=None if cost is None or not run else cost / len(run),
        cost_per_pass=None if cost is None or not passes else cost / passes,
        own_ms=_latency([row.own_ms for row in run]),
        waiting_ms=_latency([row.waiting_ms for row in run]),
        tags=_tags(kept),
        failures=_groups(rows),
    )


def _score(kept: Sequence[tuple[Case, list[float]]], clustered: bool) -> Estimate | None:
    if not kept:
        return None
    clusters = [case.cluster if case.cluster is not None else case.id for case, _ in kept] if clustered else None
    return estimate([mean(scores) for _, scores in kept], clusters)


def _weighted(kept: Sequence[tuple[Case, list[float]]]) -> float | None:
    if not kept or all(case.weight == 1.0 for case, _ in kept):
        return None
    return sum(case.weight * mean(scores) for case, scores in kept) / sum(case.weight for case, _ in kept)


def _passes(kept: Sequence[tuple[Case, list[float]]], clustered: bool) -> dict[str, Any]:
    if not kept:
        return {}
    counts = [(len(scores), sum(score == 1.0 for score in scores)) for _, scores in kept]
    least = min(n for n, _ in counts)
    rate = mean([passed / n for n, passed in counts])

    def told(figure: Literal["at", "all"]) -> dict[str, float]:
        function = pass_at if figure == "at" else pass_all
        found = {k: [function(k, n, passed) for n, passed in counts] for k in PASS_KS if k <= least and least > 1}
        return {str(k): mean([value for value in values if value is not None]) for k, values in found.items()}

    is_plain = least == max(n for n, _ in counts) == 1 and not clustered
    interval = wilson(sum(passed for _, passed in counts), len(counts)) if is_plain else None
    return {"pass_rate": rate, "pass_interval": interval, "pass_at": told("at"), "pass_all": told("all")}


def _latency(values: Sequence[int]) -> Latency | None:
    return Latency(percentile(values, 0.5), percentile(values, 0.95)) if values else None


def _tags(kept: Sequence[tuple[Case, list[float]]]) -> list[TagScore]:
    by_tag: dict[str, list[float]] = {}
    for case, scores in kept:
        for tag in case.tags:
            by_tag.setdefault(tag, []).append(mean(scores))
    return [TagScore(tag, len(scores), mean(scores)) for tag, scores in sorted(by_tag.items())]


def _groups(rows: Sequence[TrialRow]) -> list[FailureGroup]:
    counts: Counter[str] = Counter()
    examples: dict[str, int] = {}
    for row in rows:
        if row.status != "done":
            why = f"{row.status}: {row.error.splitlines()[0] if row.error else 'no reason was given'}"
            counts[why] += 1
            examples.setdefault(why, row.case)
    return [FailureGroup(why, count, examples[why]) for why, count in counts.most_common(MOST_GROUPS)]
