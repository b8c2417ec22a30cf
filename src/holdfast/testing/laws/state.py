"""Laws of state items: values under keys, with versions that tell whether somebody else has written."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.decide import WakeMessage
from holdfast.core.values import Json
from holdfast.store.commits import StateWrite
from holdfast.store.contract import StateItem, Store
from holdfast.store.errors import LeaseLostError, MessageTakenError, PositionConflictError, StateConflictError
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.journal import AWKWARD
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, picture


class StateLaws(Laws):
    """Reading and writing items."""

    async def test_an_item_that_was_never_written_is_none(self, store: Store) -> None:
        assert await store.get_state("notes", "key") is None

    async def test_versions_count_the_writes_of_a_key(self, store: Store) -> None:
        for version, value in enumerate(["one", {"two": 2}, None], 1):
            assert await store.put_state("notes", "key", value) == version
            assert await store.get_state("notes", "key") == StateItem(value, version)
        assert await store.put_state("notes", "other", "x") == 1

    async def test_values_come_back_exactly(self, store: Store) -> None:
        values: list[Any] = [AWKWARD, None, 0, False, "", [], {}, [AWKWARD], "x" * 2_000_000, {"$blob": 1}]
        for n, value in enumerate(values):
            await store.put_state("notes", f"key-{n}", value)
        for n, value in enumerate(values):
            item = await store.get_state("notes", f"key-{n}")
            assert item is not None
            assert repr(item.value) == repr(value)

    async def test_a_stored_value_does_not_change_with_the_writers_objects(self, store: Store) -> None:
        value = {"list": [1]}
        await store.put_state("notes", "key", value)
        value["list"].append(2)
        item = await store.get_state("notes", "key")
        assert item == StateItem({"list": [1]}, 1)
        item.value["list"].append(3)
        assert await store.get_state("notes", "key") == StateItem({"list": [1]}, 1)

    async def test_a_write_at_the_expected_version_is_made(self, store: Store) -> None:
        assert await store.put_state("notes", "key", "a", expected=0) == 1
        assert await store.put_state("notes", "key", "b", expected=1) == 2
        assert await store.get_state("notes", "key") == StateItem("b", 2)

    async def test_a_write_at_another_version_is_refused_and_changes_nothing(self, store: Store) -> None:
        await store.put_state("notes", "key", "a")
        await store.put_state("notes", "key", "b")
        before = await picture(store)
        for expected in (0, 1, 3, -1):
            with refused(StateConflictError) as refusal:
                await store.put_state("notes", "key", "c", expected=expected)
            error = refusal.error
            assert (error.namespace, error.key, error.expected, error.actual) == ("notes", "key", expected, 2)
        with refused(StateConflictError) as refusal:
            await store.put_state("notes", "missing", "c", expected=1)
        assert refusal.error.actual == 0
        assert await picture(store) == before

    async def test_a_deleted_item_is_gone_and_starts_again_at_version_1(self, store: Store) -> None:
        await store.put_state("notes", "key", "a")
        await store.put_state("notes", "key", "b")
        assert await store.delete_state("notes", "key") is True
        assert await store.get_state("notes", "key") is None
        assert await store.list_state("notes") == []
        assert await store.delete_state("notes", "key") is False
        assert await store.put_state("notes", "key", "c", expected=0) == 1

    async def test_namespaces_and_keys_are_kept_apart(self, store: Store) -> None:
        places = [("a", "b.c"), ("a.b", "c"), ("A", "b.c"), ("a", "B.c"), ("b", "b.c")]
        for n, (namespace, key) in enumerate(places):
            await store.put_state(namespace, key, n)
        for n, (namespace, key) in enumerate(places):
            assert await store.get_state(namespace, key) == StateItem(n, 1)
        await store.delete_state("a", "b.c")
        assert await store.get_state("b", "b.c") == StateItem(4, 1)
        assert await store.list_state("a") == ["B.c"]

    async def test_keys_are_listed_by_code_point(self, store: Store) -> None:
        keys = ["b", "B", "a", "A", "a-b", "a_b", "ab", "a.b", "a:b", "10", "9", "a+b", "a=b", "a@b", "aB"]
        for key in keys:
            await store.put_state("notes", key, 1)
        await store.put_state("elsewhere", "c", 1)
        assert await store.list_state("notes") == sorted(keys)

    async def test_keys_are_listed_by_prefix_and_after_another(self, store: Store) -> None:
        keys = ["a_1", "a_2", "ab1", "A_1", "a_", "b", "a.1"]
        for key in keys:
            await store.put_state("notes", key, 1)
        for prefix in ("", "a", "a_", "A", "a_1", "c", "_", "%", "a%"):
            for after in ("", "a", "a_", "a_1", "A", "z"):
                expected = sorted(key for key in keys if key.startswith(prefix) and key > after)
                assert await store.list_state("notes", prefix=prefix, after=after) == expected, (prefix, after)

    async def test_keys_are_listed_a_page_at_a_time(self, store: Store) -> None:
        keys = [f"key-{n}" for n in range(7)]
        for key in keys:
            await store.put_state("notes", key, 1)
        assert await store.list_state("notes", limit=3) == keys[:3]
        assert await store.list_state("notes", limit=3, after="key-2") == keys[3:6]
        assert await store.list_state("notes", limit=3, after="key-5", prefix="key") == keys[6:]

    async def test_of_many_who_write_at_one_version_exactly_one_succeeds(self, store: Store) -> None:
        writes = [store.put_state("notes", "key", n, expected=0) for n in range(10)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert results.count(1) == 1
        assert [type(result) for result in results].count(StateConflictError) == 9
        assert await store.get_state("notes", "key") == StateItem(results.index(1), 1)

    async def test_twenty_who_update_one_item_at_once_lose_nothing(self, store: Store) -> None:
        def more(value: Json) -> Json:
            return (value or 0) + 1

        async def update() -> None:
            for _ in range(3):
                await store.update_state("notes", "count", more)

        await asyncio.gather(*(update() for _ in range(20)))
        assert await store.get_state("notes", "count") == StateItem(60, 60)

    async def test_update_gives_back_what_it_wrote(self, store: Store) -> None:
        assert await store.update_state("notes", "key", lambda value: [value]) == StateItem([None], 1)
        assert await store.update_state("notes", "key", lambda value: [value]) == StateItem([[None]], 2)
        assert await store.get_state("notes", "key") == StateItem([[None]], 2)


class StateWriteLaws(Laws):
    """Items written by a commit, together with everything else in it."""

    async def test_a_commit_writes_its_state_items(self, store: Store) -> None:
        task = await begin(store)
        await store.put_state("notes", "old", 1)
        await task.log(
            "with state",
            writes=[
                StateWrite(namespace="notes", key="new", value=AWKWARD, expected=0),
                StateWrite(namespace="notes", key="old", value=2, expected=1),
                StateWrite(namespace="elsewhere", key="any", value=None),
            ],
        )
        assert await store.get_state("notes", "new") == StateItem(AWKWARD, 1)
        assert await store.get_state("notes", "old") == StateItem(2, 2)
        assert await store.get_state("elsewhere", "any") == StateItem(None, 1)
        assert await entries_of(store, task.id) == task.entries

    async def test_a_commit_that_creates_a_session_or_has_no_entries_writes_state_too(self, store: Store) -> None:
        elsewhere, task = await begin(store, "s-1"), ScriptedSession(store, "s-2")
        await task.append(elsewhere.entries[0].record, writes=[StateWrite(namespace="notes", key="k", value="born")])
        assert await store.get_state("notes", "k") == StateItem("born", 1)
        await task.append(writes=[StateWrite(namespace="notes", key="k", value="later")])
        assert await store.get_state("notes", "k") == StateItem("later", 2)

    async def test_a_commit_deletes_state_items(self, store: Store) -> None:
        task = await begin(store)
        for key in ("a", "b", "c"):
            await store.put_state("notes", key, key)
        gone = [StateWrite(namespace="notes", key="a", delete=True)]
        await task.log(
            "without a and b", writes=[*gone, StateWrite(namespace="notes", key="b", delete=True, expected=1)]
        )
        assert await store.list_state("notes") == ["c"]
        assert await store.put_state("notes", "a", "again") == 1

    async def test_a_commit_with_a_state_item_at_another_version_is_refused_and_writes_nothing(
        self, store: Store
    ) -> None:
        task = await begin(store)
        await store.put_state("notes", "key", "a")
        sent = await store.send(task.id, "key", WakeMessage(), 1)
        good = StateWrite(namespace="notes", key="good", value=1)
        before = await picture(store)
        for key, expected, delete in (("key", 0, False), ("key", 2, False), ("key", 2, True), ("none", 1, False)):
            bad = StateWrite(namespace="notes", key=key, value=1, delete=delete, expected=expected)
            for epoch in (task.epoch, None):
                with refused(StateConflictError) as refusal:
                    await task.log("no", takes=[sent.number], writes=[good, bad], epoch=epoch)
                error = refusal.error
                assert (error.namespace, error.key, error.expected) == ("notes", key, expected)
                assert error.actual == (1 if key == "key" else 0)
        assert await picture(store) == before

    async def test_a_commit_refused_for_another_reason_writes_no_state(self, store: Store) -> None:
        task = await begin(store)
        await store.put_state("notes", "key", "a")
        before = await picture(store)
        writes = [StateWrite(namespace="notes", key="key", value="b")]
        with refused(PositionConflictError):
            await store.append(task.commit(expected=5, writes=writes))
        with refused(LeaseLostError):
            await store.append(task.commit(epoch=99, writes=writes))
        with refused(MessageTakenError):
            await store.append(task.commit(takes=[10**9], writes=writes))
        assert await picture(store) == before

    async def test_of_many_sessions_that_write_one_item_at_one_version_exactly_one_commits(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(8)]
        writes = {task.id: [StateWrite(namespace="notes", key="key", value=task.id, expected=0)] for task in tasks}
        calls = [task.log("mine", writes=writes[task.id]) for task in tasks]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results].count(StateConflictError) == 7
        [winner] = [task for task in tasks if task.position == 2]
        assert await store.get_state("notes", "key") == StateItem(winner.id, 1)
        for task in tasks:
            assert await entries_of(store, task.id) == task.entries

    async def test_several_writes_of_one_item_in_a_commit_follow_on_each_other(self, store: Store) -> None:
        task = await begin(store)
        writes = [
            StateWrite(namespace="notes", key="key", value=value, delete=value is None, expected=expected)
            for value, expected in (("a", 0), ("b", 1), (None, 2), ("c", 0))
        ]
        await task.log("four times", writes=writes)
        assert await store.get_state("notes", "key") == StateItem("c", 1)
