"""`alc.card`: cards are files, so they are written by an effect that recognises itself when it is run again."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import OWN_TOOLS, Failure
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt
from holdfast.programs.lua.packages import home

if TYPE_CHECKING:
    from holdfast.cards import CardBox

CARD_TOOL = f"{OWN_TOOLS}card"


def answer(*, attempt: Attempt, **arguments: Json) -> Json:
    """Do what a program asks of the cards; run in a thread, because it waits for the disk."""
    sinks = os.environ.get("HOLDFAST_CARD_SINKS") or os.environ.get("ALC_CARD_SINKS") or ""
    try:
        return _box(home() / "cards", sinks).answer(arguments, again=attempt.number > 1)
    except HoldfastError as error:
        return Failure(str(error), error.kind)


@cache
def _box(directory: Path, sinks: str) -> CardBox:
    from holdfast.cards import CardBox, sinks_from

    return CardBox(directory, sinks_from(sinks) if sinks else ())
