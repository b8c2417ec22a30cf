"""Laws of snapshots: the latest one of a living session, replaced with a commit or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.decide import WakeMessage
from holdfast.core.errors import (
    InvalidValueError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from holdfast.core.queries import HumanQuery
from holdfast.core.state import State
from holdfast.store.commits import Snapshot, StateWrite
from holdfast.store.contract import Store
from holdfast.store.errors import (
    LeaseHeldError,
    LeaseLostError,
    MessageTakenError,
    PositionConflictError,
    StateConflictError,
)
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.sessions import ScriptedSession, begin, claim, line, picture

DATA = bytes(range(256)) * 12
"""As large as the state of a small program: 3 KB."""


async def pause(task: ScriptedSession, data: bytes = DATA, **changes: Any) -> Snapshot:
    """One more record, with a snapshot of the program after it."""
    snapshot = Snapshot(task.position + 1, data)
    await task.log("paused", snapshot=snapshot, **changes)
    return snapshot


class SnapshotLaws(Laws):
    """The state of programs, kept beside the journal."""

    async def test_a_session_has_no_snapshot_before_a_commit_with_one(self, store: Store) -> None:
        task = await begin(store)
        await task.log("a line")
        assert await store.snapshot(task.id) is None

    async def test_a_snapshot_comes_back_exactly(self, store: Store) -> None:
        task = await begin(store)
        for data in (b"", b"\x00", DATA, b"\xff" * 70_000, bytes(range(256)) * 20_480, b"small again"):
            kept = await pause(task, data)
            assert await store.snapshot(task.id) == kept

    async def test_a_session_can_be_created_with_a_snapshot(self, store: Store) -> None:
        other = await begin(store)
        task = ScriptedSession(store, "s-2")
        await task.append(other.entries[0].record, snapshot=Snapshot(1, DATA))
        assert await store.snapshot(task.id) == Snapshot(1, DATA)
        assert await store.snapshot(other.id) is None

    async def test_a_snapshot_can_come_with_all_else_that_a_commit_may_have(self, store: Store) -> None:
        task = await begin(store)
        for n, text in enumerate(("small", LARGE)):
            sent = await store.send(task.id, f"key-{n}", WakeMessage(), 1)
            write = StateWrite(namespace="notes", key=f"key-{n}", value=n)
            for changes in ({"takes": [sent.number]}, {"writes": [write]}, {"hold_ms": 0}, {"epoch": None}):
                kept = Snapshot(task.position + 1, f"{n} {[*changes]}".encode())
                await task.log(text, snapshot=kept, **changes)
                assert await store.snapshot(task.id) == kept

    async def test_a_commit_without_entries_can_have_a_snapshot(self, store: Store) -> None:
        task = await begin(store)
        await task.append(snapshot=Snapshot(1, DATA))
        assert await store.snapshot(task.id) == Snapshot(1, DATA)

    async def test_a_snapshot_may_be_of_an_earlier_position(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three", "four", snapshot=Snapshot(2, DATA))
        assert await store.snapshot(task.id) == Snapshot(2, DATA)

    async def test_a_commit_with_a_snapshot_replaces_the_one_before(self, store: Store) -> None:
        task = await begin(store)
        await pause(task, b"first")
        second = await pause(task, b"second, and longer")
        assert await store.snapshot(task.id) == second
        assert await store.snapshot(task.id) == second

    async def test_a_commit_without_a_snapshot_leaves_the_one_before(self, store: Store) -> None:
        task = await begin(store)
        kept = await pause(task)
        await task.log("a line")
        await task.append(hold_ms=0)
        await claim(store, task.id, "bob")
        assert await store.snapshot(task.id) == kept

    async def test_a_refused_commit_leaves_the_snapshot_before(self, store: Store) -> None:
        task = await begin(store)
        kept = await pause(task)
        new = Snapshot(1, b"new")
        with refused(PositionConflictError):
            await store.append(task.commit(expected=1, snapshot=new))
        with refused(LeaseLostError):
            await store.append(task.commit(line(), epoch=99, snapshot=new))
        with refused(LeaseHeldError):
            await store.append(task.commit(line(), epoch=None, owner="bob", snapshot=new))
        with refused(MessageTakenError):
            await store.append(task.commit(line(), takes=[10**9], snapshot=new))
        with refused(StateConflictError):
            write = StateWrite(namespace="notes", key="key", value=1, expected=7)
            await store.append(task.commit(line(), writes=[write], snapshot=new))
        with refused(SessionExistsError):
            await begin_with(store, task, new)
        assert await store.snapshot(task.id) == kept

    async def test_a_refused_end_leaves_the_snapshot(self, store: Store) -> None:
        task = await begin(store)
        kept = await pause(task)
        task.epoch = 99
        with refused(LeaseLostError):
            await task.end(State.COMPLETED)
        assert await store.snapshot(task.id) == kept

    async def test_a_session_that_has_ended_has_no_snapshot(self, store: Store) -> None:
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            task = await begin(store, f"s-{state}")
            await pause(task)
            await task.end(state)
            assert await store.snapshot(task.id) is None

    async def test_a_snapshot_that_comes_with_the_end_is_not_kept(self, store: Store) -> None:
        task = await begin(store)
        await pause(task)
        await task.complete("done", snapshot=Snapshot(1, b"too late"))
        await task.append(hold_ms=0, snapshot=Snapshot(1, b"later still"))
        assert await store.snapshot(task.id) is None

    async def test_the_snapshot_of_an_unknown_or_deleted_session_is_refused(self, store: Store) -> None:
        task = await begin(store)
        await pause(task)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.snapshot(task.id)
        with refused(SessionDeletedError):
            await begin_with(store, task, Snapshot(1, DATA))
        with refused(SessionNotFoundError):
            await store.snapshot("s-none")

    async def test_the_snapshots_of_other_sessions_are_left_alone(self, store: Store) -> None:
        keep = await begin(store, "s-keep")
        kept = await pause(keep, b"kept")
        for n, end in enumerate((ScriptedSession.log, ScriptedSession.complete, None)):
            other = await begin(store, f"s-{n}")
            await pause(other, b"other")
            await (end(other) if end else store.delete(other.id, 1))
            assert await store.snapshot(keep.id) == kept

    async def test_a_bad_snapshot_is_refused_with_its_commit(self, store: Store) -> None:
        task = await begin(store)
        await task.ask(HumanQuery(prompt="?"), snapshot=Snapshot(2, DATA))
        before = await picture(store)
        bad: list[Any] = [
            *(Snapshot(position, DATA) for position in (0, -1, 4, 2**63)),
            *(Snapshot(position, DATA) for position in ("1", 1.0, True, None)),  # type: ignore[arg-type]
            *(Snapshot(1, data) for data in ("text", None, bytearray(DATA), 7)),  # type: ignore[arg-type]
        ]
        for snapshot in bad:
            with refused(InvalidValueError):
                await store.append(task.commit(line(), snapshot=snapshot))
        assert await picture(store) == before

    async def test_sessions_that_pause_and_end_at_once_keep_their_own_snapshots(self, store: Store) -> None:
        async def live(n: int) -> tuple[ScriptedSession, Snapshot | None]:
            task = await begin(store, f"s-{n}")
            kept: Snapshot | None = None
            for step in range(6):
                if (n + step) % 3:
                    size = 70_000 if n % 10 == 0 else n + step
                    kept = await pause(task, b"%d:%d " % (n, step) * size)
                else:
                    await task.log("without")
            if n % 4 == 0:
                await task.complete()
                kept = None
            return task, kept

        for task, kept in await asyncio.gather(*(live(n) for n in range(40))):
            assert await store.snapshot(task.id) == kept

    async def test_of_many_commits_at_once_the_refused_ones_leave_their_snapshots(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(20)]
        before = await asyncio.gather(*(pause(task, b"old") for task in tasks))
        for task in tasks[::2]:
            task.epoch = 99
        pauses = [pause(task, b"new") if n % 3 else task.complete() for n, task in enumerate(tasks)]
        results = await asyncio.gather(*pauses, return_exceptions=True)
        assert [type(result) for result in results[::2]] == [LeaseLostError] * 10
        for n, task in enumerate(tasks):
            expected = Snapshot(3, b"new") if n % 3 else None
            assert await store.snapshot(task.id) == (expected if n % 2 else before[n])

    async def test_no_reader_sees_a_snapshot_without_its_commit(self, store: Store) -> None:
        task = await begin(store)
        await pause(task, b"2")
        done = asyncio.Event()

        async def write() -> None:
            for _ in range(60):
                await pause(task, b"%d" % (task.position + 1))
            done.set()

        async def watch() -> None:
            while not done.is_set():
                before = await store.position(task.id)
                snapshot = await store.snapshot(task.id)
                assert snapshot is not None
                assert snapshot.data == b"%d" % snapshot.position
                assert before <= snapshot.position <= await store.position(task.id)
                await asyncio.sleep(0)

        await asyncio.gather(write(), watch(), watch())

    async def test_a_cancelled_commit_has_written_its_snapshot_with_its_entries_or_not_at_all(
        self, store: Store
    ) -> None:
        task = await begin(store)
        await pause(task)
        for n in range(20):
            task.entries = [entry async for entry in store.journal(task.id)]
            position = task.position + 1
            commit = task.commit(line(), epoch=None, snapshot=Snapshot(position, b"%d" % position))
            writing = asyncio.create_task(store.append(commit))
            for _ in range(n % 10):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        await asyncio.sleep(0.2)  # what was cancelled may still be under way
        snapshot = await store.snapshot(task.id)
        assert snapshot is not None
        assert snapshot.position == await store.position(task.id)

    async def test_a_snapshot_is_there_after_closing_and_opening_again(self, store: Store, store_url: str) -> None:
        again = self.share(store_url)
        task = await begin(store)
        kept = await pause(task)
        await store.close()
        async with again:
            assert await again.snapshot(task.id) == kept
            task.store = again
            await task.complete()
            assert await again.snapshot(task.id) is None


async def begin_with(store: Store, task: ScriptedSession, snapshot: Snapshot) -> None:
    """Create a session under an id that is in use."""
    await ScriptedSession(store, task.id).append(task.entries[0].record, snapshot=snapshot)
