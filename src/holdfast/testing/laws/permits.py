"""Laws of permits: what all processes on a store may do together, and who is next."""

from __future__ import annotations

import asyncio

from holdfast.core.errors import InvalidValueError
from holdfast.store.contract import Store
from holdfast.store.permits import PRIORITY_MS, CounterUse, PermitReply, PermitRequest, PermitShare, PermitTurn
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.patience import patience, until

LONG_MS = 600_000
"""Milliseconds for which a permit is held that no test waits for."""

SHORT_MS = 60
"""Milliseconds for which one is held whose end is waited for."""


async def take(
    store: Store,
    ticket: str,
    *shares: tuple[str, int] | tuple[str, int, int],
    owner: str = "p-1",
    priority: int = 0,
    hold_ms: int = LONG_MS,
) -> PermitReply:
    """Ask for a permit in counters, given with how many places there are and for how long a place is taken."""
    session_id = ticket.partition("/")[0]
    counted = tuple(PermitShare(*share) for share in shares)
    asked = PermitRequest(
        ticket=ticket, session_id=session_id, owner=owner, shares=counted, priority=priority, hold_ms=hold_ms
    )
    return await store.take_permit(asked)


async def granted(store: Store, tickets: list[str], *shares: tuple[str, int], owner: str = "p-1") -> list[str]:
    """Those of these tickets that get their permit when they ask, one after the other."""
    return [each for each in tickets if (await take(store, each, *shares, owner=owner)).waits_for is None]


async def until_granted(store: Store, ticket: str, *shares: tuple[str, int] | tuple[str, int, int]) -> None:
    """Ask again and again, until there is room."""

    async def is_granted() -> bool:
        return (await take(store, ticket, *shares)).waits_for is None

    await until(is_granted)


