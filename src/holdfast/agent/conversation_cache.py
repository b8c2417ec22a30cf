"""`ConversationCache`: conversations in memory, kept up to date by this process's commits and by reading journals."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, TypeAlias

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.turn_phases import PhaseProbe, phase_of, tell
from holdfast.core.records import Entry
from holdfast.store.contract import Store
from holdfast.store.limits import READ_LIMIT

KEPT = 1_000
"""Conversations kept in memory: as many as programs. Others are folded again when they are needed."""

Residency: TypeAlias = Literal["keep_all", "active_path_only"]
"""What is kept of a conversation in memory: all of it, or only the path to its active leaf."""


class _Kept:
    """A conversation in memory."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.reading = asyncio.Lock()
        self.is_read = False
        """Whether the journal has been read to its end once."""
        self.written = 0
        """How far this process has written the journal."""

    @property
    def is_current(self) -> bool:
        """Whether it includes everything that this process has written."""
        return self.is_read and self.conversation.position >= self.written


class ConversationCache:
    """Conversations by session."""

    def __init__(self, store: Store, residency: Residency = "keep_all", kept: int = KEPT) -> None:
        self._store = store
        self._keep_all = residency == "keep_all"
        self._most = kept
        self._known: OrderedDict[str, _Kept] = OrderedDict()
        self._probes: dict[str, PhaseProbe] = {}

    def committed(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Fold entries that this process has just made durable."""
        kept = self._known.get(session_id)
        if kept is None or not entries:
            return
        kept.written = entries[-1].position
        self._apply(kept, entries)

    def is_by_others(self, session_id: str) -> bool:
        """Whether another process wrote the latest known entry of a session."""
        kept = self._known.get(session_id)
        return kept is not None and kept.conversation.position > kept.written

    def probe(self, session_id: str, probe: PhaseProbe | None) -> None:
        """Call a probe with the phases of a session's turns when they become known here; None stops that."""
        self._probes.pop(session_id, None)
        if probe is not None:
            self._probes[session_id] = probe

    async def get(self, session_id: str, *, fresh: bool = False) -> Conversation:
        """A conversation. With `fresh`, including what other processes have written."""
        kept = self._known.get(session_id)
        if kept is None:
            kept = self._known[session_id] = _Kept(Conversation(session_id, keep_all=self._keep_all))
        self._known.move_to_end(session_id)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        if fresh or not kept.is_current:
            try:
                await self._read_on(kept)
            except BaseException:
                if not kept.is_read and self._known.get(session_id) is kept:
                    del self._known[session_id]
                raise
        return kept.conversation

    async def with_query(self, session_id: str, query_id: str) -> Conversation:
        """The conversation in which a query waits. Another process may have asked it."""
        conversation = await self.get(session_id)
        return conversation if query_id in conversation.asked else await self.get(session_id, fresh=True)

    async def whole(self, session_id: str) -> Conversation:
        """The whole conversation, including what is not kept in memory."""
        if self._keep_all:
            return await self.get(session_id)
        kept = _Kept(Conversation(session_id))
        await self._read_on(kept)
        return kept.conversation

    async def _read_on(self, kept: _Kept) -> None:
        async with kept.reading:
            while True:
                conversation = kept.conversation
                page = await self._store.read(conversation.session_id, conversation.position)
                self._apply(kept, page)
                if len(page) == READ_LIMIT or conversation.position < kept.written:
                    continue
                kept.is_read = True
                if conversation.keeps_all or conversation.leaf in conversation.nodes:
                    return
                kept.conversation = Conversation(conversation.session_id)  # too much was dropped: read all of it again

    def _apply(self, kept: _Kept, entries: Sequence[Entry]) -> None:
        """Fold the next entries. Commits and reads overtake each other; each entry is folded once."""
        conversation = kept.conversation
        probe = self._probes.get(conversation.session_id) if kept.is_read else None
        for entry in entries:
            if entry.position != conversation.position + 1:
                continue
            phase = phase_of(conversation, entry) if probe is not None else None
            conversation.apply(entry)
            if probe is not None and phase is not None:
                tell(probe, phase)
