"""Laws of journals: creating a session, appending to it, and reading it back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.core.decide import WakeMessage
from holdfast.core.errors import HoldfastError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.queries import HumanQuery, LlmQuery, ToolQuery
from holdfast.core.records import Entry, StatRecord
from holdfast.core.state import State
from holdfast.core.summary import summarize
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError, PositionConflictError
from holdfast.store.limits import READ_LIMIT
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import ScriptedSession, all_rows, begin, entries_of, ids_of, line, picture, timer

AWKWARD: dict[str, Any] = {
    "nothing": None,
    "yes": True,
    "zero": 0,
    "whole": 1.0,
    "minus zero": -0.0,
    "smallest": 5e-324,
    "largest": 1.7976931348623157e308,
    "most": 2**63 - 1,
    "least": -(2**63),
    "text": "é 漢字 🙂 \x00 \x1f \u2028 \\ \" ' % _ {} $1 ?",
    "": {"empty key": [[], {}, ""]},
    "z": {"key": "order", "is": "kept", "a": 1},
}
"""A value that stores are tempted to change: kept exactly, or not accepted at all."""


class CreationLaws(Laws):
    """How sessions come to be."""

    async def test_a_commit_at_expected_0_creates_the_session(self, store: Store) -> None:
        task = ScriptedSession(store, "s-1")
        born = await begin(store, "s-1", ctx={"task": "sum"})
        row = await store.session("s-1")
        assert row.session_id == task.id
        assert row.summary == born.summary
        assert row.position == 1
        assert row.owner == "alice"
        assert row.epoch == born.epoch
        assert await entries_of(store, "s-1") == born.entries

    async def test_a_session_can_be_created_with_several_records_at_once(self, store: Store) -> None:
        made = await begin(store, "s-0")
        task = ScriptedSession(store, "s-1")
        receipt = await task.append(made.entries[0].record, line("one"), line("two"))
        assert (receipt.session_id, receipt.position) == ("s-1", 3)
        assert await entries_of(store, "s-1") == task.entries

    async def test_creating_a_session_that_exists_is_refused_and_changes_nothing(self, store: Store) -> None:
        task = await begin(store)
        again = ScriptedSession(store, task.id, owner="bob")
        before = await picture(store)
        with refused(SessionExistsError) as refusal:
            await again.append(task.entries[0].record)
        assert refusal.error.session_id == task.id
        assert await picture(store) == before

    async def test_creating_a_session_under_a_deleted_id_is_refused(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 5_000)
        with refused(SessionDeletedError) as refusal:
            await begin(store, task.id)
        assert refusal.error.session_id == task.id
        assert await ids_of(store) == []

    async def test_of_many_who_create_one_id_at_once_exactly_one_succeeds(self, store: Store) -> None:
        tries = [begin(store, "s-1", owner=f"owner-{n}", ctx=n) for n in range(10)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        winners = [result for result in results if isinstance(result, ScriptedSession)]
        assert len(winners) == 1
        assert [type(result) for result in results].count(SessionExistsError) == 9
        assert await entries_of(store, "s-1") == winners[0].entries
        assert (await store.session("s-1")).owner == winners[0].owner

    async def test_a_session_that_never_was_is_not_found(self, store: Store) -> None:
        with refused(SessionNotFoundError) as refusal:
            await store.session("s-none")
        assert refusal.error.session_id == "s-none"
        with refused(SessionNotFoundError):
            await entries_of(store, "s-none")
        with refused(SessionNotFoundError):
            await store.load("s-none")

    async def test_appending_to_a_session_that_never_was_is_refused(self, store: Store) -> None:
        task = await begin(store)
        before = await picture(store)
        for epoch in (None, 1):
            with refused(SessionNotFoundError):
                await store.append(task.commit(line(), session_id="s-none", epoch=epoch))
        assert await picture(store) == before


class AppendLaws(Laws):
    """What a commit writes, and when it writes nothing."""

    async def test_entries_get_positions_without_gaps(self, store: Store) -> None:
        task = await begin(store)
        assert (await task.log("two")).position == 2
        assert (await task.log("three", "four", "five")).position == 5
        assert [entry.position for entry in await entries_of(store, task.id)] == [1, 2, 3, 4, 5]
        assert (await store.session(task.id)).position == 5

    async def test_entries_come_back_exactly_as_they_were_written(self, store: Store) -> None:
        task = await begin(store, ctx=AWKWARD)
        await task.ask(
            LlmQuery(prompt="", options=AWKWARD),
            ToolQuery(name="look", arguments=AWKWARD),
            HumanQuery(prompt="?", choices=["a", "b"], timeout_ms=5),
        )
        await task.answer("q-0", AWKWARD)
        read = await entries_of(store, task.id)
        assert read == task.entries
        assert repr(read) == repr(task.entries), "equal, but not the same: 1 and 1.0, or the order of keys"

    async def test_a_commit_replaces_the_summary(self, store: Store) -> None:
        task = await begin(store)
        await task.ask(HumanQuery(prompt="?"), timer(500))
        row = await store.session(task.id)
        assert row.summary == task.summary
        assert (row.summary.state, row.summary.pending, row.summary.waiting_for) == (State.PAUSED, 2, "human,timer")
        await task.answer("q-0", 1)
        await task.answer("q-1", None)
        await task.complete(AWKWARD)
        assert (await store.session(task.id)).summary == task.summary

    async def test_a_commit_without_entries_changes_the_lease_only(self, store: Store) -> None:
        task = await begin(store)
        receipt = await task.append(hold_ms=0)
        row = await store.session(task.id)
        assert (receipt.position, row.position, row.summary, row.owner) == (1, 1, task.summary, None)
        assert await entries_of(store, task.id) == task.entries

    async def test_a_thousand_records_are_one_commit(self, store: Store) -> None:
        task = await begin(store)
        receipt = await task.log(*(f"line {n}" for n in range(1_000)))
        assert receipt.position == 1_001
        assert await entries_of(store, task.id) == task.entries

    async def test_another_expected_position_than_the_real_one_is_refused_and_writes_nothing(
        self, store: Store
    ) -> None:
        task = await begin(store)
        await task.log("two", "three")
        before = await picture(store)
        for expected in (1, 2, 4, 100):
            entry = Entry(expected + 1, task.now, line())
            with refused(PositionConflictError) as refusal:
                await store.append(task.commit(line(), expected=expected, entries=[entry]))
            assert (refusal.error.expected, refusal.error.actual) == (expected, 3)
        assert await picture(store) == before

    async def test_an_empty_commit_at_another_expected_position_is_refused_too(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two")
        with refused(PositionConflictError):
            await store.append(task.commit(expected=1))

    async def test_entries_at_other_positions_than_those_after_expected_are_refused(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two")
        before = await picture(store)
        for positions in ([4], [2], [3, 5], [4, 3], [3, 3], [0], [-1]):
            entries = [Entry(position, task.now, line()) for position in positions]
            commit = msgspec.structs.replace(task.commit(line()), entries=entries)
            try:
                await store.append(commit)
            except (HoldfastError, ValueError):
                pass
            else:
                raise AssertionError(f"entries at {positions} were accepted after position 2")
        assert await picture(store) == before

    async def test_of_two_writers_who_know_the_same_position_one_succeeds(self, store: Store) -> None:
        task = await begin(store)
        commits = [task.commit(line(f"writer {n}")) for n in range(8)]
        results = await asyncio.gather(*(store.append(commit) for commit in commits), return_exceptions=True)
        refusals = [result for result in results if isinstance(result, PositionConflictError)]
        assert len(refusals) == 7
        winner = next(commit for commit, result in zip(commits, results, strict=True) if result not in refusals)
        assert await entries_of(store, task.id) == [*task.entries, *winner.entries]

    async def test_the_same_commit_twice_is_refused_the_second_time(self, store: Store) -> None:
        task = await begin(store)
        commit = task.commit(line("once"))
        await task.make(commit)
        with refused(PositionConflictError):
            await store.append(commit)
        assert await store.read(task.id, after=commit.expected) == list(commit.entries)

    async def test_what_was_written_does_not_change_with_the_writers_objects(self, store: Store) -> None:
        value = {"list": [1]}
        task = await begin(store)
        await task.append(StatRecord(key="k", value=value))
        value["list"].append(2)
        [_, entry] = await entries_of(store, task.id)
        assert entry.record == StatRecord(key="k", value={"list": [1]})
        entry.record.value["list"].append(3)
        [_, entry] = await entries_of(store, task.id)
        assert entry.record == StatRecord(key="k", value={"list": [1]})

    async def test_fifty_sessions_appending_at_once_lose_nothing(self, store: Store) -> None:
        async def live(n: int) -> ScriptedSession:
            task = await begin(store, f"s-{n}")
            for step in range(20):
                await task.log(f"{n}: {step}")
            return task

        tasks = await asyncio.gather(*(live(n) for n in range(50)))
        for task in tasks:
            read = await entries_of(store, task.id)
            assert read == task.entries
            assert [entry.position for entry in read] == list(range(1, 22))
        assert sorted(row.session_id for row in await all_rows(store)) == sorted(task.id for task in tasks)

    async def test_no_reader_sees_a_part_of_a_commit(self, store: Store) -> None:
        task = await begin(store)
        done = asyncio.Event()

        async def write() -> None:
            for _ in range(40):
                await task.log("a", "b", "c")
            done.set()

        async def watch() -> None:
            while not done.is_set():
                read = await store.read(task.id)
                assert len(read) % 3 == 1
                row = await store.session(task.id)
                assert row.position % 3 == 1
                assert row.summary.updated_at == (await store.read(task.id, row.position - 1, 1))[0].at
                await asyncio.sleep(0)

        await asyncio.gather(write(), watch(), watch())

    async def test_a_cancelled_append_has_written_all_or_nothing(self, store: Store) -> None:
        task = await begin(store)
        lines: dict[int, list[str]] = {}
        for n in range(30):
            sent = await store.send(task.id, f"key-{n}", WakeMessage(), n)
            lines[sent.number] = [f"{n} a", f"{n} b"]
            task.entries = await entries_of(store, task.id)
            commit = task.commit(*map(line, lines[sent.number]), epoch=None, takes=[sent.number])
            writing = asyncio.create_task(store.append(commit))
            for _ in range(n % 10):
                await asyncio.sleep(0)
            await asyncio.sleep(max(0, n - 20) / 5_000)
            writing.cancel()
            await asyncio.wait([writing])
        await asyncio.sleep(0.2)  # what was cancelled may still be under way
        task.entries = await entries_of(store, task.id)
        waiting = [item.number for item in await store.mailbox(task.id)]
        taken = [text for number, texts in lines.items() if number not in waiting for text in texts]
        assert [entry.record for entry in task.entries[1:]] == [line(text) for text in taken]
        assert (await store.session(task.id)).summary == task.summary
        await task.log("the store still works", epoch=None)


class ReadingLaws(Laws):
    """What readers of a journal get."""

    async def test_read_gives_what_stands_after_a_position_in_order(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three", "four")
        assert await store.read(task.id) == task.entries
        assert await store.read(task.id, 2) == task.entries[2:]
        assert await store.read(task.id, 4) == []
        assert await store.read(task.id, 100) == []
        assert await store.read(task.id, -1) == task.entries

    async def test_read_gives_at_most_the_limit(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three", "four")
        assert await store.read(task.id, limit=2) == task.entries[:2]
        assert await store.read(task.id, 1, 2) == task.entries[1:3]
        assert await store.read(task.id, 3, 2) == task.entries[3:]
        assert await store.read(task.id, limit=0) == []

    async def test_one_read_stops_at_the_default_limit_and_journal_goes_on(self, store: Store) -> None:
        task = await begin(store)
        await task.log(*(f"line {n}" for n in range(READ_LIMIT + 500)))
        await task.log(*(f"more {n}" for n in range(READ_LIMIT)))
        assert await store.read(task.id) == task.entries[:READ_LIMIT]
        assert await entries_of(store, task.id) == task.entries
        tail = [entry async for entry in store.journal(task.id, after=READ_LIMIT + 7)]
        assert tail == task.entries[READ_LIMIT + 7 :]

    async def test_entries_can_end_at_a_position(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three")
        await task.log(*(f"line {n}" for n in range(READ_LIMIT)))
        for after, until in [(0, 1), (0, 2), (1, 3), (2, READ_LIMIT + 2), (0, READ_LIMIT), (0, READ_LIMIT + 1)]:
            assert await store.entries(task.id, after, until) == task.entries[after:until]
        assert await store.entries(task.id, 1, READ_LIMIT + 100) == task.entries[1:]
        assert await store.entries(task.id, 2, 2) == []
        assert await store.entries(task.id, 2, 1) == []

    async def test_numbers_out_of_range_are_brought_into_it(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three")
        for huge in (2**31, 2**63, 10**100):
            assert await store.read(task.id, -huge) == task.entries
            assert await store.read(task.id, huge) == []
            assert await store.read(task.id, 1, huge) == task.entries[1:]
            assert await store.read(task.id, 0, -huge) == []

    async def test_position_is_that_of_the_last_entry(self, store: Store) -> None:
        task = await begin(store)
        assert await store.position(task.id) == 1
        await task.log("two", "three")
        assert await store.position(task.id) == 3
        await task.append()
        assert await store.position(task.id) == 3

    async def test_position_of_an_unknown_or_deleted_session_says_so(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.position(task.id)
        with refused(SessionNotFoundError):
            await store.position("s-none")

    async def test_journal_after_the_last_position_is_empty(self, store: Store) -> None:
        task = await begin(store)
        assert [entry async for entry in store.journal(task.id, after=1)] == []

    async def test_load_is_the_fold_of_the_journal(self, store: Store) -> None:
        task = await begin(store, ctx="x")
        await task.ask(HumanQuery(prompt="?"), HumanQuery(prompt="??"))
        await task.answer("q-1", {"deep": [1, 2]})
        loaded, folded = await store.load(task.id), task.session
        assert (loaded.id, loaded.state, loaded.position) == (task.id, State.PAUSED, 3)
        assert summarize(loaded) == summarize(folded) == task.summary
        assert list(loaded.pending) == list(folded.pending) == ["q-0"]
        assert loaded.settled == folded.settled == {"q-1": 3}
        assert loaded.started == folded.started

    async def test_every_summary_in_the_store_equals_the_one_of_its_journal(self, store: Store) -> None:
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            await (await begin(store, f"s-{state}", parent="s-parent")).end(state)
        for row in await all_rows(store):
            assert row.summary == summarize(await store.load(row.session_id))
            assert row.session_id == f"s-{row.summary.state}"


class DamageLaws(Laws):
    """What happens when the stored bytes are not what was written. Needs `damage`."""

    async def test_a_changed_record_raises_and_names_its_position(self, store: Store, store_url: str) -> None:
        task = await begin(store)
        await task.log("two")
        await task.log("three")
        await self.damage(store_url, task.id, 2)
        with refused(CorruptSessionError) as refusal:
            await store.read(task.id)
        assert (refusal.error.session_id, refusal.error.place) == (task.id, "position 2")
        with refused(CorruptSessionError):
            await store.load(task.id)
        assert await store.read(task.id, after=2) == task.entries[2:]

    async def test_a_missing_record_raises_and_names_its_position(self, store: Store, store_url: str) -> None:
        for position in (1, 2, 3):
            task = await begin(store, f"s-{position}")
            await task.log("two")
            await task.log("three")
            await self.lose(store_url, task.id, position)
            with refused(CorruptSessionError) as refusal:
                await store.read(task.id)
            assert (refusal.error.session_id, refusal.error.place) == (task.id, f"position {position}")
            with refused(CorruptSessionError):
                await store.load(task.id)
            assert await store.position(task.id) == 3

    async def test_damage_to_one_of_several_records_of_a_commit_names_it_or_all_of_them(
        self, store: Store, store_url: str
    ) -> None:
        for position in (2, 3, 4):
            task = await begin(store, f"s-{position}")
            await task.log("two", "three", "four")
            await task.log("five")
            await self.damage(store_url, task.id, position)
            with refused(CorruptSessionError) as refusal:
                await store.read(task.id)
            assert refusal.error.place in {f"position {position}", "positions 2 to 4"}
            assert await store.read(task.id, limit=1) == task.entries[:1]
            assert await store.read(task.id, after=4) == task.entries[4:]

    async def test_damage_to_one_session_touches_no_other(self, store: Store, store_url: str) -> None:
        hurt, sound = await begin(store, "s-hurt"), await begin(store, "s-sound")
        await hurt.log("two")
        await sound.log("two")
        await self.damage(store_url, hurt.id, 2)
        assert await entries_of(store, sound.id) == sound.entries
        await sound.log("three")
        assert await ids_of(store) == ["s-sound", "s-hurt"]
        await store.delete(hurt.id, 1)
        assert await ids_of(store) == ["s-sound"]
