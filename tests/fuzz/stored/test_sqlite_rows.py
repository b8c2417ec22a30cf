"""Rows of a SQLite file that were changed, cut or swapped: the session they are of is named, and no other is harmed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import Store
from holdfast.store.sqlite.store import SqliteStore
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.stored.damage import (
    CACHES,
    HEALTHY,
    HURT,
    READS,
    Change,
    changes,
    check_reads,
    check_writes,
    sample,
    seen,
)
from tests.fuzz.stored.sqlite_damage import apply, content
from tests.store.sqlite.helpers import settle


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("original") / "store.db"

    async def made() -> None:
        async with SqliteStore(str(path)) as store:
            await sample(store)

    asyncio.run(made())
    settle(str(path))
    return path.read_bytes()


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
    ([Change("journal", 0, 2, -1, "set", 0)], True),
    ([Change("journal", 0, 3, 2**63 - 1, "set", 0)], True),
    ([Change("shares", 0, 2, b"", "set", 0)], False),
    ([Change("sessions", 0, 15, (0, b"\xff"), "bytes", 0)], False),
]
"""Damage that once was no `CorruptSessionError`."""


def test_changed_rows_are_named_and_harm_no_other_session(fuzzer: Fuzzer, tmp_path: Path, original: bytes) -> None:
    path = tmp_path / "store.db"

    async def healthy_sessions() -> dict[str, dict[str, Any]]:
        async with SqliteStore(str(path)) as store:
            return {session_id: await seen(store, session_id) for session_id in HEALTHY}

    path.write_bytes(original)
    healthy = asyncio.run(healthy_sessions())

    async def check(made: list[Change], is_sealed: bool) -> None:
        path.write_bytes(original)
        apply(path, made, is_sealed)
        before = content(path)
        async with SqliteStore(str(path)) as store:
            await check_reads(store, healthy)
        assert content(path) == before, "reading has changed the file"
        async with SqliteStore(str(path)) as store:
            await check_writes(store, healthy)

    fuzzer.run(lambda damage: asyncio.run(check(*damage)), changes(), examples=30, known=KNOWN)


def test_without_its_caches_a_session_is_what_it_was(fuzzer: Fuzzer, tmp_path: Path, original: bytes) -> None:
    path = tmp_path / "store.db"

    async def read_all(store: Store) -> dict[str, Any]:
        return {name: await READS[name](store, HURT) for name in ("load", "entries", "session", "mailbox", "export")}

    async def check(made: list[Change]) -> None:
        path.write_bytes(original)
        async with SqliteStore(str(path)) as store:
            before = await read_all(store)
        apply(path, made, is_sealed=False)
        async with SqliteStore(str(path)) as store:
            assert await read_all(store) == before
            await store.snapshot(HURT)
            await store.checkpoint(HURT)

    fuzzer.run(lambda damage: asyncio.run(check(damage[0])), changes(CACHES), examples=40)
