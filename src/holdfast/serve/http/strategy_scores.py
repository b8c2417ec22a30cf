"""How strategies did in the latest evaluations: read from their reports, and kept until an evaluation changes."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.store.contract import Store
from holdfast.strategies.evaluation.evaluation import Evaluation
from holdfast.strategies.evaluation.overview import EvaluationOverview, list_evaluations
from holdfast.strategies.evaluation.report.report import EvaluationReport

EVALUATIONS = 20
"""Evaluations that are looked at, the newest first: what is older says little of the code of today."""


class StrategyScore(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a strategy in the latest evaluation that has some."""

    strategy: str
    evaluation: str
    arm: str
    """Of several arms with the strategy, the one that passes most."""
    pass_rate: float
    low: float | None
    """Where the 95 % interval of its score begins."""
    high: float | None
    n: int
    """Cases with a score."""
    cost: float | None
    at: int
    """When the evaluation began."""


class StrategyScores:
    """The scores of strategies in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[int, list[StrategyScore]]] = {}
        """By evaluation: when it was last changed, and what it says."""

    async def latest(self, id_prefix: str) -> list[StrategyScore]:
        """One score for each strategy, by name."""
        found: dict[str, StrategyScore] = {}
        overviews = await list_evaluations(self._store, EVALUATIONS, id_prefix)
        for overview in overviews:
            for score in await self._of(overview):
                found.setdefault(score.strategy, score)
        if not id_prefix:
            shown = {overview.id for overview in overviews}
            self._kept = {id: kept for id, kept in self._kept.items() if id in shown}
        return [found[name] for name in sorted(found)]

    async def _of(self, overview: EvaluationOverview) -> list[StrategyScore]:
        if overview.kind == "scenario" and overview.cases == 0:
            return []
        kept = self._kept.get(overview.id)
        if kept is not None and kept[0] == overview.updated_at and overview.state != "running":
            return kept[1]
        report = await Evaluation(overview.id, self._store).report()
        scores = await asyncio.to_thread(_scores, overview, report)
        self._kept[overview.id] = (overview.updated_at, scores)
        return scores


def _scores(overview: EvaluationOverview, report: EvaluationReport) -> list[StrategyScore]:
    best: dict[str, StrategyScore] = {}
    for arm, figures in zip(report.plan.arms, report.arms, strict=True):
        rate, known = figures.pass_rate, best.get(arm.subject)
        if rate is None or (known is not None and known.pass_rate >= rate):
            continue
        interval = figures.interval
        best[arm.subject] = StrategyScore(
            strategy=arm.subject,
            evaluation=overview.id,
            arm=arm.name,
            pass_rate=rate,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            n=0 if figures.score is None else figures.score.n,
            cost=figures.cost,
            at=overview.created_at,
        )
    return [*best.values()]
