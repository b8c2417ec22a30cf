"""What the benchmarks have in common: figures made of rounds, what they are compared with, and the text they write."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Rate: TypeAlias = Callable[[float], Awaitable[float]]
"""Works for so many seconds, and gives how often per second it did what is measured."""


class UnavailableError(Exception):
    """What a benchmark needs is not there; the message says what."""


@dataclass(frozen=True)
class Plan:
    """How long to measure, how often, and where."""

    seconds: float
    repeat: int
    directory: Path
    say: Callable[[str], None]
    turns: int = 5_000
    """Turns of the longest chat."""


@dataclass(frozen=True)
class Target:
    """What a figure should be at most or at least."""

    of: Literal["value", "ratio"]
    sign: Literal["<=", ">="]
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.bound:,.10g}"


@dataclass(frozen=True)
class Round:
    """One measurement, and the floor right before and right after it."""

    value: float
    before: float | None = None
    after: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None:
            return None
        return self.value / statistics.mean((self.before, self.after))


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    unit: str
    rounds: list[Round]
    floor: str | None = None
    """The name of what the rounds were compared with."""
    targets: list[Target] = field(default_factory=list)

    @property
    def value(self) -> float:
        return statistics.median(r.value for r in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        values = [r.value for r in self.rounds]
        return min(values), max(values)

    @property
    def floors(self) -> list[float]:
        return [rate for r in self.rounds for rate in (r.before, r.after) if rate is not None]

    @property
    def ratios(self) -> list[float]:
        return [r.ratio for r in self.rounds if r.ratio is not None]

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    def meets(self, target: Target) -> bool:
        found = self.value if target.of == "value" else self.ratio
        if found is None:
            return False
        return found <= target.bound if target.sign == "<=" else found >= target.bound


async def interleave(plan: Plan, name: str, floor: Rate, measured: Rate) -> tuple[list[Round], list[Round]]:
    """Floor, measurement, floor, measurement, …, floor: every measurement has a floor on either side.

    Gives rounds of how often per second, and rounds of the CPU time of this process for each (µs).
    """
    rates: list[Round] = []
    costs: list[Round] = []
    before = await _timed(floor, plan.seconds)
    for number in range(1, plan.repeat + 1):
        found = await _timed(measured, plan.seconds)
        after = await _timed(floor, plan.seconds)
        rate, cost = (Round(*three) for three in zip(found, before, after, strict=True))
        rates.append(rate)
        costs.append(cost)
        figures = f"{found[0]:,.0f}/s, floor {before[0]:,.0f} and {after[0]:,.0f}/s"
        plan.say(f"{name}: round {number}/{plan.repeat}: {figures}")
        before = after
    return rates, costs


async def _timed(rate: Rate, seconds: float) -> tuple[float, float]:
    """How often per second, and the CPU time of each (µs)."""
    spent, began = time.process_time(), time.perf_counter()
    found = await rate(seconds)
    times = found * (time.perf_counter() - began)
    return found, (time.process_time() - spent) * 1e6 / max(times, 1)


_VOCABULARY = (
    "a about after agent all an answer any are as ask at be before budget but by call can change could count do each "
    "for found from give good has have how if in into is it keep know last left like line list long look made make "
    "many may model more most must need new next no not now of on one only open or other our out over part person "
    "plan point read reason same say see send session she should show so some state step still such take tell text "
    "than that the their them then there these they thing this those time to told tool try turn two up use value "
    "very wait want was way we well were what when where which while who will with word work would write year you"
)
_WORDS = _VOCABULARY.split()


@cache
def texts(size: int, count: int = 256) -> list[str]:
    """Different texts of `size` bytes that compress about as well as chats do: words, and now and then a number."""
    source = random.Random(size)
    return [_text(source, size) for _ in range(count)]


def _text(source: random.Random, size: int) -> str:
    words: list[str] = []
    left = size
    while left > 0:
        word = source.choice(_WORDS) if source.random() < 0.75 else f"{source.getrandbits(32):x}"
        words.append(word)
        left -= len(word) + 1
    return " ".join(words)[:size].ljust(size, ".")


def latencies(plan: Plan, what: str, name: str, took_ms: list[float], bound_ms: float | None = None) -> list[Figure]:
    """Figures of how long something took, the shortest first: the median, and what one in a hundred exceeds."""
    half, most = statistics.median(took_ms), took_ms[int(len(took_ms) * 0.99)]
    plan.say(f"{name}: {len(took_ms)} times, p50 {half:.2f} ms, p99 {most:.2f} ms")
    targets = [] if bound_ms is None else [Target("value", "<=", bound_ms)]
    return [
        Figure(f"{name}: {what}, p50", "ms", [Round(half)]),
        Figure(f"{name}: {what}, p99", "ms", [Round(most)], targets=targets),
    ]
