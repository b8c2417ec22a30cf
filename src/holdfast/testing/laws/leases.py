"""Laws of ownership: epochs fence writers, leases tell who may claim, and neither is changed by a refusal."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest import SkipTest

import msgspec

from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.store.commits import Lease
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseHeldError, LeaseLostError, PositionConflictError
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import ScriptedSession, begin, claim, entries_of, line, picture

LONG_MS = 600_000
SHORT_MS = 20


async def run_out() -> None:
    """Wait until every lease of `SHORT_MS` has run out."""
    await asyncio.sleep(SHORT_MS / 1_000 * 2.5)


async def take_turns(store: Store, session_id: str, owner: str) -> None:
    """Write ten lines to a session that others write to as well, claiming it for each and letting go of it again."""
    written = 0
    for _ in range(10_000):
        mine = ScriptedSession(store, session_id, owner)
        mine.entries = await entries_of(store, session_id)
        with suppress(LeaseHeldError, PositionConflictError):
            await mine.log(f"{owner} {written}", hold_ms=0)
            written += 1
        if written == 10:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{owner} was always refused")


class FencingLaws(Laws):
    """Which appends are the owner's."""

    async def test_an_append_with_a_stale_epoch_is_refused_and_writes_nothing(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        taken = await claim(store, task.id, "bob")
        before = await picture(store)
        with refused(LeaseLostError) as refusal:
            await task.log("too late")
        assert (refusal.error.session_id, refusal.error.held, refusal.error.current) == (
            task.id,
            task.epoch,
            taken.epoch,
        )
        assert await picture(store) == before

    async def test_an_epoch_that_was_never_given_out_is_refused(self, store: Store) -> None:
        task = await begin(store)
        before = await picture(store)
        for epoch in (0, (task.epoch or 0) + 1, -1):
            with refused(LeaseLostError):
                await store.append(task.commit(line(), epoch=epoch))
        assert await picture(store) == before

    async def test_a_stale_epoch_is_reported_before_a_wrong_position(self, store: Store) -> None:
        task = await begin(store)
        stale = task.commit(line())
        await claim(store, task.id, task.owner)
        task.epoch = None
        await task.log("moved on", epoch=None)
        with refused(LeaseLostError):
            await store.append(stale)

    async def test_a_stale_owner_cannot_write_an_empty_commit_either(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        await claim(store, task.id, "bob")
        with refused(LeaseLostError):
            await task.append(hold_ms=0)
        assert (await store.session(task.id)).owner == "bob"

    async def test_a_lease_that_ran_out_but_was_taken_by_nobody_still_counts(self, store: Store) -> None:
        task = await begin(store, hold_ms=SHORT_MS)
        await run_out()
        assert (await store.session(task.id)).owner is None
        await task.log("still mine", hold_ms=LONG_MS)
        row = await store.session(task.id)
        assert (row.owner, row.epoch, row.position) == ("alice", task.epoch, 2)

    async def test_a_lease_that_was_released_and_taken_by_nobody_still_counts(self, store: Store) -> None:
        task = await begin(store)
        await store.release(task.lease())
        await task.log("still mine")
        assert (await store.session(task.id)).owner == "alice"

    async def test_an_append_without_an_epoch_claims_the_session_in_the_same_commit(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        first = task.epoch
        assert first is not None
        task.owner, task.epoch = "bob", None
        receipt = await task.log("claimed and written", hold_ms=LONG_MS)
        row = await store.session(task.id)
        assert receipt.epoch == row.epoch == first + 1
        assert (row.owner, row.position) == ("bob", 2)

    async def test_an_append_without_an_epoch_to_a_held_session_is_refused_and_writes_nothing(
        self, store: Store
    ) -> None:
        task = await begin(store)
        row = await store.session(task.id)
        before = await picture(store)
        with refused(LeaseHeldError) as refusal:
            await store.append(task.commit(line(), owner="bob", epoch=None))
        assert (refusal.error.session_id, refusal.error.owner, refusal.error.until) == (
            task.id,
            "alice",
            row.lease_until,
        )
        assert await picture(store) == before

    async def test_a_held_session_is_reported_before_a_wrong_position(self, store: Store) -> None:
        task = await begin(store)
        behind = task.commit(line(), owner="bob", epoch=None)
        await task.log("moved on")
        with refused(LeaseHeldError):
            await store.append(behind)

    async def test_a_refused_append_does_not_claim_the_session(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        before = await picture(store)
        with refused(PositionConflictError):
            await store.append(task.commit(owner="bob", epoch=None, expected=7))
        assert await picture(store) == before
        await task.log("my epoch still is the current one")

    async def test_the_owner_itself_may_append_without_its_epoch_and_gets_a_new_one(self, store: Store) -> None:
        task = await begin(store)
        first = task.epoch
        assert first is not None
        receipt = await task.log("claimed anew", epoch=None)
        assert receipt.epoch == first + 1
        with refused(LeaseLostError):
            await store.append(task.commit(line(), epoch=first))

    async def test_a_commit_that_holds_for_no_time_lets_go_of_the_session(self, store: Store) -> None:
        task = await begin(store)
        await task.log("and good-bye", hold_ms=0)
        assert (await store.session(task.id)).owner is None
        assert (await claim(store, task.id, "bob")).owner == "bob"

    async def test_a_commit_holds_the_session_from_now_on(self, store: Store) -> None:
        task = await begin(store, hold_ms=SHORT_MS)
        await task.log("go on", hold_ms=LONG_MS)
        await run_out()
        with refused(LeaseHeldError):
            await claim(store, task.id, "bob")

    async def test_of_many_who_claim_by_appending_at_once_exactly_one_writes(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        commits = [task.commit(line(f"{n}"), owner=f"owner-{n}", epoch=None, hold_ms=LONG_MS) for n in range(10)]
        results = await asyncio.gather(*(store.append(commit) for commit in commits), return_exceptions=True)
        refusals = [result for result in results if isinstance(result, LeaseHeldError)]
        assert len(refusals) == 9
        [_, written] = await entries_of(store, task.id)
        winner = next(commit for commit in commits if commit.entries[0] == written)
        assert (await store.session(task.id)).owner == winner.owner

    async def test_owners_who_take_turns_keep_one_journal(self, store: Store) -> None:
        await begin(store, hold_ms=0)

        await asyncio.gather(*(take_turns(store, "s-1", f"owner-{n}") for n in range(4)))
        lines = [entry.record for entry in await entries_of(store, "s-1")][1:]
        assert len(lines) == len(set(map(str, lines))) == 40
        assert (await store.load("s-1")).position == 41


class LeaseLaws(Laws):
    """Claiming, holding on to and releasing a session by commits that write nothing else."""

    async def test_claiming_a_free_session_raises_its_epoch_by_one(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        lease = await claim(store, task.id, "bob", LONG_MS)
        assert (lease.session_id, lease.owner, lease.epoch) == (task.id, "bob", (task.epoch or 0) + 1)
        row = await store.session(task.id)
        assert (row.owner, row.epoch, row.lease_until) == ("bob", lease.epoch, lease.until)
        assert (row.position, row.summary) == (1, task.summary)
        task.owner, task.epoch = lease.owner, lease.epoch
        await task.log("the lease is good for writing")

    async def test_claiming_a_session_that_another_holds_is_refused_and_changes_nothing(self, store: Store) -> None:
        task = await begin(store)
        before = await picture(store)
        with refused(LeaseHeldError) as refusal:
            await claim(store, task.id, "bob")
        assert (refusal.error.session_id, refusal.error.owner) == (task.id, "alice")
        assert refusal.error.until == (await store.session(task.id)).lease_until
        assert await picture(store) == before

    async def test_claiming_ones_own_session_gives_a_new_epoch(self, store: Store) -> None:
        task = await begin(store)
        lease = await claim(store, task.id, "alice")
        assert lease.epoch == (task.epoch or 0) + 1
        with refused(LeaseLostError):
            await task.log("with the old epoch")

    async def test_a_lease_that_ran_out_can_be_claimed_by_another(self, store: Store) -> None:
        task = await begin(store, hold_ms=SHORT_MS)
        await run_out()
        lease = await claim(store, task.id, "bob")
        assert (lease.owner, lease.epoch) == ("bob", (task.epoch or 0) + 1)
        with refused(LeaseLostError):
            await task.log("overtaken")

    async def test_of_many_who_claim_at_once_exactly_one_gets_it(self, store: Store) -> None:
        task = await begin(store, hold_ms=0)
        claims = [claim(store, task.id, f"owner-{n}", LONG_MS) for n in range(20)]
        results = await asyncio.gather(*claims, return_exceptions=True)
        [winner] = [result for result in results if isinstance(result, Lease)]
        assert [type(result) for result in results].count(LeaseHeldError) == 19
        row = await store.session(task.id)
        assert (row.owner, row.epoch) == (winner.owner, winner.epoch) == (winner.owner, (task.epoch or 0) + 1)

    async def test_claiming_an_unknown_or_deleted_session_says_so(self, store: Store) -> None:
        task = await begin(store)
        claiming = task.commit(owner="bob", epoch=None)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.append(claiming)
        with refused(SessionNotFoundError):
            await store.append(msgspec.structs.replace(claiming, session_id="s-none"))

    async def test_an_empty_commit_holds_the_session_longer_under_the_same_epoch(self, store: Store) -> None:
        task = await begin(store, hold_ms=10_000)
        before = await store.session(task.id)
        receipt = await task.append(hold_ms=60_000)
        assert (receipt.position, receipt.epoch) == (before.position, before.epoch)
        row = await store.session(task.id)
        assert (row.owner, row.epoch, row.position) == ("alice", before.epoch, before.position)
        assert (row.lease_until or 0) >= (before.lease_until or 0) + 49_000

    async def test_holding_on_counts_from_now_also_when_that_is_shorter(self, store: Store) -> None:
        task = await begin(store)
        await task.append(hold_ms=SHORT_MS)
        await run_out()
        assert (await store.session(task.id)).owner is None

    async def test_a_lease_that_ran_out_can_be_held_again_while_nobody_took_it(self, store: Store) -> None:
        task = await begin(store, hold_ms=SHORT_MS)
        await run_out()
        assert (await task.append(hold_ms=LONG_MS)).epoch == task.epoch
        with refused(LeaseHeldError):
            await claim(store, task.id, "bob")

    async def test_holding_on_to_a_lost_lease_is_refused_and_changes_nothing(self, store: Store) -> None:
        task = await begin(store)
        await claim(store, task.id, "alice")
        before = await picture(store)
        with refused(LeaseLostError) as refusal:
            await task.append()
        assert (refusal.error.held, refusal.error.current) == (task.epoch, (task.epoch or 0) + 1)
        assert await picture(store) == before

    async def test_a_released_session_can_be_claimed_at_once(self, store: Store) -> None:
        task = await begin(store)
        await store.release(task.lease())
        assert (await store.session(task.id)).owner is None
        assert (await claim(store, task.id, "bob")).epoch == (task.epoch or 0) + 1

    async def test_releasing_a_lost_lease_does_nothing(self, store: Store) -> None:
        task = await begin(store)
        await claim(store, task.id, "alice")
        before = await picture(store)
        await store.release(task.lease())
        assert await picture(store) == before

    async def test_releasing_twice_does_nothing_more(self, store: Store) -> None:
        task = await begin(store)
        await store.release(task.lease())
        await store.release(task.lease())
        assert (await claim(store, task.id, "bob")).epoch == (task.epoch or 0) + 1

    async def test_leases_of_one_owner_on_several_sessions_are_independent(self, store: Store) -> None:
        one, two = await begin(store, "s-1"), await begin(store, "s-2")
        await store.release(one.lease())
        await claim(store, one.id, "bob")
        assert (await store.session(two.id)).owner == "alice"
        await two.log("still mine")


class HolderLaws(Laws):
    """Leases whose holder is gone, where the store can tell."""

    async def test_leases_of_holders_that_live_are_not_lost(self, store: Store, store_url: str) -> None:
        await begin(store, "s-1")
        assert await store.lost() == []
        async with self.share(store_url) as other:
            await begin(other, "s-2")
            await claim(other, (await begin(other, "s-3", hold_ms=0)).id, "bob")
            for side in (store, other):
                assert await side.lost() == []
                assert [(await side.session(f"s-{n}")).owner for n in (1, 2, 3)] == ["alice", "alice", "bob"]

    async def test_a_session_is_shown_as_free_exactly_when_its_lease_is_lost(
        self, store: Store, store_url: str
    ) -> None:
        async with self.share(store_url) as other:
            tasks = [await begin(other, f"s-{n}") for n in range(3)]
            await other.release(tasks[0].lease())
        lost = await store.lost()
        named = [(lease.session_id, lease.owner, lease.epoch) for lease in lost]
        assert named in ([], [(task.id, "alice", task.epoch) for task in tasks[1:]])
        rows = {row.session_id: row for row in (await store.sessions()).rows}
        for task in tasks[1:]:
            shown = await store.session(task.id)
            assert shown == rows[task.id]
            assert (shown.owner, shown.lease_until is None) == ((None, True) if lost else ("alice", False))
        assert await store.lost(limit=1) == lost[:1]
        assert await store.lost(limit=0) == []

    async def test_a_lost_lease_can_be_claimed_at_once_and_is_then_lost_no_more(
        self, store: Store, store_url: str
    ) -> None:
        async with self.share(store_url) as other:
            claimed, written = await begin(other, "s-1"), await begin(other, "s-2")
        if not await store.lost():
            raise SkipTest("this store cannot tell that a holder is gone")
        lease = await claim(store, claimed.id, "bob")
        assert (lease.owner, lease.epoch) == ("bob", (claimed.epoch or 0) + 1)
        taken = written.commit(line("taken over"), owner="bob", epoch=None)
        assert (await store.append(taken)).epoch == (written.epoch or 0) + 1
        assert await store.lost() == []
        for task in (claimed, written):
            task.store = store
            with refused(LeaseLostError):
                await task.log("from the dead")

    async def test_a_lost_lease_that_was_taken_by_nobody_still_counts(self, store: Store, store_url: str) -> None:
        async with self.share(store_url) as other:
            renewed, written = await begin(other, "s-1"), await begin(other, "s-2")
        renewed.store = written.store = store
        await renewed.append(hold_ms=LONG_MS)
        await written.log("still mine", hold_ms=LONG_MS)
        assert await store.lost() == []
        assert [(await store.session(task.id)).owner for task in (renewed, written)] == ["alice", "alice"]
