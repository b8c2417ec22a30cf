"""What answers the runtime's own tools, each named by its home.

Durable state is not among them: `state_tool` answers it in the commit that records the answer.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import cast

from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Effect, Recovery
from holdfast.programs.kinds import load_object
from holdfast.programs.own_tools import CARD_TOOL
from holdfast.store.contract import Store

_HOMES: dict[str, tuple[str, Recovery]] = {
    CARD_TOOL: ("holdfast.alc.cards.tool:card_effect", "idempotent"),
}
"""`module:function` of each, imported when the tool is first asked: `function(store, home)` gives the effect."""


def own_effects(store: Store, home: Path | None = None) -> dict[str, tuple[Effect, Recovery]]:
    """The effect of each tool, by its name. With a `home`, all they write is kept below it alone."""
    return {name: (_loaded_late(where, store, home), recovery) for name, (where, recovery) in _HOMES.items()}


def _loaded_late(where: str, store: Store, home: Path | None) -> Effect:
    @cache
    def effect() -> Effect:
        return cast(Effect, load_object(where)(store, home))

    async def run(*, attempt: Attempt, **arguments: Json) -> Json:
        return await effect()(attempt=attempt, **arguments)

    return run
