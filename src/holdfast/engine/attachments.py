"""`Attachments`: what other layers hang on a live session: the context of an agent, the channel to its watchers.

A live session owns what hangs on it: it is made when somebody first asks for it, kept for as long as the session is
alive in this process, and closed with it. Some of it may pin the session: then it is not forgotten to make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from holdfast.core.records import Entry

A = TypeVar("A", bound="Attachment")


class Attachment(Protocol):
    """Something that belongs to one session in this process."""

    @property
    def is_pinned(self) -> bool:
        """Whether the session has to stay alive here: nobody could bring back what this holds."""
        ...

    def committed(self, entries: Sequence[Entry]) -> None:
        """Entries of the session were made durable here."""
        ...

    async def close(self) -> None:
        """Let go of everything: the session is not alive in this process any more."""
        ...


AttachmentFactories: TypeAlias = Mapping[type[Any], Callable[[str], Attachment]]
"""How attachments are made, by their class, for a session with an id."""


class Attachments:
    """What hangs on one session."""

    def __init__(self, session_id: str, factories: AttachmentFactories) -> None:
        self._session_id = session_id
        self._factories = factories
        self._attached: dict[type[Any], Attachment] = {}

    def get(self, kind: type[A]) -> A:
        """The attachment of a class; made when it is first asked for."""
        attached = self._attached.get(kind)
        if attached is None:
            attached = self._attached[kind] = self._factories[kind](self._session_id)
        found: A = attached  # type: ignore[assignment]  # it was made for its class
        return found

    def peek(self, kind: type[A]) -> A | None:
        """The attachment of a class, if it was asked for before."""
        found: A | None = self._attached.get(kind)  # type: ignore[assignment]
        return found

    @property
    def are_pinned(self) -> bool:
        """Whether the session has to stay alive for one of them."""
        return any(attached.is_pinned for attached in self._attached.values())

    def __bool__(self) -> bool:
        return bool(self._attached)

    def committed(self, entries: Sequence[Entry]) -> None:
        """Tell all of them of entries that were made durable here."""
        if self._attached:
            for attached in list(self._attached.values()):
                attached.committed(entries)

    async def close(self) -> None:
        """Close all of them."""
        attached, self._attached = self._attached, {}
        await asyncio.gather(*(each.close() for each in attached.values()))
