"""Laws of the inventory: what a store has beside its sessions can be listed, and deleted ids brought into it."""

from __future__ import annotations

from holdfast.core.errors import InvalidIdError, SessionDeletedError
from holdfast.store.contract import Store
from holdfast.store.inventory import Tombstone
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import begin, ids_of, picture


class InventoryLaws(Laws):
    """Namespaces of state, and the ids of deleted sessions."""

    async def test_each_namespace_that_has_an_item_is_listed_once(self, store: Store) -> None:
        assert await store.namespaces() == []
        for namespace, key in (("b", "one"), ("a", "one"), ("b", "two"), ("B", "one"), ("gone", "one")):
            await store.put_state(namespace, key, 1)
        await store.delete_state("gone", "one")
        assert await store.namespaces() == ["B", "a", "b"]

    async def test_deleted_sessions_are_listed_by_id_a_page_at_a_time(self, store: Store) -> None:
        assert await store.tombstones() == []
        for number, session_id in enumerate(("s-b", "s-A", "s-c")):
            await begin(store, session_id)
            await store.delete(session_id, number)
        listed = [Tombstone("s-A", 1), Tombstone("s-b", 0), Tombstone("s-c", 2)]
        assert await store.tombstones() == listed
        assert await store.tombstones(limit=2) == listed[:2]
        assert await store.tombstones(after="s-b") == listed[2:]
        assert await store.tombstones(limit=0) == []

    async def test_a_buried_id_is_that_of_a_deleted_session(self, store: Store) -> None:
        await store.bury([Tombstone("s-old", 12), Tombstone("s-older", 11)])
        with refused(SessionDeletedError) as refusal:
            await store.session("s-old")
        assert refusal.error.deleted_at == 12
        with refused(SessionDeletedError):
            await begin(store, "s-older")

    async def test_burying_changes_no_session_and_no_earlier_deletion(self, store: Store) -> None:
        await begin(store, "s-live")
        await store.bury([Tombstone("s-old", 12)])
        before = await picture(store)
        await store.bury([Tombstone("s-live", 1), Tombstone("s-old", 99)])
        assert await picture(store) == before
        assert await ids_of(store) == ["s-live"]
        assert await store.tombstones() == [Tombstone("s-old", 12)]

    async def test_ids_that_break_the_grammar_are_not_buried(self, store: Store) -> None:
        with refused(InvalidIdError):
            await store.bury([Tombstone("s-good", 1), Tombstone("not an id", 1)])
        assert await store.tombstones() == []
