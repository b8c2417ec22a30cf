"""Laws of checkpoints and segments: kept with a commit or not at all, and given back only if they fit the journal."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.decide import WakeMessage
from holdfast.core.errors import InvalidValueError, SessionDeletedError, SessionNotFoundError
from holdfast.core.state import State
from holdfast.store.commits import Checkpoint, Segment, StateWrite
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseHeldError, LeaseLostError, MessageTakenError, PositionConflictError
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.laws.forks import assert_reads, fork_of
from holdfast.testing.sessions import ScriptedSession, begin, claim, line, picture

STATE = bytes(range(256)) * 12
"""As large as the fold of a small session: 3 KB."""


async def mark(task: ScriptedSession, after: int | None = None, **changes: Any) -> tuple[Checkpoint, Segment]:
    """One more record, with a checkpoint after it, and a segment that begins where the last one ended."""
    known = await task.store.checkpoint(task.id)
    end = known[1][-1].position if known and known[1] else 0
    position = task.position + 1
    checkpoint = Checkpoint(position, STATE + b"%d" % position)
    segment = Segment(end if after is None else after, position, b"part %d" % position)
    await task.log("a line", checkpoint=checkpoint, segment=segment, **changes)
    return checkpoint, segment


class CheckpointLaws(Laws):
    """What follows from the first part of a journal, kept beside it."""

    async def test_a_session_has_no_checkpoint_before_a_commit_with_one(self, store: Store) -> None:
        task = await begin(store)
        await task.log("a line")
        assert await store.checkpoint(task.id) is None

    async def test_a_checkpoint_comes_back_exactly(self, store: Store) -> None:
        task = await begin(store)
        for state in (b"", b"\x00", STATE, b"\xff" * 70_000, b"small again"):
            kept = Checkpoint(task.position + 1, state)
            await task.log("a line", checkpoint=kept)
            assert await store.checkpoint(task.id) == (kept, [])

    async def test_a_session_can_be_created_with_a_checkpoint(self, store: Store) -> None:
        other = await begin(store)
        task = ScriptedSession(store, "s-2")
        kept = Checkpoint(1, STATE), Segment(0, 1, b"part")
        await task.append(other.entries[0].record, checkpoint=kept[0], segment=kept[1])
        assert await store.checkpoint(task.id) == (kept[0], [kept[1]])
        assert await store.checkpoint(other.id) is None

    async def test_a_checkpoint_can_come_with_all_else_that_a_commit_may_have(self, store: Store) -> None:
        task = await begin(store)
        for n, text in enumerate(("small", LARGE)):
            sent = await store.send(task.id, f"key-{n}", WakeMessage(), 1)
            write = StateWrite(namespace="notes", key=f"key-{n}", value=n)
            for changes in ({"takes": [sent.number]}, {"writes": [write]}, {"hold_ms": 0}, {"epoch": None}):
                kept = Checkpoint(task.position + 1, f"{n} {[*changes]}".encode())
                await task.log(text, checkpoint=kept, **changes)
                assert await store.checkpoint(task.id) == (kept, [])

    async def test_segments_come_back_in_order_with_the_last_checkpoint(self, store: Store) -> None:
        task = await begin(store)
        marks = []
        for _ in range(12):
            marks.append(await mark(task))
            await task.log("another line")
        assert await store.checkpoint(task.id) == (marks[-1][0], [segment for _, segment in marks])

    async def test_commits_without_a_checkpoint_leave_the_one_before(self, store: Store) -> None:
        task = await begin(store)
        checkpoint, segment = await mark(task)
        await task.log("a line")
        await task.append(hold_ms=0)
        await claim(store, task.id, "bob")
        assert await store.checkpoint(task.id) == (checkpoint, [segment])

    async def test_segments_after_the_checkpoint_are_left_out(self, store: Store) -> None:
        task = await begin(store)
        checkpoint, segment = await mark(task)
        ahead = Segment(segment.position, task.position + 1, b"ahead")
        await task.log("a line", segment=ahead)
        assert await store.checkpoint(task.id) == (checkpoint, [segment])
        await task.append(checkpoint=Checkpoint(task.position, STATE))
        assert await store.checkpoint(task.id) == (Checkpoint(task.position, STATE), [segment, ahead])

    async def test_a_segment_takes_the_place_of_all_that_end_after_its_beginning(self, store: Store) -> None:
        task = await begin(store)
        (_, first), (_, second), _ = [await mark(task) for _ in range(3)]
        checkpoint, anew = await mark(task, after=second.position)
        assert await store.checkpoint(task.id) == (checkpoint, [first, second, anew])
        checkpoint, all_anew = await mark(task, after=0)
        assert await store.checkpoint(task.id) == (checkpoint, [all_anew])

    async def test_a_chain_with_a_gap_is_no_chain(self, store: Store) -> None:
        task = await begin(store)
        await task.log("two", "three")
        checkpoint = Checkpoint(4, STATE)
        await task.log("four", checkpoint=checkpoint, segment=Segment(2, 4, b"second part"))
        assert await store.checkpoint(task.id) is None
        whole = Segment(0, 4, b"whole")
        await task.append(segment=whole)
        assert await store.checkpoint(task.id) == (checkpoint, [whole])

    async def test_segments_without_a_checkpoint_are_not_given(self, store: Store) -> None:
        task = await begin(store)
        await task.log("a line", segment=Segment(0, 2, b"part"))
        assert await store.checkpoint(task.id) is None

    async def test_a_refused_commit_leaves_checkpoint_and_segments_as_they_were(self, store: Store) -> None:
        task = await begin(store)
        checkpoint, segment = await mark(task)
        new: dict[str, Any] = {"checkpoint": Checkpoint(1, b"new"), "segment": Segment(0, 1, b"new")}
        with refused(PositionConflictError):
            await store.append(task.commit(expected=1, **new))
        with refused(LeaseLostError):
            await store.append(task.commit(line(), epoch=99, **new))
        with refused(LeaseHeldError):
            await store.append(task.commit(line(), epoch=None, owner="bob", **new))
        with refused(MessageTakenError):
            await store.append(task.commit(line(), takes=[10**9], **new))
        assert await store.checkpoint(task.id) == (checkpoint, [segment])

    async def test_records_that_a_segment_covers_are_read_as_before(self, store: Store) -> None:
        task = await begin(store)
        for number in range(150):
            await task.log(f"line {number}", *(["of the same commit"] if number % 3 else []))
            if number % 70 == 69:
                await mark(task)
        await assert_reads(task)
        fork = await fork_of(task, "s-fork", 100)
        for number in range(10):
            await fork.log(f"more {number}")
        await mark(fork, after=0)
        await assert_reads(task, fork)
        await store.delete(task.id, 1)
        await assert_reads(fork)

    async def test_a_session_that_has_ended_keeps_them(self, store: Store) -> None:
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            task = await begin(store, f"s-{state}")
            checkpoint, segment = await mark(task)
            await task.end(state)
            assert await store.checkpoint(task.id) == (checkpoint, [segment])
            last = Checkpoint(task.position, b"last")
            await task.append(hold_ms=0, checkpoint=last)
            assert await store.checkpoint(task.id) == (last, [segment])

    async def test_the_checkpoint_of_an_unknown_or_deleted_session_is_refused(self, store: Store) -> None:
        task, other = await begin(store), await begin(store, "s-other")
        await mark(task)
        kept = await mark(other)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.checkpoint(task.id)
        with refused(SessionNotFoundError):
            await store.checkpoint("s-none")
        assert await store.checkpoint(other.id) == (kept[0], [kept[1]])

    async def test_a_fork_begins_without(self, store: Store) -> None:
        task = await begin(store)
        checkpoint, segment = await mark(task)
        await task.log("a line")
        fork = ScriptedSession(store, "s-fork")
        await store.fork(task.id, 3, fork.commit(task.entries[0].record))
        assert await store.checkpoint(fork.id) is None
        assert await store.checkpoint(task.id) == (checkpoint, [segment])

    async def test_a_bad_checkpoint_or_segment_is_refused_with_its_commit(self, store: Store) -> None:
        task = await begin(store)
        await mark(task)
        before = await picture(store)
        checkpoints: list[Any] = [
            *(Checkpoint(position, STATE) for position in (0, -1, 4, 2**63)),
            *(Checkpoint(position, STATE) for position in ("1", 1.0, True, None)),  # type: ignore[arg-type]
            *(Checkpoint(1, state) for state in ("text", None, bytearray(STATE), 7)),  # type: ignore[arg-type]
        ]
        segments: list[Any] = [
            *(Segment(*part, b"") for part in ((-1, 2), (2, 2), (3, 2), (0, 0), (0, 4), (2**63, 2))),
            *(Segment(after, 2, b"") for after in ("1", 1.0, True, None)),  # type: ignore[arg-type]
            *(Segment(0, 2, data) for data in ("text", None, bytearray(b""), 7)),  # type: ignore[arg-type]
        ]
        for checkpoint in checkpoints:
            with refused(InvalidValueError):
                await store.append(task.commit(line(), checkpoint=checkpoint))
        for segment in segments:
            with refused(InvalidValueError):
                await store.append(task.commit(line(), segment=segment))
        assert await picture(store) == before

    async def test_sessions_that_are_written_at_once_keep_their_own(self, store: Store) -> None:
        async def live(n: int) -> tuple[ScriptedSession, Checkpoint, list[Segment]]:
            task = await begin(store, f"s-{n}")
            marks = []
            for step in range(4):
                marks.append(await mark(task))
                if (n + step) % 3:
                    await task.log("without")
            return task, marks[-1][0], [segment for _, segment in marks]

        for task, checkpoint, segments in await asyncio.gather(*(live(n) for n in range(20))):
            assert await store.checkpoint(task.id) == (checkpoint, segments)

    async def test_no_reader_sees_a_checkpoint_without_its_commit(self, store: Store) -> None:
        task = await begin(store)
        await mark(task)
        done = asyncio.Event()

        async def write() -> None:
            for _ in range(40):
                await mark(task)
            done.set()

        async def watch() -> None:
            while not done.is_set():
                before = await store.position(task.id)
                found = await store.checkpoint(task.id)
                assert found is not None
                checkpoint, segments = found
                assert before <= checkpoint.position <= await store.position(task.id)
                assert segments[-1].position == checkpoint.position
                await asyncio.sleep(0)

        await asyncio.gather(write(), watch(), watch())

    async def test_checkpoints_are_there_after_closing_and_opening_again(self, store: Store, store_url: str) -> None:
        again = self.share(store_url)
        task = await begin(store)
        checkpoint, segment = await mark(task)
        await store.close()
        async with again:
            assert await again.checkpoint(task.id) == (checkpoint, [segment])