class PermitLaws(Laws):
    """Taking permits, waiting in line, giving them back."""

    async def test_as_many_get_a_permit_as_there_are_places(self, store: Store) -> None:
        tickets = [f"s-{n}/q-0" for n in range(5)]
        assert await granted(store, tickets, ("service:a", 3)) == tickets[:3]
        assert await store.counter_uses() == [CounterUse("service:a", 3, 2)]

    async def test_a_permit_that_is_given_back_goes_to_whoever_waits_for_the_longest(self, store: Store) -> None:
        await granted(store, ["s-0/q-0", "s-1/q-0"], ("a", 1))
        await take(store, "s-2/q-0", ("a", 1), owner="p-2")
        assert await store.give_back_permit("s-0/q-0", "p-1") == [PermitTurn("a", "p-1")]
        assert (await take(store, "s-2/q-0", ("a", 1), owner="p-2")).waits_for == "a"
        assert (await take(store, "s-3/q-0", ("a", 1))).waits_for == "a"
        assert (await take(store, "s-1/q-0", ("a", 1))).waits_for is None
        assert await store.give_back_permit("s-1/q-0", "p-1") == [PermitTurn("a", "p-2")]
        assert (await take(store, "s-2/q-0", ("a", 1), owner="p-2")).waits_for is None

    async def test_all_places_are_taken_or_none(self, store: Store) -> None:
        await take(store, "s-0/q-0", ("b", 1))
        assert (await take(store, "s-1/q-0", ("a", 1), ("b", 1))).waits_for == "b"
        assert (await take(store, "s-2/q-0", ("a", 1))).waits_for is None

    async def test_who_waits_elsewhere_holds_up_nobody(self, store: Store) -> None:
        await granted(store, [f"s-{n}/q-0" for n in range(9)], ("key:c=acme", 1), ("service", 3))
        assert (await take(store, "t-1/q-0", ("key:c=bolt", 1), ("service", 3))).waits_for is None
        assert (await take(store, "t-2/q-0", ("key:c=cone", 1), ("service", 3))).waits_for is None
        assert (await take(store, "t-3/q-0", ("key:c=dash", 1), ("service", 3))).waits_for == "service"

    async def test_a_priority_overtakes_those_who_came_shortly_before(self, store: Store) -> None:
        await take(store, "s-0/q-0", ("a", 1))
        low = await take(store, "s-1/q-0", ("a", 1), priority=-1)
        usual = await take(store, "s-2/q-0", ("a", 1))
        high = await take(store, "s-3/q-0", ("a", 1), priority=2)
        assert high.rank < usual.rank < low.rank
        assert usual.rank - high.rank <= 2 * PRIORITY_MS
        assert [wait.ticket for wait in await store.permit_waits()] == ["s-3/q-0", "s-2/q-0", "s-1/q-0"]
        await store.give_back_permit("s-0/q-0", "p-1")
        assert (await take(store, "s-2/q-0", ("a", 1))).waits_for == "a"
        assert (await take(store, "s-3/q-0", ("a", 1), priority=2)).waits_for is None

    async def test_the_same_ticket_again_keeps_its_permit_and_its_place(self, store: Store) -> None:
        assert (await take(store, "s-0/q-0", ("a", 1))).waits_for is None
        assert (await take(store, "s-0/q-0", ("a", 1), owner="p-2")).waits_for is None
        assert await store.counter_uses() == [CounterUse("a", 1, 0)]
        first = await take(store, "s-1/q-0", ("a", 1))
        assert await take(store, "s-1/q-0", ("a", 1), owner="p-2", priority=5) == first
        (wait,) = await store.permit_waits()
        assert (wait.session_id, wait.counter, wait.owner) == ("s-1", "a", "p-2")

    async def test_only_its_owner_gives_a_permit_back(self, store: Store) -> None:
        await take(store, "s-0/q-0", ("a", 1))
        await take(store, "s-0/q-0", ("a", 1), owner="p-2")
        assert await store.give_back_permit("s-0/q-0", "p-1") == []
        assert (await take(store, "s-1/q-0", ("a", 1))).waits_for == "a"
        assert await store.give_back_permit("s-0/q-0", "p-2") == [PermitTurn("a", "p-1")]
        assert await store.give_back_permit("s-0/q-0", "p-2") == []

    async def test_whoever_leaves_the_line_holds_up_nobody(self, store: Store) -> None:
        await granted(store, ["s-0/q-0", "s-1/q-0", "s-2/q-0"], ("a", 1))
        await store.give_back_permit("s-0/q-0", "p-1")
        assert await store.give_back_permit("s-1/q-0", "p-1") == [PermitTurn("a", "p-1")]
        assert (await take(store, "s-2/q-0", ("a", 1))).waits_for is None
        assert await store.permit_waits() == []

    async def test_whoever_gets_a_permit_learns_who_else_may_have_one(self, store: Store) -> None:
        await granted(store, ["s-0/q-0", "s-1/q-0"], ("a", 2))
        await take(store, "s-2/q-0", ("a", 2))
        await take(store, "s-3/q-0", ("a", 2), owner="p-2")
        await store.give_back_permit("s-0/q-0", "p-1")
        await store.give_back_permit("s-1/q-0", "p-1")
        assert (await take(store, "s-2/q-0", ("a", 2))).next == (PermitTurn("a", "p-2"),)
        assert (await take(store, "s-3/q-0", ("a", 2), owner="p-2")).next == ()

    async def test_what_is_not_renewed_ends(self, store: Store) -> None:
        await take(store, "s-0/q-0", ("a", 1), hold_ms=SHORT_MS)
        await take(store, "s-1/q-0", ("a", 1), owner="gone", hold_ms=SHORT_MS)
        await until_granted(store, "s-2/q-0", ("a", 1))
        assert await store.permit_waits() == []

    async def test_what_is_renewed_stays(self, store: Store) -> None:
        await take(store, "s-0/q-0", ("a", 1), ("r", 1, LONG_MS), hold_ms=int(patience(5_000)))
        await store.renew_permits("p-1", LONG_MS)
        await store.renew_permits("p-2", 1)
        assert (await take(store, "s-1/q-0", ("a", 1))).waits_for == "a"

    async def test_all_of_an_owner_is_released_at_once(self, store: Store) -> None:
        await granted(store, ["s-0/q-0", "s-1/q-0"], ("a", 2), ("b", 2))
        await take(store, "s-2/q-0", ("a", 2))
        await take(store, "s-3/q-0", ("a", 2), owner="p-2")
        assert await store.release_permits("p-1") == [PermitTurn("a", "p-2")]
        assert await store.counter_uses() == [CounterUse("a", 0, 1)]
        assert (await take(store, "s-3/q-0", ("a", 2), owner="p-2")).waits_for is None

    async def test_a_rate_frees_its_places_by_time_alone(self, store: Store) -> None:
        share = ("model/s", 2, 400)
        for n in range(2):
            assert (await take(store, f"s-{n}/q-0", share)).waits_for is None
            assert await store.give_back_permit(f"s-{n}/q-0", "p-1") == []
        refusal = await take(store, "s-2/q-0", share)
        if refusal.waits_for is not None:  # else so much time has passed
            assert refusal.again_ms is not None
            assert 0 < refusal.again_ms <= 400
        await until_granted(store, "s-2/q-0", share)

    async def test_every_call_counts_for_a_rate(self, store: Store) -> None:
        assert (await take(store, "s-0/q-0", ("model/h", 2, LONG_MS))).waits_for is None
        assert (await take(store, "s-0/q-0", ("model/h", 2, LONG_MS))).waits_for is None
        assert (await take(store, "s-0/q-0", ("model/h", 2, LONG_MS))).waits_for == "model/h"

    async def test_waits_are_listed_by_session(self, store: Store) -> None:
        await granted(store, [f"s-{n}/q-{n}" for n in range(4)], ("a", 1))
        assert [wait.ticket for wait in await store.permit_waits(["s-2", "s-3", "s-9"])] == ["s-2/q-2", "s-3/q-3"]
        assert len(await store.permit_waits(limit=2)) == 2
        assert await store.permit_waits(["s-0"]) == []

    async def test_a_request_that_makes_no_sense_is_refused(self, store: Store) -> None:
        with refused(InvalidValueError):
            await take(store, "s-0/q-0")
        for share in (("a", 0), ("a", 1, -1), ("", 1), ("a" * 501, 1)):
            with refused(InvalidValueError):
                await take(store, "s-0/q-0", share)
        with refused(InvalidValueError):
            await take(store, "s-0/q-0", ("a", 1), ("a", 1))
        assert await store.counter_uses() == []

    async def test_permits_are_counted_over_all_store_objects(self, store: Store, store_url: str) -> None:
        async with self.share(store_url) as other:
            tickets = [f"s-{n}/q-0" for n in range(40)]
            replies = await asyncio.gather(
                *(take((store, other)[n % 2], each, ("a", 7), ("b", 9)) for n, each in enumerate(tickets))
            )
            assert sum(reply.waits_for is None for reply in replies) == 7
