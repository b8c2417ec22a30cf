"""`SessionTriggers`: the triggers of one session, in the words of `Triggers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.agent.processes.terms import TurnWork
from holdfast.agent.triggers.history import RunReport
from holdfast.agent.triggers.terms import Source, Target
from holdfast.agent.triggers.triggers import HISTORY, EmitReceipt, EventType, Triggers, TriggerView
from holdfast.core.values import Json


class SessionTriggers:
    """The triggers of one session: they belong to it, and end with it."""

    def __init__(self, triggers: Triggers, session_id: str) -> None:
        self._triggers = triggers
        self._session_id = session_id

    async def register(self, name: str, source: Source, target: Target | str, **terms: Any) -> TriggerView:
        """Register a trigger of this session. A text as its target is the input of a turn of the session."""
        work = TurnWork(input=target, session=self._session_id) if isinstance(target, str) else target
        return await self._triggers.register(name, source, work, session=self._session_id, **terms)

    async def schedule(self, name: str, target: Target | str, **terms: Any) -> TriggerView:
        """Register a schedule of this session, as `Triggers.schedule` does."""
        work = TurnWork(input=target, session=self._session_id) if isinstance(target, str) else target
        return await self._triggers.schedule(name, work, session=self._session_id, **terms)

    async def declare(self, type: str, payload: Mapping[str, Json] | None = None, **options: Any) -> EventType:
        """Declare a type of events, as `Triggers.declare` does."""
        return await self._triggers.declare(type, payload, **options)

    async def list(self) -> list[TriggerView]:
        """The triggers of this session."""
        return await self._triggers.list(session=self._session_id)

    async def show(self, name: str) -> TriggerView:
        """A trigger by its name."""
        return await self._triggers.show(name)

    async def run(self, name: str, *, key: str | None = None) -> TriggerView:
        """Ask for a run now."""
        return await self._triggers.run(name, key=key, by=self._session_id)

    async def history(self, name: str, *, limit: int = HISTORY) -> Sequence[RunReport]:
        """The latest runs of a trigger, the newest first."""
        return await self._triggers.history(name, limit=limit)

    async def update(self, name: str, *, revision: int | None = None, **changes: Any) -> TriggerView:
        """Change a trigger."""
        return await self._triggers.update(name, revision=revision, by=self._session_id, **changes)

    async def enable(self, name: str, *, revision: int | None = None) -> TriggerView:
        """Let a trigger start things again."""
        return await self._triggers.enable(name, revision=revision, by=self._session_id)

    async def disable(self, name: str, *, revision: int | None = None) -> TriggerView:
        """Let a trigger start nothing until it is enabled again."""
        return await self._triggers.disable(name, revision=revision, by=self._session_id)

    async def remove(self, name: str, *, revision: int | None = None) -> TriggerView:
        """Remove a trigger."""
        return await self._triggers.remove(name, revision=revision, by=self._session_id)

    async def emit(self, type: str, key: str = "", payload: Json = None, **options: Any) -> EmitReceipt:
        """Emit an event."""
        return await self._triggers.emit(type, key, payload, by=self._session_id, **options)
