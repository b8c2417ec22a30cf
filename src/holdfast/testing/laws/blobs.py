"""Laws of large values: kept beside their records, once, for as long as any record needs them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from holdfast.core.queries import LlmQuery, ToolQuery
from holdfast.core.values import encode
from holdfast.store.contract import Store
from holdfast.store.errors import PositionConflictError
from holdfast.store.limits import INLINE_VALUE_BYTES
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import begin, entries_of, line

LARGE = "large " * INLINE_VALUE_BYTES
"""A text too large to stay in its record."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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

    async def test_a_large_value_is_kept_once_under_the_sha256_of_its_json(self, store: Store) -> None:
        assert await self.blob_ids(store) == set()
        one, two = await begin(store, "s-1", ctx={"text": LARGE}), await begin(store, "s-2")
        await two.log(LARGE, LARGE)
        await two.log(LARGE)
        assert await self.blob_ids(store) == {sha256(encode(LARGE))}
        for task in (one, two):
            assert await entries_of(store, task.id) == task.entries

    async def test_a_refused_append_keeps_no_large_value(self, store: Store) -> None:
        task = await begin(store)
        late = task.commit(line(LARGE))
        await task.log("somebody was first")
        with refused(PositionConflictError):
            await store.append(late)
        assert await self.blob_ids(store) == set()

    async def test_deleting_one_of_two_sessions_keeps_the_large_values_that_both_have(self, store: Store) -> None:
        one, two = await begin(store, "s-1", ctx=[LARGE, f"own {LARGE}"]), await begin(store, "s-2", ctx=[LARGE])
        assert len(await self.blob_ids(store)) == 2
        await store.delete(one.id, 1)
        assert await self.blob_ids(store) == {sha256(encode(LARGE))}
        assert await entries_of(store, two.id) == two.entries
        await store.delete(two.id, 1)
        assert await self.blob_ids(store) == set()

    async def test_a_large_value_lives_until_its_last_session_is_deleted(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(3)]
        for task in tasks:
            await task.log(LARGE, LARGE)
            await task.log(LARGE)
        for left in (2, 1, 0):
            await store.delete(tasks[left].id, 1)
            for task in tasks[:left]:
                assert await entries_of(store, task.id) == task.entries
        assert await self.blob_ids(store) == set()

    async def test_a_large_value_of_a_deleted_session_can_be_said_again(self, store: Store) -> None:
        await begin(store, "s-1", ctx=LARGE)
        await store.delete("s-1", 1)
        task = await begin(store, "s-2", ctx=LARGE)
        assert await entries_of(store, task.id) == task.entries

    async def test_many_who_say_and_delete_the_same_large_value_at_once_lose_none(self, store: Store) -> None:
        async def come_and_go(name: str) -> None:
            for number in range(3):
                await begin(store, f"{name}-{number}", ctx=LARGE)
                if number:
                    await store.delete(f"{name}-{number - 1}", 1)

        names = [f"s-{n}" for n in range(5)]
        await asyncio.gather(*(come_and_go(name) for name in names))
        for name in names:
            assert (await store.load(f"{name}-2")).started.ctx == LARGE  # type: ignore[union-attr]
            await store.delete(f"{name}-2", 1)
        assert await self.blob_ids(store) == set()
