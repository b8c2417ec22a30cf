"""The SQLite file becomes smaller when sessions are deleted, while it is open and others read and write it."""

from __future__ import annotations

import os

import pytest
from bench.loader import load

from holdfast.store.sqlite import upkeep
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin


async def test_an_open_file_gives_back_the_space_of_deleted_sessions(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SPARE_PAGES", 16)
    await load(f"sqlite:///{path}", "ended", 1_000)
    before = os.path.getsize(path)
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        while await store.prune(2**50, 50):
            pass
        while await store.give_back_space():
            await other.sessions()
        assert os.path.getsize(path) <= 0.4 * before
        await begin(other, "next")
        assert [row.session_id for row in (await store.sessions()).rows] == ["next"]


async def test_few_free_pages_are_kept_for_what_is_written_next(path: str) -> None:
    await load(f"sqlite:///{path}", "ended", 100)
    before = os.path.getsize(path)
    async with SqliteStore(path) as store:
        await store.prune(2**50)
        assert not await store.give_back_space()
    assert os.path.getsize(path) == before
