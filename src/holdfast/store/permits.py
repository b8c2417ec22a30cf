"""Permits: how the processes on a store count together, so that they keep to limits as one.

A *counter* is what is counted together: a limit and, if it is one by key, a value. A call asks for one permit, which
counts in several counters. It takes its place in all of them, or it waits in the line of the first that is full.

Rules of this file
------------------
- Places at once have an end, too: that of the lease, which their owner renews. A place of a rate is not given back.
- The line of a counter is in the order of `rank`: the time of arrival, less `PRIORITY_MS` for each step of priority. A
  call that asks again keeps its place in line, whoever asks for it.
- There is room in a counter for a call if there is more of it than those need who wait in its line before the call.
  Those who wait for another counter do not count: they could not use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.values import check_value
from holdfast.store.limits import READ_LIMIT

PRIORITY_MS = 10_000
"""Milliseconds of waiting that one step of priority counts for: longer than most calls take, and short enough that the
least of all calls is not overtaken for more than three minutes."""

MAX_TICKET_CHARS = 500
"""Characters of a ticket or a counter: two ids, or the names in a limit; and a key that fits into an index."""


class PermitShare(msgspec.Struct, frozen=True):
    """A place in one counter."""

    counter: str
    most: int
    """How many places there are."""
    period_ms: int = 0
    """For how long the place is taken; 0: until it is given back."""


class PermitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks for."""

    ticket: str
    """Names the call, for whichever process makes it."""
    session_id: str
    owner: str
    shares: tuple[PermitShare, ...]
    priority: int = 0
    hold_ms: int
    """For how long the permit, or the place in line, is kept without a sign of life of its owner."""


class PermitTurn(msgspec.Struct, frozen=True):
    """Whose turn it is in a line."""

    counter: str
    owner: str


class PermitReply(msgspec.Struct, frozen=True):
    """Whether a call may begin."""

    waits_for: str | None = None
    """The counter in whose line it stands; None if it has its permit."""
    rank: int = 0
    """Its place in line, for comparison with others."""
    again_ms: int | None = None
    """Milliseconds after which there may be room because time has passed; None if nobody knows."""
    next: tuple[PermitTurn, ...] = ()
    """Whose turn it is in counters that have still room after this call."""


class PermitWait(msgspec.Struct, frozen=True):
    """A call that waits in line."""

    session_id: str
    ticket: str
    counter: str
    since: int
    owner: str


class CounterUse(msgspec.Struct, frozen=True):
    """How much of a counter is in use."""

    counter: str
    taken: int
    waiting: int


