"""Laws of what upkeep asks: which sessions are open, what they need, and that leases are released once they end."""

from __future__ import annotations

import asyncio
from random import Random

from holdfast.core.queries import ChildQuery, HumanQuery, ToolQuery
from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.upkeep import OpenSession
from holdfast.testing.laws.base import Laws
from holdfast.testing.laws.leases import LONG_MS, SHORT_MS, run_out
from holdfast.testing.sessions import begin, claim, feed, ids_of, timer


def _ids(found: list[OpenSession]) -> list[str]:
    return [each.session_id for each in found]


class OpenLaws(Laws):
    """Sessions that nobody has a lease of."""

    async def test_open_sessions_are_found_by_what_they_need(self, store: Store) -> None:
        for number, name in enumerate(["a", "b", "a"]):
            await (await begin(store, f"s-{number}")).ask(ToolQuery(name=name), hold_ms=0)
        await begin(store, "s-running", hold_ms=0)
        await (await begin(store, "s-sleeps")).ask(timer(1_000), hold_ms=0)
        await (await begin(store, "s-over", hold_ms=0)).end(State.COMPLETED)
        assert await store.open_needs() == ["run", "tool:a", "tool:b"]
        assert _ids(await store.open_sessions("tool:a")) == ["s-2", "s-0"]
        assert _ids(await store.open_sessions("run")) == ["s-running"]
        assert _ids(await store.open_sessions("tool:c")) == []
        assert _ids(await store.open_sessions("")) == []

    async def test_a_session_that_is_held_is_not_open_until_it_is_released(self, store: Store) -> None:
        task = await begin(store, "s-0")
        await task.ask(ToolQuery(name="a"), hold_ms=LONG_MS)
        assert await store.open_needs() == []
        assert await store.open_sessions("tool:a") == []
        await store.release(task.lease())
        assert await store.open_needs() == ["tool:a"]
        assert _ids(await store.open_sessions("tool:a")) == ["s-0"]

    async def test_a_mark_differs_after_every_claim_and_commit(self, store: Store) -> None:
        task = await begin(store, "s-0", hold_ms=0)
        (first,) = await store.open_sessions("run")
        await store.release(await claim(store, task.id, "bob"))
        (second,) = await store.open_sessions("run")
        assert first.mark != second.mark
        assert first.number == second.number

    async def test_open_sessions_are_given_page_by_page(self, store: Store) -> None:
        for number in range(5):
            await begin(store, f"s-{number}", hold_ms=0)
        first = await store.open_sessions("run", limit=2)
        rest = await store.open_sessions("run", before=first[-1].number)
        assert _ids([*first, *rest]) == ["s-4", "s-3", "s-2", "s-1", "s-0"]
        assert await store.open_sessions("run", limit=0) == []

    async def test_services_restrict_what_is_open(self, store: Store) -> None:
        for number, service in enumerate(["billing", "support", "billing"]):
            await begin(store, f"s-{number}", service=service, hold_ms=0)
        await store.send("s-1", "m", feed(), 1)
        assert _ids(await store.open_sessions("run", ["billing"])) == ["s-2", "s-0"]
        assert _ids(await store.open_sessions("run", ["support", "billing"])) == ["s-2", "s-1", "s-0"]
        assert await store.open_needs(["other"]) == []
        assert _ids(await store.open_mail(["billing"])) == []
        assert _ids(await store.open_mail(["support"])) == ["s-1"]

    async def test_open_sessions_with_mail_are_given_in_its_order(self, store: Store) -> None:
        for number in range(3):
            await (await begin(store, f"s-{number}")).ask(HumanQuery(prompt="?"), hold_ms=0)
        held = await begin(store, "s-held")
        await store.send(held.id, "m", feed(), 1)
        await store.send("s-2", "m", feed(), 1)
        await store.send("s-0", "m", feed(), 1)
        before = await store.open_mail()
        assert _ids(before) == ["s-2", "s-0"]
        assert _ids(await store.open_mail(limit=1)) == ["s-2"]
        await store.send("s-2", "again", feed(), 1)
        after = await store.open_mail()
        assert [each.session_id for each in after if each not in before] == ["s-2"]

    async def test_open_children_are_those_that_live_and_have_a_parent(self, store: Store) -> None:
        await (await begin(store, "s")).ask(ChildQuery(program="p"), hold_ms=0)
        for number in range(3):
            await begin(store, f"s.q-{number}", parent="s", hold_ms=LONG_MS if number == 1 else 0)
        await (await begin(store, "s.q-9", parent="s", hold_ms=0)).end(State.FAILED)
        children = await store.open_children()
        assert [(each.session_id, each.parent) for each in children] == [("s.q-2", "s"), ("s.q-0", "s")]
        assert [each.session_id for each in await store.open_children(before=children[0].number)] == ["s.q-0"]

    async def test_the_next_due_time_is_found(self, store: Store) -> None:
        for number, delay in enumerate((1_000, 3_000, 2_000)):
            await (await begin(store, f"s-{number}")).ask(timer(delay), hold_ms=0)
        times = [at for _, at in await store.due(2**61)]
        assert [at for _, at in await store.due(2**61, 1, after=times[0])] == [times[1]]
        assert await store.due(2**61, after=times[2]) == []


class ExpiredLeaseLaws(Laws):
    """Leases that have run out."""

    async def test_a_lease_that_has_run_out_is_released_and_its_holder_may_still_write(self, store: Store) -> None:
        task = await begin(store, "s-0", hold_ms=SHORT_MS)
        await begin(store, "s-held", hold_ms=LONG_MS)
        await run_out()
        assert await store.open_needs() == []
        assert await store.release_expired() == 1
        assert _ids(await store.open_sessions("run")) == ["s-0"]
        assert await store.release_expired() == 0
        await task.log("still here")

    async def test_at_most_the_limit_is_released(self, store: Store) -> None:
        for number in range(3):
            await begin(store, f"s-{number}", hold_ms=SHORT_MS)
        await run_out()
        assert [await store.release_expired(2), await store.release_expired(2)] == [2, 1]

    async def test_a_release_wakes_who_watches_others(self, store: Store, store_url: str) -> None:
        task = await begin(store, "s-0", hold_ms=LONG_MS)
        async with self.share(store_url) as other:
            with other.watch_others() as changes:
                while await changes.changed(timeout=0.2):
                    pass  # what happened before
                await store.release(task.lease())
                async with asyncio.timeout(30):
                    while not await other.open_sessions("run"):
                        await changes.changed()

    async def test_a_store_is_as_large_as_what_it_keeps_and_space_that_was_left_does_not_count(
        self, store: Store
    ) -> None:
        most = 2**20
        while await store.is_larger(most):
            most *= 2
        for number in range(4):
            await (task := await begin(store, f"s-{number}")).log(Random(number).randbytes(most).hex())
            await task.end(State.COMPLETED)
        assert await store.is_larger(most)
        await store.prune(2**50)
        assert not await store.is_larger(most)

    async def test_giving_back_space_ends(self, store: Store) -> None:
        for number in range(20):
            await (await begin(store, f"s-{number}")).end(State.COMPLETED)
        await store.prune(2**50)
        for _ in range(1_000):
            if not await store.give_back_space():
                break
        assert not await store.give_back_space()
        assert await ids_of(store) == []
