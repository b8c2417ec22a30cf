"""The part of the store's contract that a copy of a whole store needs: what there is beside the sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from holdfast.core.ids import check_id
from holdfast.core.values import check_number
from holdfast.store.limits import READ_LIMIT
from holdfast.store.upkeep import in_range


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of a deleted session: its id, which is never used again."""

    session_id: str
    deleted_at: int


class InventoryStore(ABC):
    """What can be listed of a store, and brought into another, beside its sessions and their mail."""

    async def namespaces(self) -> list[str]:
        """The namespaces that have state items, sorted by code point."""
        return await self._namespaces()

    async def tombstones(self, after: str = "", limit: int = READ_LIMIT) -> list[Tombstone]:
        """The deleted sessions whose ids come after another, sorted by code point."""
        return await self._tombstones(after, in_range(limit))

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Remember ids as those of deleted sessions, as if they had been deleted here.

        One that is remembered already stays as it is; so does a session that has the id, and it is not deleted.
        """
        for each in tombstones:
            check_id(each.session_id, "session id")
            check_number(each.deleted_at, "time of a deletion")
        await self._bury(tombstones)

    @abstractmethod
    async def _namespaces(self) -> list[str]: ...

    @abstractmethod
    async def _tombstones(self, after: str, limit: int) -> list[Tombstone]: ...

    @abstractmethod
    async def _bury(self, tombstones: Sequence[Tombstone]) -> None: ...
