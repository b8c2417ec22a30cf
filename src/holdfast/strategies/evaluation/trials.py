"""Trials: their ids, and what is kept of each beside its session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from holdfast.core.values import Json
from holdfast.strategies.evaluation.plan import FrozenPlan

Status: TypeAlias = Literal["done", "error", "missing", "over_budget", "cancelled"]
"""How a trial ended: with a result; because the strategy raised; because a service was down; for lack of its share of
the budget, so that it counts as not run; or because somebody ended it."""

_ID = re.compile(r"t-(?P<arm>.+)-(?P<case>\d+)-(?P<repeat>\d+)(?:\+(?P<attempt>\d+))?\Z")


class TrialKey(NamedTuple):
    """One run of a case by an arm."""

    arm: str
    case: int
    """The number of the case in the dataset."""
    repeat: int

    def session_id(self, evaluation: str, attempt: int = 1) -> str:
        """The id of the session of an attempt."""
        return f"{evaluation}.t-{self.suffix(attempt)}"

    def suffix(self, attempt: int) -> str:
        """What the ids of sessions about an attempt end with."""
        return f"{self.arm}-{self.case}-{self.repeat}{f'+{attempt}' if attempt > 1 else ''}"


class TrialAttempt(NamedTuple):
    """One attempt at a trial."""

    key: TrialKey
    number: int

    def grading_id(self, evaluation: str, grader: str, judge: int) -> str:
        """The id of the session in which a grader asks its n-th judge about this attempt."""
        return f"{evaluation}.g-{grader}-{judge}-{self.key.suffix(self.number)}"


def parse_trial_id(session_id: str, evaluation: str) -> tuple[TrialKey, int] | None:
    """The trial and the attempt that a session is; None if it is no trial of the evaluation."""
    found = _ID.match(session_id.removeprefix(f"{evaluation}."))
    if found is None or not session_id.startswith(f"{evaluation}."):
        return None
    return TrialKey(found["arm"], int(found["case"]), int(found["repeat"])), int(found["attempt"] or 1)


class TrialRow(msgspec.Struct, frozen=True, array_like=True):
    """What a report needs of a trial: a projection of its session."""

    case: int
    attempt: int
    order: int
    """The number of the order that this attempt was made for."""
    status: Status
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """None if the price of a model is not known."""
    own_ms: int = 0
    waiting_ms: int = 0
    error: str = ""
    earlier: tuple[float, int, int] = (0.0, 0, 0)
    """Cost, tokens and calls of the attempts before this one: spent, but not part of any figure of the arm."""
    reused: str | None = None
    """The session of another evaluation that ran it. Its figures count for the arm, but nothing was spent here."""

    def session_id(self, evaluation: str, key: TrialKey) -> str:
        """The session that ran this attempt."""
        return self.reused or key.session_id(evaluation, self.attempt)

    @property
    def spent(self) -> tuple[float, int, int]:
        """Cost, tokens and calls of this attempt and those before."""
        cost, tokens, calls = self.earlier
        if self.reused is not None:
            return cost, tokens, calls
        return cost + (self.cost or 0.0), tokens + self.prompt_tokens + self.completion_tokens, calls + self.calls


class GradeRow(msgspec.Struct, frozen=True, array_like=True):
    """What a grader said of an attempt."""

    case: int
    attempt: int
    score: float | None
    grade: Json = None
    why: str | None = None
    cost: float | None = None
    """What its judges cost; None if they cost nothing, or nobody knows."""


def all_trials(plan: FrozenPlan, cases: int) -> Iterator[TrialKey]:
    """Every trial of a plan. Arms take turns, so that what is there can be compared at any time."""
    for repeat in range(plan.repeat):
        for case in range(cases):
            for arm in plan.arms:
                yield TrialKey(arm.name, case, repeat)
