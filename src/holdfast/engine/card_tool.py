"""`alc.card`: cards are files, so they are written by an effect that recognises itself when it is run again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Effect
from holdfast.programs.paths import home

if TYPE_CHECKING:
    from holdfast.alc.cards import CardBox


def card_effect(box: Callable[[], CardBox]) -> Effect:
    """What does with the cards in a box as a program asks. It runs in a thread, because it waits for the disk."""

    def answer(*, attempt: Attempt, **arguments: Json) -> Json:
        try:
            return box().answer(arguments, again=attempt.number > 1)
        except HoldfastError as error:
            return Failure(str(error), error.kind)

    return answer


def own_box() -> CardBox:
    """The cards in Holdfast's directory, mirrored as the environment says."""
    sinks = os.environ.get("HOLDFAST_CARD_SINKS") or os.environ.get("ALC_CARD_SINKS") or ""
    return _box(home() / "cards", sinks)


@cache
def _box(directory: Path, sinks: str) -> CardBox:
    from holdfast.alc.cards import CardBox, sinks_from

    return CardBox(directory, sinks_from(sinks) if sinks else ())
