"""Laws of blobs: content kept once, for as long as any session keeps it, and large values in records."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.core.queries import LlmQuery, ToolQuery
from holdfast.core.values import encode
from holdfast.store.contract import Store
from holdfast.store.errors import BlobNotFoundError, PositionConflictError
from holdfast.store.limits import INLINE_VALUE_BYTES
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import begin, entries_of, line

LARGE = "large " * INLINE_VALUE_BYTES
"""A text too large to stay in its record."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def is_kept(store: Store, blob_id: str) -> bool:
    try:
        await store.get_blob(blob_id)
    except BlobNotFoundError:
        return False
    return True


class BlobLaws(Laws):
    """Bytes kept on behalf of sessions."""

    async def test_a_blob_comes_back_under_the_sha256_of_its_content(self, store: Store) -> None:
        task = await begin(store)
        contents = [b"", b"\x00", b"hello", bytes(range(256)) * 4_000, b"a" * 3_000_000]
        for data in contents:
            assert await store.put_blob(task.id, data) == sha256(data)
        for data in contents:
            assert await store.get_blob(sha256(data)) == data

    async def test_an_unknown_blob_is_not_found(self, store: Store) -> None:
        for blob_id in (sha256(b"never put"), "no-hash"):
            with refused(BlobNotFoundError) as refusal:
                await store.get_blob(blob_id)
            assert refusal.error.blob_id == blob_id

    async def test_a_blob_put_twice_is_kept_until_it_is_released_twice(self, store: Store) -> None:
        task = await begin(store)
        blob_id = await store.put_blob(task.id, b"data")
        assert await store.put_blob(task.id, b"data") == blob_id
        await store.release_blob(task.id, blob_id)
        assert await store.get_blob(blob_id) == b"data"
        await store.release_blob(task.id, blob_id)
        assert not await is_kept(store, blob_id)

    async def test_a_blob_is_kept_while_any_session_keeps_it(self, store: Store) -> None:
        one, two = await begin(store, "s-1"), await begin(store, "s-2")
        blob_id = await store.put_blob(one.id, b"shared")
        assert await store.put_blob(two.id, b"shared") == blob_id
        await store.release_blob(one.id, blob_id)
        assert await is_kept(store, blob_id)
        await store.release_blob(two.id, blob_id)
        assert not await is_kept(store, blob_id)

    async def test_a_session_releases_only_what_it_put_itself(self, store: Store) -> None:
        one, two = await begin(store, "s-1"), await begin(store, "s-2")
        blob_id = await store.put_blob(one.id, b"data")
        await store.release_blob(two.id, blob_id)
        await store.release_blob(one.id, sha256(b"never put"))
        assert await is_kept(store, blob_id)
        await store.release_blob(one.id, blob_id)
        await store.release_blob(one.id, blob_id)
        assert not await is_kept(store, blob_id)

    async def test_a_released_blob_can_be_put_again(self, store: Store) -> None:
        task = await begin(store)
        blob_id = await store.put_blob(task.id, b"data")
        await store.release_blob(task.id, blob_id)
        await store.put_blob(task.id, b"data")
        assert await store.get_blob(blob_id) == b"data"

    async def test_putting_a_blob_for_an_unknown_or_deleted_session_says_so(self, store: Store) -> None:
        task = await begin(store)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.put_blob(task.id, b"data")
        with refused(SessionNotFoundError):
            await store.put_blob("s-none", b"data")
        assert not await is_kept(store, sha256(b"data"))

    async def test_many_who_put_and_release_at_once_count_right(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(5)]
        puts = [store.put_blob(task.id, b"data") for task in tasks for _ in range(6)]
        [blob_id] = set(await asyncio.gather(*puts))
        await asyncio.gather(*(store.release_blob(task.id, blob_id) for task in tasks for _ in range(5)))
        for task in tasks:
            assert await is_kept(store, blob_id)
            await store.release_blob(task.id, blob_id)
        assert not await is_kept(store, blob_id)


