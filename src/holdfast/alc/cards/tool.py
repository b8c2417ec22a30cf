"""The tool `holdfast.card`: cards are files, so an effect writes them, and recognises its own work when it is run
again."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from holdfast.alc.cards.box import CardBox
from holdfast.alc.cards.sinks import sinks_from
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Effect
from holdfast.programs.paths import home


def card_effect(directory: Path | None) -> Effect:
    """What answers queries about cards: those below a directory, or the user's own. It runs in a thread, because it
    waits for the disk."""

    given = None if directory is None else CardBox(directory / "cards")

    def answer(*, attempt: Attempt, **arguments: Json) -> Json:
        try:
            return (given or own_box()).answer(arguments, again=attempt.number > 1)
        except HoldfastError as error:
            return Failure(str(error), error.kind)

    return answer


def own_box() -> CardBox:
    """The cards in Holdfast's directory, mirrored as the environment says."""
    return _box(home() / "cards", os.environ.get("HOLDFAST_CARD_SINKS") or os.environ.get("ALC_CARD_SINKS") or "")


@cache
def _box(directory: Path, sinks: str) -> CardBox:
    return CardBox(directory, sinks_from(sinks) if sinks else ())
