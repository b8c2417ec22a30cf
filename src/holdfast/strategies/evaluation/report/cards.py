"""Evaluations as cards: one for each arm, with its trials as samples. The first arm is what the others follow from.

A small Lua session writes them, so that they are kept wherever cards are kept.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.events import CompletedEvent, FailedEvent
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.kinds import get_language
from holdfast.strategies.evaluation.errors import PlanError
from holdfast.strategies.evaluation.evaluation import Evaluation
from holdfast.strategies.evaluation.report.arm_figures import ArmFigures
from holdfast.strategies.evaluation.report.exports import trial_lines
from holdfast.strategies.evaluation.report.report import EvaluationReport

PROGRAM = "holdfast.evaluation-card"

_CODE = """
local card = alc.card.create(ctx.card)
alc.card.write_samples(card.card_id, ctx.samples)
return card.card_id
"""


async def write_cards(evaluation: Evaluation, hf: Holdfast) -> list[str]:
    """Write a card for each arm that has a score, and give their ids."""
    report = await evaluation.report()
    samples: dict[str, list[dict[str, Any]]] = {figures.arm: [] for figures in report.arms}
    async for line in trial_lines(evaluation):
        samples[line["arm"]].append(line)
    program = get_language("lua").program(_CODE, name=PROGRAM, file="card.lua")
    written: list[str] = []
    for figures in report.arms:
        if figures.score is None:
            continue
        card = _card(report, figures, written[0] if written else None)
        event = await hf.start(program, ctx={"card": card, "samples": samples[figures.arm]})
        if not isinstance(event, CompletedEvent) or not isinstance(event.result, str):
            why = event.error if isinstance(event, FailedEvent) else event.status
            raise PlanError(figures.arm, f"its card could not be written: {why}")
        written.append(event.result)
    return written


def _card(report: EvaluationReport, figures: ArmFigures, baseline: str | None) -> dict[str, Any]:
    assert figures.score is not None
    arm, interval = report.plan.arm(figures.arm), figures.interval
    passed = sum(each.score == 1.0 for tries in report.trials[figures.arm] for each in tries)
    stats = {"mean_score": figures.score.mean, "n": figures.score.n, "passed": passed, "trials": figures.trials}
    if figures.pass_rate is not None:
        stats["pass_rate"] = figures.pass_rate
    if interval is not None:
        stats |= {"ci_lower": interval.low, "ci_upper": interval.high}
    tokens = figures.prompt_tokens + figures.completion_tokens
    cost: dict[str, float] = {"llm_calls": figures.calls, "tokens": tokens}
    if figures.cost is not None:
        cost["usd"] = figures.cost
    metadata = {"holdfast_session": report.id, "arm": figures.arm}
    if baseline is not None:
        metadata |= {"prior_card_id": baseline, "prior_relation": "baseline"}
    return {
        "pkg": {"name": re.sub(r"[^A-Za-z0-9_-]+", "_", arm.subject.rpartition("/")[2]).strip("_") or "arm"},
        **({} if arm.model is None else {"model": {"id": arm.model}}),
        **({"strategy_params": arm.options} if arm.options else {}),
        "scenario": {"name": report.plan.dataset, "digest": report.plan.dataset_digest},
        "stats": stats,
        "cost": cost,
        "metadata": metadata,
    }
