"""A new SQLite file for each test, and a store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(path) as opened:
        yield opened