class LargeValueLaws(Laws):
    """Values that a record is too large to hold."""

    async def test_large_values_come_back_exactly(self, store: Store) -> None:
        wide = {f"key {n}": [n, str(n) * 50] for n in range(500)}
        values: list[Any] = [LARGE, [LARGE, LARGE, {"x": LARGE}], wide, ["é\x00" * 5_000], list(range(20_000))]
        task = await begin(store, ctx=values)
        for value in values:
            await task.ask(
                LlmQuery(prompt=LARGE, options={"value": value}), ToolQuery(name="t", arguments={"v": value})
            )
            number = task.session.queries_asked
            await task.answer(f"q-{number - 2}", value)
            await task.answer(f"q-{number - 1}", {"value": value})
        await task.complete(values)
        assert await entries_of(store, task.id) == task.entries

    async def test_values_around_the_inline_limit_come_back_exactly(self, store: Store) -> None:
        task = await begin(store)
        await task.log(*("x" * (INLINE_VALUE_BYTES + n) for n in range(-40, 4)))
        assert await entries_of(store, task.id) == task.entries

    async def test_objects_that_look_like_references_come_back_exactly(self, store: Store) -> None:
        blob_id = sha256(encode(LARGE))
        lookalikes: list[Any] = [
            {"$blob": blob_id, "bytes": 3},
            {"$blob": "no-hash"},
            {"$blob": None, "$literal": {}},
            {"$literal": {"$blob": blob_id}},
            {"$literal": {"$literal": {"$blob": blob_id, "bytes": len(LARGE)}}},
            {"$literal": [1], "other": 2},
            [[{"$blob": {"$blob": blob_id}}]],
            '{"$blob": "in a text"}',
        ]
        task = await begin(store, ctx=lookalikes)
        for value in lookalikes:
            await task.ask(ToolQuery(name="t", arguments={"$blob": blob_id, "v": value}))
            await task.answer(f"q-{task.session.queries_asked - 1}", value)
        await task.ask(ToolQuery(name="t", arguments={"$blob": LARGE, "$literal": {"$blob": blob_id, "x": [LARGE]}}))
        await task.answer(f"q-{task.session.queries_asked - 1}", {"$literal": {"$blob": lookalikes * 50}, "x": LARGE})
        await task.complete({"$blob": lookalikes, "large": LARGE})
        assert await entries_of(store, task.id) == task.entries

    async def test_a_large_value_is_kept_as_a_blob_of_its_json(self, store: Store) -> None:
        await begin(store, ctx={"text": LARGE})
        assert await store.get_blob(sha256(encode(LARGE))) == encode(LARGE)

    async def test_releasing_a_blob_never_takes_it_from_a_record(self, store: Store) -> None:
        task = await begin(store, ctx={"text": LARGE})
        blob_id = await store.put_blob(task.id, encode(LARGE))
        for _ in range(3):
            await store.release_blob(task.id, blob_id)
        assert await entries_of(store, task.id) == task.entries

    async def test_a_refused_append_keeps_no_blob(self, store: Store) -> None:
        task = await begin(store)
        late = task.commit(line(LARGE))
        await task.log("somebody was first")
        with refused(PositionConflictError):
            await store.append(late)
        assert not await is_kept(store, sha256(encode(LARGE)))

    async def test_deleting_one_of_two_sessions_keeps_the_blobs_that_both_have(self, store: Store) -> None:
        one, two = await begin(store, "s-1", ctx={"text": LARGE}), await begin(store, "s-2", ctx=[LARGE])
        both = await store.put_blob(one.id, b"both")
        await store.put_blob(two.id, b"both")
        own = await store.put_blob(one.id, b"own")
        await store.put_blob(one.id, b"own")
        await store.delete(one.id, 1)
        assert not await is_kept(store, own)
        assert await store.get_blob(both) == b"both"
        assert await entries_of(store, two.id) == two.entries
        await store.delete(two.id, 1)
        assert not await is_kept(store, both)
        assert not await is_kept(store, sha256(encode(LARGE)))

    async def test_a_value_said_many_times_lives_until_its_last_session_is_deleted(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(3)]
        for task in tasks:
            await task.log(LARGE, LARGE)
            await task.log(LARGE)
        for left in (2, 1, 0):
            await store.delete(tasks[left].id, 1)
            assert await is_kept(store, sha256(encode(LARGE))) is (left > 0)
            for task in tasks[:left]:
                assert await entries_of(store, task.id) == task.entries
