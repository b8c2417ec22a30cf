"""Laws of forks: they share the records of the sessions they come from, for as long as anyone reads those."""

from __future__ import annotations

import asyncio
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec

from holdfast.core.errors import (
    InvalidIdError,
    InvalidValueError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from holdfast.core.queries import HumanQuery
from holdfast.core.records import Entry, Fork, StartedRecord
from holdfast.core.state import State
from holdfast.core.values import encode
from holdfast.store.commits import Commit
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError, ForkPositionError
from holdfast.store.export import export_session, import_session
from holdfast.store.memory import MemoryStore
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.blobs import LARGE, sha256
from holdfast.testing.patience import patience
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, exported_entries, ids_of, line, picture

CHAIN = 200
"""Forks of forks that are still read at once."""

LONG_CHAIN_S = patience(10.0)
"""Seconds that reading them takes at most on a busy machine. Where each fork costs a read of its source it is more."""


def forked(source: ScriptedSession, session_id: str, at: int, owner: str = "alice") -> tuple[ScriptedSession, Commit]:
    """A fork as it should be once it is made, and the commit that makes it."""
    first = source.entries[0].record
    assert isinstance(first, StartedRecord)
    started = msgspec.structs.replace(first, forked_from=Fork(source.id, at, source.id), parent=None)
    fork = ScriptedSession(source.store, session_id, owner)
    fork.entries = [Entry(1, source.entries[0].at, started), *source.entries[1:at]]
    fork.now = source.now
    commit = Commit(
        session_id=session_id,
        expected=0,
        entries=fork.entries[:1],
        summary=fork.summary,
        owner=owner,
        hold_ms=600_000,
    )
    return fork, commit


async def fork_of(source: ScriptedSession, session_id: str, at: int | None = None, **changes: Any) -> ScriptedSession:
    """Fork a session, at its end if it is not said where."""
    at = source.position if at is None else at
    fork, commit = forked(source, session_id, at)
    receipt = await source.store.fork(source.id, at, msgspec.structs.replace(commit, **changes))
    assert (receipt.session_id, receipt.position) == (session_id, at)
    fork.epoch = receipt.epoch
    return fork


async def assert_reads(*sessions: ScriptedSession) -> None:
    """Each journal is what it should be: all of it, from every place on, and as its row says."""
    for each in sessions:
        store = each.store
        assert await entries_of(store, each.id) == each.entries
        for after in range(each.position + 1):
            assert await store.read(each.id, after, 3) == each.entries[after : after + 3]
        row = await store.session(each.id)
        assert (row.position, row.summary) == (each.position, each.summary)
        assert await store.position(each.id) == each.position


async def source_of(store: Store, session_id: str = "s-source", lines: int = 5) -> ScriptedSession:
    source = await begin(store, session_id)
    await source.log(*(f"{session_id} {number}" for number in range(lines)))
    return source


class ForkLaws(Laws):
    """Making forks, and reading them."""

    async def test_a_fork_reads_its_own_first_record_and_then_those_of_its_source(self, store: Store) -> None:
        source = await source_of(store)
        for at in range(1, source.position + 1):
            await assert_reads(await fork_of(source, f"s-{at}", at), source)

    async def test_a_fork_and_its_source_go_on_apart(self, store: Store) -> None:
        source = await source_of(store)
        fork = await fork_of(source, "s-fork", 4)
        await fork.log("only here")
        await source.log("only there")
        await fork.ask(HumanQuery(prompt="well?"))
        await fork.answer("q-0", "yes")
        await fork.complete("done")
        await assert_reads(fork, source)

    async def test_a_fork_is_found_loaded_and_listed_like_any_session(self, store: Store) -> None:
        source = await source_of(store)
        await source.ask(HumanQuery(prompt="well?"))
        fork = await fork_of(source, "s-fork")
        assert await ids_of(store) == ["s-fork", source.id]
        assert list((await store.load(fork.id)).pending) == ["q-0"]
        wrong = msgspec.structs.replace(fork.summary, pending=7)
        await store.repair(fork.id, wrong)
        assert (await store.session(fork.id)).summary == wrong
        await store.repair(fork.id, fork.summary)
        await assert_reads(fork)

    async def test_an_ended_or_held_session_can_be_forked(self, store: Store) -> None:
        source = await source_of(store)
        await source.end(State.COMPLETED)
        await assert_reads(await fork_of(source, "s-before", source.position - 1), await fork_of(source, "s-whole"))

    async def test_a_fork_belongs_to_who_made_it(self, store: Store) -> None:
        source = await source_of(store)
        fork = await fork_of(source, "s-fork", 3, owner="bob", hold_ms=60_000)
        assert (await store.session(fork.id)).owner == "bob"
        free = await fork_of(source, "s-free", 3, hold_ms=0)
        assert (await store.session(free.id)).owner is None

    async def test_forks_of_forks_are_read_whole(self, store: Store) -> None:
        first = await source_of(store)
        second = await fork_of(first, "s-second", 4)
        await second.log("second 1", "second 2")
        third = await fork_of(second, "s-third", 5)
        await third.log("third 1")
        early, at_seam = await fork_of(third, "s-early", 3), await fork_of(third, "s-seam", 4)
        late, unchanged = await fork_of(third, "s-late"), await fork_of(second, "s-unchanged", 4)
        again = await fork_of(unchanged, "s-again")
        for each in (early, at_seam, late, again):
            await each.log(f"{each.id} goes on")
        await assert_reads(first, second, third, early, at_seam, late, unchanged, again)

    async def test_a_long_chain_of_forks_is_read_at_once(self, store: Store) -> None:
        last = await source_of(store, lines=2)
        for number in range(CHAIN):
            last = await fork_of(last, f"s-{number}")
            await last.log(f"line {number}")
        began = perf_counter()
        entries = await entries_of(store, last.id)
        took = perf_counter() - began
        assert entries == last.entries
        assert took < LONG_CHAIN_S, f"reading {len(entries)} records through {CHAIN} forks took {took:.3f} s"

    async def test_a_fork_where_the_source_has_no_record_is_refused(self, store: Store) -> None:
        source = await source_of(store)
        before = await picture(store)
        for at in (-1, 0, source.position + 1, 2**40):
            _, commit = forked(source, "s-fork", 2)
            with refused(ForkPositionError) as refusal:
                await store.fork(source.id, at, commit)
            assert (refusal.error.session_id, refusal.error.position) == (source.id, at)
            assert refusal.error.last == source.position
        assert await picture(store) == before

    async def test_a_fork_of_an_unknown_or_deleted_session_says_so(self, store: Store) -> None:
        source = await source_of(store)
        _, commit = forked(source, "s-fork", 2)
        with refused(SessionNotFoundError) as missing:
            await store.fork("s-none", 2, commit)
        assert missing.error.session_id == "s-none"
        await store.delete(source.id, 1)
        with refused(SessionDeletedError) as deleted:
            await store.fork(source.id, 2, commit)
        assert deleted.error.session_id == source.id
        assert await ids_of(store) == []

    async def test_a_fork_under_an_id_that_is_or_was_in_use_is_refused(self, store: Store) -> None:
        source, other = await source_of(store), await begin(store, "s-other")
        for taken in (source.id, other.id):
            with refused(SessionExistsError):
                await fork_of(source, taken, 2)
        await store.delete(other.id, 1)
        with refused(SessionDeletedError):
            await fork_of(source, other.id, 2)
        await assert_reads(source)

    async def test_a_fork_is_created_with_one_entry_of_its_own(self, store: Store) -> None:
        source = await source_of(store)
        fork, commit = forked(source, "s-fork", 3)
        wrong: list[dict[str, Any]] = [{"entries": fork.entries}, {"entries": []}, {"expected": 1}]
        for changes in wrong:
            with refused(InvalidValueError):
                await store.fork(source.id, 3, msgspec.structs.replace(commit, **changes))
        with refused(InvalidIdError):
            await store.fork("no id", 3, commit)
        with refused(InvalidValueError):
            await store.fork(source.id, 2**70, commit)
        assert await ids_of(store) == [source.id]

    async def test_of_many_forks_under_one_id_at_once_one_is_made(self, store: Store) -> None:
        source = await source_of(store)
        calls = [fork_of(source, "s-fork", 3) for _ in range(8)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        made = [each for each in results if isinstance(each, ScriptedSession)]
        assert len(made) == 1
        assert {type(each) for each in results} == {ScriptedSession, SessionExistsError}
        await assert_reads(source, made[0])

    async def test_a_fork_is_read_whole_while_its_source_is_written(self, store: Store) -> None:
        source = await source_of(store)

        async def go_on() -> None:
            for number in range(60):
                await source.log(f"later {number}")

        writing = asyncio.create_task(go_on())
        forks: list[ScriptedSession] = []
        while not writing.done():
            await asyncio.sleep(0)
            fork = await fork_of(source, f"s-{len(forks)}", source.position)
            await fork.log("mine")
            assert await entries_of(store, fork.id) == fork.entries
            forks.append(fork)
        await writing
        assert forks
        await assert_reads(source)
        for fork in forks:
            assert await entries_of(store, fork.id) == fork.entries

    async def test_an_exported_fork_needs_nobody_else(self, store: Store) -> None:
        source = await begin(store, "s-source", ctx={"text": LARGE})
        await source.log("a", LARGE)
        fork = await fork_of(source, "s-fork")
        await fork.log("b")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "fork.export"
            await export_session(store, fork.id, path)
            async with MemoryStore() as elsewhere:
                await import_session(elsewhere, path)
                assert await exported_entries(elsewhere, fork.id) == fork.entries

    async def test_damage_to_a_shared_record_shows_in_each_session_that_reads_it(
        self, store: Store, store_url: str
    ) -> None:
        source = await begin(store, "s-source")
        for text in ("two", "three", "four", "five"):
            await source.log(text)
        fork, early = await fork_of(source, "s-fork", 4), await fork_of(source, "s-early", 2)
        second = await fork_of(fork, "s-second")
        await self.damage(store_url, source.id, 3)
        for each in (source, fork, second):
            with refused(CorruptSessionError) as refusal:
                await entries_of(store, each.id)
            assert (refusal.error.session_id, refusal.error.place) == (each.id, "position 3")
        await assert_reads(early, await fork_of(second, "s-sound", 2))

    async def test_a_lost_shared_record_shows_in_each_session_that_reads_it(self, store: Store, store_url: str) -> None:
        source = await begin(store, "s-source")
        for text in ("two", "three", "four", "five"):
            await source.log(text)
        fork = await fork_of(source, "s-fork", 4)
        await self.lose(store_url, source.id, 4)
        for each in (source, fork):
            with refused(CorruptSessionError) as refusal:
                await entries_of(store, each.id)
            assert (refusal.error.session_id, refusal.error.place) == (each.id, "position 4")


class SharedEndLaws(Laws):
    """Deleting sessions that share records."""

    async def test_a_fork_outlives_its_source(self, store: Store) -> None:
        source = await begin(store, "s-source", ctx=LARGE)
        await source.log("a", LARGE, "b")
        fork = await fork_of(source, "s-fork", 3)
        await store.delete(source.id, 7)
        assert await ids_of(store) == [fork.id]
        with refused(SessionDeletedError):
            await entries_of(store, source.id)
        with refused(SessionDeletedError):
            await store.append(source.commit(line("to nobody")))
        with refused(SessionDeletedError):
            await begin(store, source.id)
        await fork.log("goes on")
        await assert_reads(fork, await fork_of(fork, "s-third"))

    async def test_sessions_that_share_can_be_deleted_in_every_order(self, store: Store) -> None:
        for number, order in enumerate(permutations(range(4))):
            name = f"s{number}"
            first = await source_of(store, f"{name}-first")
            second = await fork_of(first, f"{name}-second", 4)
            await second.log("x", "y")
            third = await fork_of(second, f"{name}-third", 5)
            await third.log("z")
            aside = await fork_of(first, f"{name}-aside", 3)
            living = [first, second, third, aside]
            for gone in (living[index] for index in order):
                await store.delete(gone.id, 1)
                left = [each for each in living if each.id in await ids_of(store)]
                assert gone not in left
                for each in left:
                    assert await entries_of(store, each.id) == each.entries
            assert await ids_of(store) == []

    async def test_large_values_of_shared_records_live_as_long_as_those(self, store: Store) -> None:
        shared, beyond, first = (f"{name} {LARGE}" for name in ("shared", "beyond", "first"))
        blob = {text: sha256(encode(text)) for text in (shared, beyond, first)}
        source = await begin(store, "s-source", ctx={"text": first})
        await source.log(shared)
        await source.log(beyond)
        fork, third = await fork_of(source, "s-fork", 2), await fork_of(source, "s-third", 3)
        await store.delete(source.id, 1)
        await assert_reads(fork, third)
        assert await self.blob_ids(store) == set(blob.values())
        await store.delete(third.id, 1)
        assert await self.blob_ids(store) == {blob[shared], blob[first]}  # the fork's first record has the same
        await assert_reads(fork)
        await store.delete(fork.id, 1)
        assert await self.blob_ids(store) == set()

    async def test_a_large_value_said_by_source_and_fork_lives_until_both_are_gone(self, store: Store) -> None:
        for name, order in (("one", (0, 1)), ("two", (1, 0))):
            source = await source_of(store, f"s-{name}")
            await source.log(LARGE)
            fork = await fork_of(source, f"s-{name}-fork")
            await fork.log(LARGE)
            sessions = [source, fork]
            await store.delete(sessions[order[0]].id, 1)
            await assert_reads(sessions[order[1]])
            await store.delete(sessions[order[1]].id, 1)
        assert await self.blob_ids(store) == set()

    async def test_pruning_leaves_forks_that_go_on(self, store: Store) -> None:
        source = await source_of(store)
        await source.end(State.COMPLETED)
        fork = await fork_of(source, "s-fork", 4)
        assert await store.prune(2**50) == [source.id]
        await assert_reads(fork)

    async def test_many_forks_deleted_at_once_leave_nothing_of_their_source(self, store: Store) -> None:
        source = await begin(store, "s-source")
        await source.log(LARGE)
        forks = [await fork_of(source, f"s-{number}") for number in range(12)]
        everyone = [source, *forks]
        results = await asyncio.gather(*(store.delete(each.id, 1) for each in everyone), return_exceptions=True)
        assert [each for each in results if each is not None] == []
        assert await ids_of(store) == []
        assert await self.blob_ids(store) == set()

    async def test_a_fork_and_the_deletion_of_its_source_at_once_agree(self, store: Store) -> None:
        for number in range(12):
            source = await source_of(store, f"s-{number}")
            made, deleted = await asyncio.gather(
                fork_of(source, f"s-{number}-fork", 4), store.delete(source.id, 1), return_exceptions=True
            )
            assert deleted is None
            if isinstance(made, ScriptedSession):
                await assert_reads(made)
            else:
                assert isinstance(made, SessionDeletedError)
                assert made.session_id == source.id
