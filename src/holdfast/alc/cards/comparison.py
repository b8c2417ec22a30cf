"""Two cards side by side: what they have in common, and where they differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.alc.cards.query import MISSING, same
from holdfast.core.values import Json

OWN = ("card_id", "created_at", "created_by", "schema_version")
"""What every card has to itself, and says nothing about a run."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value in which two cards differ."""

    path: str
    a: Json = None
    b: Json = None
    only: str = ""
    """`a` or `b` where the other does not have it."""
    delta: float | None = None
    """How much `b` is above `a`, where both are numbers."""


class CardComparison(msgspec.Struct, frozen=True):
    """What two cards have in common, by path, and what not."""

    a: str
    b: str
    differences: list[Difference]
    same: list[str]


def compare_cards(a: dict[str, Json], b: dict[str, Json]) -> CardComparison:
    """Compare all that two cards say, but for what every card has to itself."""
    left, right = dict(_leaves(a)), dict(_leaves(b))
    differences: list[Difference] = []
    alike: list[str] = []
    for path in sorted({**left, **right}):
        one, other = left.get(path, MISSING), right.get(path, MISSING)
        if one is MISSING:
            differences.append(Difference(path, b=other, only="b"))
        elif other is MISSING:
            differences.append(Difference(path, a=one, only="a"))
        elif same(one, other):
            alike.append(path)
        else:
            differences.append(Difference(path, one, other, delta=_delta(one, other)))
    return CardComparison(str(a.get("card_id")), str(b.get("card_id")), differences, alike)


def _leaves(card: dict[str, Json], path: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in card.items():
        if not path and key in OWN:
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _delta(a: Any, b: Any) -> float | None:
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in (a, b)):
        return float(b - a)
    return None
