"""Orders: what people want of an evaluation after it began, and the plan that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.values import Json
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.trials import TrialRow

Retried: TypeAlias = Literal["errors", "failed"]
"""Which trials are tried again: those without a result, or also those that did not pass."""


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One order."""

    do: Literal["run", "retry", "add", "grade"]
    budget: Budget | None = None
    """The new limits, which replace those before; None leaves them."""
    which: Retried | None = None
    repeat: int | None = None
    arms: list[Arm] = []
    graders: list[GraderSpec] = []
    accepted_drift: list[str] = []
    """Differences from the frozen plan that whoever ordered this knows of."""
    key: str = ""
    """The request that it came with, if that may be sent again: it is carried out once."""


class Terms(msgspec.Struct, frozen=True):
    """What an evaluation is by now: its plan with all that was ordered since."""

    plan: FrozenPlan
    gradings: list[list[GraderSpec]]
    """The graders of the plan, and those of each later grading."""
    last: WorkOrder
    number: int
    """How many orders there were."""
    accepted_drift: list[str]
    keys: set[str]
    """Of the requests that orders came with."""

    @property
    def all_graders(self) -> list[GraderSpec]:
        """Every grader that was ever wanted, each once."""
        return list({spec.digest: spec for grading in self.gradings for spec in grading}.values())


def terms_of(plan: FrozenPlan, orders: Sequence[Json]) -> Terms:
    """The terms that follow from the orders so far."""
    read = [msgspec.convert(order, WorkOrder) for order in orders]
    arms, repeat, budget = list(plan.arms), plan.repeat, plan.budget
    gradings, drift = [plan.graders], list[str]()
    for order in read:
        known = {arm.name for arm in arms}
        arms += [arm for arm in order.arms if arm.name not in known]
        repeat = max(repeat, order.repeat or 0)
        budget = order.budget or budget
        drift += order.accepted_drift
        if order.graders:
            gradings.append(order.graders)
    now = msgspec.structs.replace(plan, arms=arms, repeat=repeat, budget=budget)
    keys = {order.key for order in read if order.key}
    return Terms(now, gradings, read[-1], len(read), drift, keys)


def next_attempt(order: WorkOrder, number: int, row: TrialRow | None, *, passed: bool) -> int | None:
    """The attempt at a trial that an order asks for; None if what is there will do.

    An attempt that was made for this very order is not repeated: the order may be carried out again after a crash.
    """
    if row is None:
        return 1
    if row.order >= number:
        return None
    if row.status == "over_budget":
        return row.attempt + 1
    if order.do != "retry":
        return None
    is_failed = row.status in ("error", "missing", "cancelled")
    return row.attempt + 1 if is_failed or (order.which == "failed" and not passed) else None
