"""What a plan will cost at most, as far as that can be told before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.limits import DEFAULT_MAX_TOKENS
from holdfast.core.tokens import estimate_tokens
from holdfast.programs.parameters import MetaError, calls_of, filled
from holdfast.strategies.catalog import find_entry
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.models import ModelTable
from holdfast.strategies.evaluation.plan import FrozenPlan


class ArmEstimate(msgspec.Struct, frozen=True):
    """What an arm will need at most; None where nobody can tell."""

    arm: str
    digest: str
    trials: int
    calls: int | None
    cost: float | None


def plan_estimate(plan: FrozenPlan, cases: Sequence[Case]) -> list[ArmEstimate]:
    """What each arm of a plan will need at most: its calls as the strategy states them, each with a full answer."""
    prompt = sum(estimate_tokens(case.task) for case in cases) / len(cases)
    table = ModelTable(plan.prices, 1, {})
    made: list[ArmEstimate] = []
    for arm in plan.arms:
        trials = len(cases) * plan.repeat
        each = _calls(arm)
        calls = None if each is None else each * trials
        price = table.price(arm.model)
        limit = arm.options.get("max_tokens")
        answer = limit if isinstance(limit, int) else DEFAULT_MAX_TOKENS
        cost = None if calls is None or price is None else calls * price.of(round(prompt), answer)
        made.append(ArmEstimate(arm.name, arm.digest, trials, calls, cost))
    return made


def _calls(arm: Arm) -> int | None:
    """How often an arm asks a model for one case, at most; None if it does not say."""
    if arm.kind == "model":
        return 1
    if arm.program.kind != "python":
        return None
    try:
        meta = find_entry(arm.subject).meta
        return calls_of(meta, filled(meta, {"task": "?", **arm.options})) if meta is not None and meta.calls else None
    except (HoldfastError, MetaError, ValueError):
        return None
