"""How a bundled strategy asks, pause by pause, and the figures that it leaves: for the tests of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.events import PausedEvent
from holdfast.core.queries import LlmQuery, Query, Value
from holdfast.core.values import Json
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.lookup import find_program
from holdfast.testing import Rehearsal


def asked(run: Rehearsal) -> list[list[str]]:
    """What the questions were for, pause by pause."""
    found: list[list[str]] = [[] for _ in range(run.pauses)]
    for call in run.calls:
        assert isinstance(call.query, LlmQuery)
        found[call.pause - 1].append(str(call.query.options["role"]))
    return found


async def figures(name: str, ctx: Json, answer: Callable[[Query], Any]) -> dict[str, Json]:
    """The figures that a run leaves in the session's statistics."""
    async with open_holdfast("memory:") as hf:
        event = await hf.start(find_program(name), ctx=ctx, wait=60)
        while isinstance(event, PausedEvent):
            said = {query.id: Value(value=answer(query)) for query in event.queries}
            event = await hf.feed(event.session_id, said, wait=60)
        custom: dict[str, Json] = event.stats["custom"]
        return custom
