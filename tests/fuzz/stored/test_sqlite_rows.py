"""Rows of a SQLite file that were changed, cut or swapped: the session they are of is named, and no other is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.summary import Summary, summarize
from holdfast.store import Store
from holdfast.store.export import export_lines
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import entries_of
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.stored.damage import CACHES, HEALTHY, HURT, Change, apply, changes, content, sample


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("original") / "store.db"
    asyncio.run(sample(str(path)))
    return path.read_bytes()


async def exported(store: Store, session_id: str) -> list[bytes]:
    return [line async for line in export_lines(store, session_id)]


async def folded(store: Store, session_id: str) -> Summary:
    return summarize(await store.load(session_id))


READS: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "load": folded,
    "entries": entries_of,
    "session": lambda store, session: store.session(session),
    "position": lambda store, session: store.position(session),
    "mailbox": lambda store, session: store.mailbox(session),
    "snapshot": lambda store, session: store.snapshot(session),
    "checkpoint": lambda store, session: store.checkpoint(session),
    "state": lambda store, session: store.get_state("notes", session),
    "export": exported,
}

OF_ALL: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "sessions": lambda store: store.sessions(),
    "due": lambda store: store.due(2**62),
    "lost": lambda store: store.lost(),
    "keys": lambda store: store.list_state("notes"),
}


def journal(column: int, value: object, action: str = "set") -> tuple[list[Change], bool]:
    """A change of the fourth row of the journal, which is sealed again."""
    return [Change("journal", 3, column, value, action, 0)], True


KNOWN = [
    ([Change("sessions", 0, 3, b"[]", "set", 0)], False),
    journal(2, "text"),
    journal(3, 0.5),
    journal(4, "1000030x"),
    journal(5, '["x"]'),
    journal(5, "[0]"),
    journal(7, '"later"'),
    journal(7, '[{"$blob": 7}]'),
    journal(7, '[{"$blob" 7}]'),
    journal(7, "[]"),
    ([Change("journal", 0, 7, "[]", "set", 0)], True),
]
"""Damage that once was no `CorruptSessionError`."""


async def attempt(asking: Awaitable[Any]) -> Any:
    """What a call gives, or its error, which has to be a declared one."""
    try:
        return await asking
    except Exception as error:
        assert_is_declared(error)
        return error


def test_changed_rows_are_named_and_harm_no_other_session(fuzzer: Fuzzer, tmp_path: Path, original: bytes) -> None:
    path = tmp_path / "store.db"

    async def seen(session_id: str) -> dict[str, Any]:
        async with SqliteStore(str(path)) as store:
            return {name: await attempt(read(store, session_id)) for name, read in READS.items()}

    path.write_bytes(original)
    healthy = {session_id: asyncio.run(seen(session_id)) for session_id in HEALTHY}

    async def check(made: list[Change], is_sealed: bool) -> None:
        path.write_bytes(original)
        apply(path, made, is_sealed)
        before = content(path)
        async with SqliteStore(str(path)) as store:
            for name, read in READS.items():
                found = await attempt(read(store, HURT))
                if isinstance(found, HoldfastError):
                    assert HURT in str(found), (name, found)
            for ask in OF_ALL.values():
                assert not isinstance(await attempt(ask(store)), HoldfastError)
            for session_id in HEALTHY:
                assert {name: await read(store, session_id) for name, read in READS.items()} == healthy[session_id]
        assert content(path) == before, "reading has changed the file"
        async with SqliteStore(str(path)) as store:
            await attempt(store.delete(HURT, at=1))
            for session_id in HEALTHY:
                assert await entries_of(store, session_id) == healthy[session_id]["entries"]

    fuzzer.run(lambda damage: asyncio.run(check(*damage)), changes(), examples=100, known=KNOWN)


def test_without_its_caches_a_session_is_what_it_was(fuzzer: Fuzzer, tmp_path: Path, original: bytes) -> None:
    path = tmp_path / "store.db"

    async def seen(store: Store) -> dict[str, Any]:
        return {name: await READS[name](store, HURT) for name in ("load", "entries", "session", "mailbox", "export")}

    async def check(made: list[Change]) -> None:
        path.write_bytes(original)
        async with SqliteStore(str(path)) as store:
            before = await seen(store)
        apply(path, made, is_sealed=False)
        async with SqliteStore(str(path)) as store:
            assert await seen(store) == before
            await store.snapshot(HURT)
            await store.checkpoint(HURT)

    fuzzer.run(lambda damage: asyncio.run(check(damage[0])), changes(CACHES), examples=40)
