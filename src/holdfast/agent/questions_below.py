"""`QuestionsBelow`: what the subagents of a turn ask people and hosts, for whoever streams the turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Self

from holdfast.agent.live_events import Sink, WaitingEvent
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import ChildQuery, Query
from holdfast.engine.engine import Engine
from holdfast.engine.host_view import View


class QuestionsBelow:
    """Announces each question of a descendant of a session once, under the id by which the session takes its answer.

    A question of a grandchild changes nothing in the journal of the session, so its descendants are watched, for as
    long as the turn waits for a child. Without a sink, it does nothing.
    """

    def __init__(self, engine: Engine, session_id: str, sink: Sink | None) -> None:
        self._engine = engine
        self._session_id = session_id
        self._sink = sink
        self._announced: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def look(self, turn: str, asked: Mapping[str, Query]) -> None:
        """Watch the children of a turn, or stop it, as the queries say that it waits for now."""
        has_children = any(isinstance(query, ChildQuery) for query in asked.values())
        if has_children and self._sink is not None and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch(turn, self._sink))
        elif not has_children:
            self._stop()

    def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self, turn: str, sink: Sink) -> None:
        with contextlib.suppress(HoldfastError), View(self._engine, self._session_id) as view:
            while True:
                await view.look()
                found = [each for each in view.opened().values() if "." in each.id and each.id not in self._announced]
                self._announced.update(query.id for query in found)
                if found:
                    await sink(WaitingEvent(turn=turn, queries=found))
                await view.changed()
