"""The conversations of this process, each kept up with its journal: by commits made here, and by reading on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from holdfast.core.conversation import Conversation
from holdfast.core.records import Entry
from holdfast.store.contract import Store
from holdfast.store.limits import READ_LIMIT

KEPT = 1_000
"""Conversations kept in memory: as many as programs are. The others are folded anew when they are needed."""


class Conversations:
    """Conversations by session."""

    def __init__(self, store: Store, kept: int = KEPT) -> None:
        self._store = store
        self._kept = kept
        self._known: OrderedDict[str, Conversation] = OrderedDict()

    def committed(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Entries that have just become durable, by this process."""
        conversation = self._known.get(session_id)
        if conversation is None or not entries:
            return
        if entries[0].position != conversation.position + 1:
            if entries[-1].position > conversation.position:
                del self._known[session_id]  # somebody else has written in between
            return
        for entry in entries:
            conversation.apply(entry)

    async def get(self, session_id: str, *, fresh: bool = False) -> Conversation:
        """A conversation. With `fresh`, also with what other processes have written until now."""
        conversation = self._known.get(session_id)
        if conversation is None:
            conversation = Conversation(session_id)
            fresh = True
        if fresh:
            await self._read_on(conversation)
            self._known[session_id] = conversation
        self._known.move_to_end(session_id)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)
        return conversation

    async def _read_on(self, conversation: Conversation) -> None:
        while True:
            page = await self._store.read(conversation.session_id, conversation.position)
            for entry in page:
                if entry.position == conversation.position + 1:  # commits made here may come in between
                    conversation.apply(entry)
            if len(page) < READ_LIMIT:
                return

    def forget(self, session_id: str) -> None:
        """Let go of a conversation."""
        self._known.pop(session_id, None)
