"""The tool `holdfast.card`, which answers `alc.card` of programs, and where the cards of a user are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from holdfast.alc.cards.box import CardBox
from holdfast.alc.cards.library import CardLibrary
from holdfast.alc.cards.sinks import sinks_from
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt
from holdfast.programs.paths import algocline_home, home
from holdfast.store.contract import Store
from holdfast.store.errors import StoreUnavailableError


def card_effect(store: Store, directory: Path | None) -> Callable[..., Awaitable[Json]]:
    """What answers queries about cards: those of the store and the user, or only those in files below a directory.

    It recognises its own work when it is run again.
    """
    alone = None if directory is None else CardBox(directory / "cards")

    async def answer(*, attempt: Attempt, **arguments: Json) -> Json:
        again = attempt.number > 1
        try:
            if alone is not None:
                return await asyncio.to_thread(alone.answer, arguments, again)
            return await own_library(store).answer(arguments, again)
        except StoreUnavailableError:
            raise  # that is no answer: it is run again
        except HoldfastError as error:
            return Failure(str(error), error.kind)

    return answer


def own_library(store: Store) -> CardLibrary:
    """The cards of a store, with the user's files: Holdfast's, and algocline's, which are only read."""
    box, theirs = own_box(), algocline_home() / "cards"
    return CardLibrary(store, box, () if theirs == box.directory else (_box(theirs, ""),))


def own_box() -> CardBox:
    """The cards in Holdfast's directory, mirrored as the environment says."""
    return _box(home() / "cards", os.environ.get("HOLDFAST_CARD_SINKS") or os.environ.get("ALC_CARD_SINKS") or "")


@cache
def _box(directory: Path, sinks: str) -> CardBox:
    return CardBox(directory, sinks_from(sinks) if sinks else ())