class PermitStore(ABC):
    """What limits need of a store. Times are the store's own; what has run out by them is as if it was not there."""

    async def take_permit(self, request: PermitRequest) -> PermitReply:
        """Take a place in each counter, all or none; without room, stand in the line of the first that is full.

        A ticket that has its permit keeps it: the owner and the end of its places at once are those of this request,
        and only places of rates are taken once more.
        """
        for named in (request.ticket, *(share.counter for share in request.shares)):
            _check_name(named)
        check_id(request.session_id, "session id")
        check_id(request.owner, "owner")
        if len({share.counter for share in request.shares}) < max(1, len(request.shares)):
            raise InvalidValueError("permit", "it counts in at least one counter, and once in each")
        if request.hold_ms < 1 or any(share.most < 1 or share.period_ms < 0 for share in request.shares):
            raise InvalidValueError("permit", "its numbers are at least 1, and a period is at least 0")
        return await self._take_permit(request)

    async def give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]:
        """Give back the places at once of a ticket, or leave the line; says whose turn it is now in those counters.

        Nothing happens if another owner has it by now.
        """
        _check_name(ticket)
        return await self._give_back_permit(ticket, owner)

    async def renew_permits(self, owner: str, hold_ms: int) -> None:
        """Keep all places at once, and all places in lines, of an owner for so long from now.

        What has run out, of any owner, may be removed on this occasion.
        """
        await self._renew_permits(owner, hold_ms)

    async def release_permits(self, owner: str) -> list[PermitTurn]:
        """Give back all that an owner has, and leave all lines; says whose turn it is now."""
        return await self._release_permits(owner)

    async def permit_waits(self, session_ids: Sequence[str] = (), limit: int = READ_LIMIT) -> list[PermitWait]:
        """The calls that wait, of some sessions or (none) of all, in the order of their lines."""
        check_value(list(session_ids), "session ids")
        return await self._permit_waits(session_ids, max(0, limit))

    async def counter_uses(self, limit: int = READ_LIMIT) -> list[CounterUse]:
        """The counters in use, by name."""
        return await self._counter_uses(max(0, limit))

    # --- what a store implements: called with what was checked ------------------------------------

    @abstractmethod
    async def _take_permit(self, request: PermitRequest) -> PermitReply: ...

    @abstractmethod
    async def _give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]: ...

    @abstractmethod
    async def _renew_permits(self, owner: str, hold_ms: int) -> None: ...

    @abstractmethod
    async def _release_permits(self, owner: str) -> list[PermitTurn]: ...

    @abstractmethod
    async def _permit_waits(self, session_ids: Sequence[str], limit: int) -> list[PermitWait]: ...

    @abstractmethod
    async def _counter_uses(self, limit: int) -> list[CounterUse]: ...


def rank_of(now: int, priority: int) -> int:
    """The place in line of a call that arrives now."""
    return now - priority * PRIORITY_MS


class CounterState(msgspec.Struct, frozen=True):
    """What a store knows of a counter when a call asks for a place in it."""

    taken: int
    """Places that others have."""
    ahead: int
    """How many stand in its line before the call."""
    next_end: int | None = None
    """When the first of those places ends by itself."""


def first_full(request: PermitRequest, states: Sequence[CounterState]) -> int | None:
    """Which share of a request there is no room for, the first of them; None if it can have its permit."""
    for index, (share, state) in enumerate(zip(request.shares, states, strict=True)):
        if state.taken + state.ahead >= share.most:
            return index
    return None


def with_room(request: PermitRequest, states: Sequence[CounterState]) -> list[str]:
    """The counters that have room for one more after a request was granted."""
    pairs = zip(request.shares, states, strict=True)
    return [share.counter for share, state in pairs if state.taken + 1 < share.most]


def refusal(request: PermitRequest, full: int, state: CounterState, rank: int, now: int) -> PermitReply:
    """The reply to a call that has to wait."""
    share = request.shares[full]
    by_time = share.period_ms and state.next_end is not None
    return PermitReply(share.counter, rank, max(1, (state.next_end or now) - now) if by_time else None)


def _check_name(name: str) -> None:
    check_value([name], "permit")
    if not 0 < len(name) <= MAX_TICKET_CHARS or "\0" in name:
        raise InvalidValueError("permit", f"a ticket or counter has 1 to {MAX_TICKET_CHARS} characters, and no NUL")


class _Place(msgspec.Struct):
    counter: str
    ticket: str
    owner: str
    until: int
    is_held: bool


class _InLine(msgspec.Struct):
    session_id: str
    owner: str
    counter: str
    rank: int
    since: int
    until: int


