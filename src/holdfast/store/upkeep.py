"""The part of the store's contract that upkeep asks again and again: who needs attention, and what is too old.

Every method here is called every few seconds by every process, on stores of a million sessions. So each finds what it
looks for by an index, reads no more rows than it gives back, and costs next to nothing while there is nothing to do.

A session is *open* while it is not over and nobody has a lease of it, not even one that has run out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from holdfast.core.limits import MAX_INTEGER
from holdfast.core.values import check_number, check_value
from holdfast.store.commits import Lease
from holdfast.store.limits import READ_LIMIT
from holdfast.store.watch import Watch


class OpenSession(msgspec.Struct, frozen=True):
    """A session that nobody has a lease of."""

    session_id: str
    position: int
    epoch: int
    number: int
    """Sessions are numbered in the order in which they were created."""
    mail: int = 0
    """The number of its latest message; only `open_mail` looks."""

    @property
    def mark(self) -> tuple[int, int, int]:
        """Differs once anybody has written to it, held it, or sent it a message."""
        return self.position, self.epoch, self.mail


class OpenChild(msgspec.Struct, frozen=True):
    """One with a parent."""

    session_id: str
    parent: str
    number: int


class UpkeepStore(ABC):
    """What upkeep needs of a store. `services` restricts each method to sessions of those services; none means all."""

    async def lost(self, limit: int = READ_LIMIT) -> list[Lease]:
        """Leases whose holder is gone although they have not run out; none where the store cannot tell.

        A holder that was only cut off for a moment comes back, and its leases with it, unless they were claimed
        meanwhile.
        """
        return await self._lost(in_range(limit))

    async def release_expired(self, limit: int = READ_LIMIT) -> int:
        """Release leases that have run out, the oldest first, so that their sessions are open; says how many.

        The holder's epoch stays valid: as long as nobody claims the session, its next commit is accepted.
        """
        return await self._release_expired(in_range(limit))

    async def due(
        self, now: int, limit: int = READ_LIMIT, *, services: Sequence[str] = (), after: int = -1
    ) -> list[tuple[str, int]]:
        """Sessions due at or before `now`, and later than `after`, as (session id, due time), earliest first."""
        _check_services(services)
        return await self._due(in_range(now), in_range(limit), services, max(-1, min(after, MAX_INTEGER // 4)))

    async def open_needs(self, services: Sequence[str] = (), limit: int = READ_LIMIT) -> list[str]:
        """The different `Summary.needs` of the open sessions, sorted by code point; those without needs are left out.

        Costs as much as there are different ones, however many sessions have them.
        """
        _check_services(services)
        return await self._open_needs(services, in_range(limit))

    async def open_sessions(
        self, needs: str, services: Sequence[str] = (), *, before: int | None = None, limit: int = READ_LIMIT
    ) -> list[OpenSession]:
        """Open sessions with exactly these needs, the newest first; with `before`, those with a lower number."""
        check_value([needs], "needs")
        _check_services(services)
        return await self._open_sessions(needs, services, _below(before), in_range(limit))

    async def open_mail(self, services: Sequence[str] = (), limit: int = READ_LIMIT) -> list[OpenSession]:
        """Open sessions with messages that no commit has taken, in the order of those."""
        _check_services(services)
        return await self._open_mail(services, in_range(limit))

    async def open_children(
        self, services: Sequence[str] = (), *, before: int | None = None, limit: int = READ_LIMIT
    ) -> list[OpenChild]:
        """Open sessions that have a parent, the newest first; with `before`, those with a lower number."""
        _check_services(services)
        return await self._open_children(services, _below(before), in_range(limit))

    async def prune(self, ended_before: int, limit: int = READ_LIMIT, *, services: Sequence[str] = ()) -> list[str]:
        """Delete at most `limit` sessions that ended before a time, the longest ended first; gives their ids.

        One transaction, as `delete` for each of them: with a small limit, other writers do not wait long.
        """
        _check_services(services)
        check_number(ended_before, "time of a deletion")
        return await self._prune(ended_before, in_range(limit), services)

    async def is_larger(self, max_bytes: int) -> bool:
        """Whether what is kept takes more than a number of bytes.

        Space that deleted sessions have left for the next ones does not count. A store whose exact size would take long
        to find estimates it.
        """
        check_number(max_bytes, "size of a store")
        return await self._is_larger(max_bytes)

    async def give_back_space(self) -> bool:
        """Give back some of the space that deletions have left, where a store does not do so by itself.

        In small steps: True if there is more, and this should be called again after a moment.
        """
        return await self._give_back_space()

    def watch_others(self) -> Watch:
        """A `Watch` that is notified after every change of any session that was not made through this store object.

        As with `Store.watch`, a notification is a hint. One's own changes may be among them.
        """
        return self._watch_others()

    # --- what a store implements: called with what was checked ------------------------------------

    @abstractmethod
    async def _lost(self, limit: int) -> list[Lease]: ...

    @abstractmethod
    async def _release_expired(self, limit: int) -> int: ...

    @abstractmethod
    async def _due(self, now: int, limit: int, services: Sequence[str], after: int) -> list[tuple[str, int]]: ...

    @abstractmethod
    async def _open_needs(self, services: Sequence[str], limit: int) -> list[str]: ...

    @abstractmethod
    async def _open_sessions(
        self, needs: str, services: Sequence[str], before: int, limit: int
    ) -> list[OpenSession]: ...

    @abstractmethod
    async def _open_mail(self, services: Sequence[str], limit: int) -> list[OpenSession]: ...

    @abstractmethod
    async def _open_children(self, services: Sequence[str], before: int, limit: int) -> list[OpenChild]: ...

    @abstractmethod
    async def _prune(self, ended_before: int, limit: int, services: Sequence[str]) -> list[str]: ...

    @abstractmethod
    async def _is_larger(self, max_bytes: int) -> bool: ...

    @abstractmethod
    async def _give_back_space(self) -> bool: ...

    @abstractmethod
    def _watch_others(self) -> Watch: ...


def in_range(number: int) -> int:
    """A position, time or limit of a read, brought into what stores can count."""
    return max(0, min(number, MAX_INTEGER // 4))  # so that two of them can be added


def _below(number: int | None) -> int:
    return MAX_INTEGER // 4 if number is None else in_range(number)


def _check_services(services: Sequence[str]) -> None:
    if not all(type(each) is str and each.isalnum() and each.isascii() for each in services):
        check_value(list(services), "services")  # most are plain words, and asked for all the time
