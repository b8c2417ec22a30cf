"""Laws of ends: a deleted session is gone with all it had, and its id is remembered for ever."""

from __future__ import annotations

import asyncio

from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.core.queries import HumanQuery
from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.sessions import START, TICK, begin, entries_of, feed, ids_of, picture, timer


class DeletionLaws(Laws):
    """Deleting one session."""

    async def test_a_deleted_session_says_so_to_everyone(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 12_345)
        with refused(SessionDeletedError) as refusal:
            await store.session(task.id)
        assert (refusal.error.session_id, refusal.error.deleted_at) == (task.id, 12_345)
        with refused(SessionDeletedError):
            await store.load(task.id)
        with refused(SessionDeletedError):
            await entries_of(store, task.id)

    async def test_everything_of_a_deleted_session_is_gone(self, store: Store) -> None:
        task = await begin(store, parent="s-parent", ctx=LARGE)
        await task.ask(HumanQuery(prompt="?"), timer(10))
        await store.send(task.id, "key", feed(), 1)
        await store.delete(task.id, 1)
        assert await ids_of(store) == []
        assert await ids_of(store, SessionFilter(id_prefix=task.id)) == []
        assert await ids_of(store, SessionFilter(waiting_for="human", parent="s-parent")) == []
        assert await store.due(2**62) == []

    async def test_the_large_values_of_a_deleted_session_are_gone(self, store: Store) -> None:
        task = await begin(store, ctx=LARGE)
        await store.delete(task.id, 1)
        assert await self.blob_ids(store) == set()

    async def test_the_next_commit_of_the_owner_of_a_deleted_session_is_refused(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 1)
        for epoch in (task.epoch, None):
            with refused(SessionDeletedError):
                await task.log("to nobody", epoch=epoch)
        assert await ids_of(store) == []

    async def test_the_id_of_a_deleted_session_is_not_used_again(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await begin(store, task.id, owner="bob")
        with refused(SessionDeletedError):
            await store.session(task.id)

    async def test_deleting_a_deleted_session_does_nothing(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 111)
        await store.delete(task.id, 222)
        with refused(SessionDeletedError) as refusal:
            await store.session(task.id)
        assert refusal.error.deleted_at == 111

    async def test_deleting_an_unknown_session_is_refused(self, store: Store) -> None:
        with refused(SessionNotFoundError):
            await store.delete("s-none", 1)
        await begin(store, "s-none")

    async def test_deleting_one_session_leaves_all_others_as_they_were(self, store: Store) -> None:
        keep = await begin(store, "s-keep", ctx=LARGE)
        await keep.ask(timer(10))
        await store.send(keep.id, "key", feed(), 1)
        await store.put_state("notes", "key", 1)
        before = await picture(store)
        gone = await begin(store, "s-gone", ctx=LARGE)
        await gone.ask(timer(10))
        await store.send(gone.id, "key", feed(), 1)
        await store.delete(gone.id, 1)
        assert await picture(store) == before
        await keep.answer("q-0", None)

    async def test_a_session_can_be_deleted_in_every_state(self, store: Store) -> None:
        await begin(store, "s-running")
        await (await begin(store, "s-paused")).ask(HumanQuery(prompt="?"))
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            await (await begin(store, f"s-{state}")).end(state)
        for session_id in await ids_of(store):
            await store.delete(session_id, 1)
        assert await ids_of(store) == []

    async def test_a_commit_and_a_deletion_at_once_leave_no_half_session(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}", ctx=LARGE) for n in range(20)]
        calls = [call for task in tasks for call in (task.log("a", LARGE), store.delete(task.id, 1))]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results if isinstance(result, BaseException)} <= {SessionDeletedError}
        assert await ids_of(store) == []
        for task in tasks:
            with refused(SessionDeletedError):
                await store.session(task.id)


class PruningLaws(Laws):
    """Deleting by age."""

    async def test_prune_deletes_what_had_ended_before_a_time_and_nothing_else(self, store: Store) -> None:
        for n, state in enumerate((State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)):
            await (await begin(store, f"s-old-{n}", at=START)).end(state)
        await (await begin(store, "s-new", at=START + 1_000)).end(State.COMPLETED)
        await (await begin(store, "s-paused", at=START)).ask(HumanQuery(prompt="?"))
        await begin(store, "s-running", at=START)
        assert sorted(await store.prune(START + 1_000)) == ["s-old-0", "s-old-1", "s-old-2", "s-old-3"]
        assert await ids_of(store) == ["s-running", "s-paused", "s-new"]
        with refused(SessionDeletedError):
            await store.session("s-old-0")
        assert await store.prune(START + 1_000) == []

    async def test_a_session_that_ended_at_the_very_time_stays(self, store: Store) -> None:
        task = await begin(store)
        await task.end(State.COMPLETED)
        assert await store.prune(START + TICK) == []
        assert await store.prune(START + TICK + 1) == [task.id]

    async def test_prune_deletes_only_sessions_of_the_services_that_are_named(self, store: Store) -> None:
        for n, service in enumerate(["billing", "support", "billing"]):
            await (await begin(store, f"s-{n}", service=service)).end(State.COMPLETED)
        assert sorted(await store.prune(START * 2, services=["billing"])) == ["s-0", "s-2"]
        assert await store.prune(START * 2, services=["other"]) == []
        assert await store.prune(START * 2) == ["s-1"]

    async def test_prune_deletes_at_most_the_limit(self, store: Store) -> None:
        for n in range(5):
            await (await begin(store, f"s-{n}")).end(State.COMPLETED)
        first = await store.prune(START * 2, limit=3)
        assert len(first) == 3
        assert sorted([*first, *await store.prune(START * 2)]) == [f"s-{n}" for n in range(5)]
        assert await ids_of(store) == []
