"""Slots: how many effects may be under way at once, and who is next.

An effect holds its slot while it computes. While it waits for another session, as a tool does that runs a child, it
holds none: otherwise the tools that wait would keep out those that they wait for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from holdfast.engine.permits import Permit


class Slots:
    """At most `count` effects at once, and `spare` more for sessions that have none under way here.

    Sessions that wait take turns: one with many effects does not keep out the others.
    """

    def __init__(self, count: int, spare: int = 0) -> None:
        self._free = count + spare
        self._spare = spare
        self._held: dict[str, int] = {}
        """Slots in use, by session."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Those who wait, by session; the session whose turn it is comes first."""

    def try_take(self, session_id: str) -> bool:
        """Take a slot if one is free."""
        if self._free > self._spare or (self._free and session_id not in self._held):
            self._free -= 1
            self._held[session_id] = self._held.get(session_id, 0) + 1
            return True
        return False

    async def take(self, session_id: str) -> None:
        """Take a slot, in turn."""
        if self.try_take(session_id):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(session_id)
            else:
                self._leave(session_id, turn)
            raise

    def give_back(self, session_id: str) -> None:
        """Return a slot. It goes to the next in line that may have it."""
        self._free += 1
        self._held[session_id] -= 1
        if not self._held[session_id]:
            del self._held[session_id]
        for waiting, turns in self._waiting.items():
            turn = next((each for each in turns if not each.done()), None)  # one that is cancelled has yet to leave
            if turn is not None and self.try_take(waiting):
                self._waiting.move_to_end(waiting)
                self._leave(waiting, turn)
                turn.set_result(None)
                return

    def _leave(self, session_id: str, turn: asyncio.Future[None]) -> None:
        self._waiting[session_id].remove(turn)
        if not self._waiting[session_id]:
            del self._waiting[session_id]


class SharedSlots:
    """Slots of one driver which are slots of several, too. Whoever waits for one of the two does not hold the other."""

    def __init__(self, count: int, shared: Slots) -> None:
        self._own = Slots(count)
        self._shared = shared

    def try_take(self, session_id: str) -> bool:
        """Take both if both are free."""
        if not self._own.try_take(session_id):
            return False
        if self._shared.try_take(session_id):
            return True
        self._own.give_back(session_id)
        return False

    async def take(self, session_id: str) -> None:
        """Take both, in turn."""
        while True:
            await self._own.take(session_id)
            if self._shared.try_take(session_id):
                return
            self._own.give_back(session_id)
            await self._shared.take(session_id)
            if self._own.try_take(session_id):
                return
            self._shared.give_back(session_id)

    def give_back(self, session_id: str) -> None:
        """Return both."""
        self._shared.give_back(session_id)
        self._own.give_back(session_id)


class EffectSlot:
    """The slot of one effect: taken before it begins, and given back while it waits and once it is over.

    If the effect needs a permit of the fleet, that goes with the slot. Whoever waits for the permit holds no slot.
    """

    def __init__(self, slots: Slots | SharedSlots, session_id: str, permit: Permit | None = None) -> None:
        self._slots = slots
        self._session_id = session_id
        self._permit = permit
        self._is_held = False
        self._is_over = False
        self._waits = 0
        """How many parts of the effect wait now."""
        self._taking: asyncio.Lock | None = None
        """Held while it waits for the slot, from the first time that it does."""

    def try_take(self) -> bool:
        """Take the slot if it is free."""
        self._is_held = self._slots.try_take(self._session_id)
        return self._is_held

    async def take(self) -> None:
        """Take the slot, in turn, unless the effect has it, waits, or is over."""
        self._taking = self._taking or asyncio.Lock()
        async with self._taking:
            while not self._is_held and not self._is_over and not self._waits:
                await self._slots.take(self._session_id)
                self._is_held = True
                if self._permit is not None:
                    await self._take_permit(self._permit)

    async def _take_permit(self, permit: Permit) -> None:
        """Take the permit; if there is no room, give back the slot, and wait until it is worthwhile to try again."""
        try:
            reply = await permit.take()
        except BaseException:
            self._give_back()
            raise
        if reply.waits_for is not None:
            if self._is_held:  # and no other part of the effect has given it back meanwhile
                self._is_held = False
                self._slots.give_back(self._session_id)
            await permit.room()

    def end(self) -> None:
        """The effect is over, or will not begin."""
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._slots.give_back(self._session_id)
        if self._permit is not None:
            self._permit.give_back()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """The effect waits for something that needs no slot, or one of its own.

        An effect that is cancelled meanwhile does not take the slot again: it is about to end.
        """
        self._waits += 1
        self._give_back()
        try:
            yield
        finally:
            self._waits -= 1
        await self.take()


current_slot: ContextVar[EffectSlot | None] = ContextVar("current_slot", default=None)
"""The slot of the effect that this code is part of, if it is part of one."""