class PermitBook:
    """Permits in memory, for one process. Each method is called with the present time."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._lines: dict[str, _InLine] = {}
        """Those who wait, by ticket."""

    def _clean(self, now: int) -> None:
        self._places = [each for each in self._places if each.until > now]
        self._lines = {ticket: each for ticket, each in self._lines.items() if each.until > now}

    def take(self, request: PermitRequest, now: int) -> PermitReply:
        """See `PermitStore.take_permit`."""
        self._clean(now)
        waiting = self._lines.get(request.ticket)
        has_it = any(each.ticket == request.ticket and each.is_held for each in self._places)
        rank = waiting.rank if waiting is not None else rank_of(now, request.priority)
        place = (rank, request.ticket)
        states = [self._state(share.counter, request.ticket, place) for share in request.shares]
        full = None if has_it else first_full(request, states)
        if full is not None:
            since = waiting.since if waiting is not None else now
            line = request.shares[full].counter
            self._lines[request.ticket] = _InLine(
                request.session_id, request.owner, line, rank, since, now + request.hold_ms
            )
            return refusal(request, full, states[full], rank, now)
        self._lines.pop(request.ticket, None)
        self._places = [each for each in self._places if not (each.ticket == request.ticket and each.is_held)]
        for share in request.shares:
            until = now + (share.period_ms or request.hold_ms)
            self._places.append(_Place(share.counter, request.ticket, request.owner, until, not share.period_ms))
        return PermitReply(rank=rank, next=tuple(self._turns(with_room(request, states))))

    def _state(self, counter: str, ticket: str, place: tuple[int, str]) -> CounterState:
        ends = [
            each.until
            for each in self._places
            if each.counter == counter and not (each.ticket == ticket and each.is_held)
        ]
        ahead = sum(
            each.counter == counter and (each.rank, other) < place
            for other, each in self._lines.items()
            if other != ticket
        )
        return CounterState(len(ends), ahead, min(ends, default=None))

    def give_back(self, ticket: str, owner: str, now: int) -> list[PermitTurn]:
        """See `PermitStore.give_back_permit`."""
        self._clean(now)
        mine = [each for each in self._places if each.ticket == ticket and each.owner == owner and each.is_held]
        return self._end(mine, [ticket] if ticket in self._lines and self._lines[ticket].owner == owner else [])

    def release(self, owner: str, now: int) -> list[PermitTurn]:
        """See `PermitStore.release_permits`."""
        self._clean(now)
        mine = [each for each in self._places if each.owner == owner and each.is_held]
        return self._end(mine, [ticket for ticket, each in self._lines.items() if each.owner == owner])

    def _end(self, places: Sequence[_Place], tickets: Sequence[str]) -> list[PermitTurn]:
        counters = {each.counter for each in places} | {self._lines[ticket].counter for ticket in tickets}
        for ticket in tickets:
            del self._lines[ticket]
        self._places = [each for each in self._places if each not in places]
        return self._turns(sorted(counters))

    def _turns(self, counters: Sequence[str]) -> list[PermitTurn]:
        """Who is first in the lines of these counters."""
        turns: list[PermitTurn] = []
        for counter in counters:
            line = [(each.rank, ticket, each.owner) for ticket, each in self._lines.items() if each.counter == counter]
            turns += [PermitTurn(counter, min(line)[2])] if line else []
        return turns

    def renew(self, owner: str, hold_ms: int, now: int) -> None:
        """See `PermitStore.renew_permits`."""
        self._clean(now)
        kept: list[_Place | _InLine] = [each for each in self._places if each.is_held]
        for each in [*kept, *self._lines.values()]:
            if each.owner == owner:
                each.until = now + hold_ms

    def waits(self, session_ids: Sequence[str], limit: int, now: int) -> list[PermitWait]:
        """See `PermitStore.permit_waits`."""
        self._clean(now)
        wanted = set(session_ids)
        ordered = sorted(self._lines.items(), key=lambda item: (item[1].rank, item[0]))
        return [
            PermitWait(each.session_id, ticket, each.counter, each.since, each.owner)
            for ticket, each in ordered
            if not wanted or each.session_id in wanted
        ][:limit]

    def uses(self, limit: int, now: int) -> list[CounterUse]:
        """See `PermitStore.counter_uses`."""
        self._clean(now)
        taken = [each.counter for each in self._places]
        waiting = [each.counter for each in self._lines.values()]
        return [CounterUse(each, taken.count(each), waiting.count(each)) for each in sorted({*taken, *waiting})][:limit]
