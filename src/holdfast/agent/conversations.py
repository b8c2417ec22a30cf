"""`Conversations`: the conversations of agents, as live sessions keep them; and one as a store has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.turn_phases import PhaseProbe, phase_of, tell
from holdfast.core.kinds import KindView
from holdfast.core.records import Entry
from holdfast.engine.engine import Engine
from holdfast.engine.owner import ViewObserver
from holdfast.store.contract import Store

Residency: TypeAlias = Literal["keep_all", "active_path_only"]
"""What is kept of a conversation in memory: all of it, or only the path to its active leaf."""


async def read_conversation(store: Store, session_id: str) -> Conversation:
    """The whole conversation of a session, as the store has it now."""
    conversation = Conversation(session_id)
    async for entry in store.journal(session_id):
        conversation.apply(entry)
    return conversation


class Conversations:
    """Conversations by session. Nothing is kept here: a conversation belongs to its live session."""

    def __init__(self, engine: Engine, residency: Residency = "keep_all") -> None:
        self._engine = engine
        self._keep_all = engine.owner.keeps_all_views = residency == "keep_all"
        self._probes: dict[str, ViewObserver] = {}

    async def get(self, session_id: str, *, fresh: bool = False) -> Conversation:
        """A conversation, with all that this process has written; with `fresh`, what others have written as well.

        That of a session which is no agent is empty.
        """
        view = await self._engine.live(session_id).view(fresh=fresh)
        return view if isinstance(view, Conversation) else Conversation(session_id)

    def at_hand(self, session_id: str) -> Conversation | None:
        """A conversation as far as this process knows it now; None if it knows nothing of it."""
        live = self._engine.alive(session_id)
        view = live.shown if live is not None else None
        return view if isinstance(view, Conversation) else None

    async def with_query(self, session_id: str, query_id: str) -> Conversation:
        """The conversation in which a query waits. Another process may have asked it."""
        view = self._engine.live(session_id).shown
        if isinstance(view, Conversation) and query_id in view.asked:
            return view
        return await self.get(session_id, fresh=True)

    async def whole(self, session_id: str) -> Conversation:
        """The whole conversation, including what is not kept in memory."""
        if self._keep_all:
            return await self.get(session_id)
        return await read_conversation(self._engine.owner.store, session_id)

    def is_by_others(self, session_id: str) -> bool:
        """Whether another process wrote the latest known entry of a session."""
        return self._engine.live(session_id).is_by_others

    def probe(self, session_id: str, probe: PhaseProbe | None) -> None:
        """Call a probe with the phases of a session's turns when they become known here; None stops that."""
        owner = self._engine.owner
        if (former := self._probes.pop(session_id, None)) is not None:
            owner.ignore_view(session_id, former)
        if probe is not None:
            self._probes[session_id] = observer = _observer_of(probe)
            owner.observe_view(session_id, observer)


def _observer_of(probe: PhaseProbe) -> ViewObserver:
    """What tells a probe of the phases of turns."""

    def observe(view: KindView, entry: Entry) -> Callable[[], None] | None:
        phase = phase_of(view, entry) if isinstance(view, Conversation) else None
        return None if phase is None else lambda: tell(probe, phase)

    return observe
