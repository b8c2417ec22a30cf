"""Shares of an evaluation's budget: what a trial may spend, reserved before it starts.

What was spent and what open shares may still spend never passes the limit together. What is left is divided among the
trials that may run at once; near the end, fewer run at once, so that each still gets what trials have needed so far.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.budget import Budget

MARGIN = 1.25
"""How much more than the dearest trial so far the next one may need."""


class Spent(msgspec.Struct, frozen=True):
    """What was spent, or may be."""

    cost: float = 0.0
    tokens: int = 0
    calls: int = 0

    def plus(self, other: Spent, sign: int = 1) -> Spent:
        return Spent(self.cost + sign * other.cost, self.tokens + sign * other.tokens, self.calls + sign * other.calls)


Refusal: TypeAlias = Literal["wait", "exhausted"]


def next_share(
    limits: Budget, spent: Spent, reserved: Spent, slots: tuple[int, int], dearest: Spent
) -> Spent | Refusal:
    """What the next trial may spend; `wait` for others to give back what they did not need, or `exhausted`.

    `slots` are those that are taken and all that there are; `dearest` is the most that a trial has needed so far.
    """
    taken, all_slots = slots
    free = max(1, all_slots - taken)

    def part(limit: float | None, used: float, held: float, needed: float) -> float | Refusal:
        if limit is None:
            return 0.0
        left = limit - used - held
        if left <= 1e-12:
            return "wait" if taken else "exhausted"
        share = left / free
        if share >= needed * MARGIN:
            return share
        if left >= needed * MARGIN:
            return needed * MARGIN
        if taken:
            return "wait"
        return left if left >= needed else "exhausted"

    parts = [
        part(limits.max_cost, spent.cost, reserved.cost, dearest.cost),
        part(limits.max_tokens, spent.tokens, reserved.tokens, max(1, dearest.tokens)),
        part(limits.max_llm_calls, spent.calls, reserved.calls, max(1, dearest.calls)),
    ]
    if "exhausted" in parts:
        return "exhausted"
    if "wait" in parts:
        return "wait"
    cost, tokens, calls = (each for each in parts if not isinstance(each, str))
    return Spent(cost, int(tokens), int(calls))


class SharedBudget:
    """The budget of an evaluation while its trials run."""

    def __init__(self, limits: Budget | None, spent: Spent, slots: int) -> None:
        self.limits = limits
        self.spent = spent
        self._slots = slots
        self._reserved = Spent()
        self._taken = 0
        self._dearest = Spent()
        self._changed = asyncio.Condition()
        self.is_exhausted = False

    async def take(self) -> Spent | None:
        """Reserve a share for a trial; None if the budget is used up. Without limits, a share is empty."""
        if self.limits is None:
            return Spent()
        async with self._changed:
            while not self.is_exhausted:
                share = next_share(self.limits, self.spent, self._reserved, (self._taken, self._slots), self._dearest)
                if isinstance(share, Spent):
                    self._reserved = self._reserved.plus(share)
                    self._taken += 1
                    return share
                if share == "exhausted":
                    self.is_exhausted = True
                    self._changed.notify_all()
                    break
                await self._changed.wait()
        return None

    async def give_back(self, share: Spent, used: Spent, *, was_short: bool) -> None:
        """A trial is over: what it used is spent, and the rest of its share is free. One that was short needs more."""
        self.spent = self.spent.plus(used)
        if self.limits is None:
            return
        async with self._changed:
            self._reserved = self._reserved.plus(share, -1) if self._taken > 1 else Spent()
            self._taken -= 1
            needed = Spent(share.cost * 2, share.tokens * 2, share.calls * 2) if was_short else used
            most = self._dearest
            self._dearest = Spent(
                max(most.cost, needed.cost), max(most.tokens, needed.tokens), max(most.calls, needed.calls)
            )
            self._changed.notify_all()

    def budget_of(self, share: Spent, used: Spent | None = None) -> Budget | None:
        """What a session may spend of a share of which so much is used."""
        if self.limits is None:
            return None
        left = share if used is None else share.plus(used, -1)
        return Budget(
            max_cost=None if self.limits.max_cost is None else max(0.0, left.cost),
            max_tokens=None if self.limits.max_tokens is None else max(0, left.tokens),
            max_llm_calls=None if self.limits.max_llm_calls is None else max(0, left.calls),
        )
