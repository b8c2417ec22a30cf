"""Slots: as many effects at once as there are, sessions in turn, and none held by an effect that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core.records import Record
from holdfast.core.state import Session
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.slots import EffectSlot, SharedSlots, Slots
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon, until
from tests.engine.helpers import result


async def in_order(slots: Slots | SharedSlots, sessions: list[str]) -> list[str]:
    """Who gets the one slot, in the order in which they do, if they ask for it in this order."""
    served: list[str] = []

    async def effect(session_id: str) -> None:
        await slots.take(session_id)
        served.append(session_id)
        await asyncio.sleep(0)
        slots.give_back(session_id)

    await soon(asyncio.gather(*(effect(session_id) for session_id in sessions)))
    return served


async def test_sessions_take_turns() -> None:
    assert await in_order(Slots(1), ["a", "a", "a", "a", "b", "b", "c"]) == ["a", "a", "b", "c", "a", "b", "a"]


async def test_a_session_that_has_none_may_have_a_spare_one() -> None:
    slots = Slots(2, spare=1)
    assert [slots.try_take(session) for session in ("a", "a", "a", "b", "c")] == [True, True, False, True, False]
    waiting = [asyncio.create_task(slots.take(session)) for session in ("a", "c")]
    await asyncio.sleep(0)
    slots.give_back("b")
    await soon(waiting[1])
    assert not waiting[0].done()
    slots.give_back("a")
    assert not waiting[0].done()  # what is free now is spare, and "a" has one
    slots.give_back("c")
    await soon(waiting[0])


async def test_a_slot_that_comes_too_late_goes_to_the_next() -> None:
    slots = Slots(1)
    assert slots.try_take("a")
    waiting = [asyncio.create_task(slots.take(session)) for session in ("b", "c", "d")]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    slots.give_back("a")
    waiting[1].cancel()  # it has the slot, and does not know yet
    await asyncio.gather(waiting[1], return_exceptions=True)
    await soon(waiting[2])


async def test_a_slot_does_not_go_to_one_that_has_just_been_cancelled() -> None:
    slots = Slots(1)
    await slots.take("a")
    waits = [asyncio.create_task(slots.take(session_id)) for session_id in ("b", "c")]
    await asyncio.sleep(0)
    waits[0].cancel()
    slots.give_back("a")  # before the cancelled one has noticed
    await soon(waits[1])
    slots.give_back("c")
    assert slots.try_take("d")


async def test_whoever_waits_for_shared_slots_holds_none_of_its_own() -> None:
    shared = Slots(1)
    one, other = SharedSlots(1, shared), SharedSlots(1, shared)
    assert one.try_take("a")
    waiting = asyncio.create_task(other.take("b"))
    await asyncio.sleep(0)
    one.give_back("a")
    await soon(waiting)
    other.give_back("b")
    assert await in_order(other, ["a", "b"]) == ["a", "b"]


async def test_an_effect_that_waits_twice_at_once_takes_its_slot_again_once() -> None:
    slots = Slots(1)
    slot = EffectSlot(slots, "a")
    await slot.take()
    may_end = asyncio.Event()

    async def wait() -> None:
        async with slot.given_back():
            await may_end.wait()

    waits = [asyncio.create_task(wait()) for _ in range(2)]
    await asyncio.sleep(0)
    assert slots.try_take("b")
    may_end.set()
    await asyncio.sleep(0)
    slots.give_back("b")
    await soon(asyncio.gather(*waits))
    assert not slots.try_take("b")
    slot.end()
    assert slots.try_take("b")


async def test_a_tool_that_waits_for_a_session_lets_others_run_meanwhile(hf: Holdfast) -> None:
    async def inner(ctx: Context) -> int:
        return int(await ctx.tool("work", depth=0))

    async def outer(ctx: Context) -> int:
        return int(await ctx.tool("work", depth=1))

    async def work(depth: int) -> int:
        return 1 if depth == 0 else 1 + result(await hf.start(inner))

    hf.drive("work", work, concurrency=1)
    assert result(await soon(hf.start(outer))) == 2


class LosesTheFirst:
    """Takes a session away from this process as soon as its first effect is about to begin."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self.lost = ""

    def records(self, session: Session, now: int) -> Sequence[Record]:
        return ()

    def committed(self, session: Session, *, under_way: bool) -> None:
        if under_way and not self.lost:
            self.lost = session.id
            self._hf.engine.live(session.id).forget()

    def undone(self, session_id: str) -> None:
        return


async def test_an_effect_that_is_stopped_before_it_begins_returns_its_slot(hf: Holdfast) -> None:
    async def program(ctx: Context) -> str:
        await ctx.sleep(0.001)  # so that the session is known here when it asks
        return str(await ctx.tool("work"))

    async def work() -> str:
        return "done"

    hf.drive("work", work, recovery="safe", concurrency=1)
    attendant = LosesTheFirst(hf)
    hf.engine.owner.attendants.append(attendant)
    await hf.start(program, wait=0)
    await until(lambda: bool(attendant.lost))
    assert result(await soon(hf.start(program))) == "done"
