"""An engine on a new SQLite file for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.engine.helpers import sqlite


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(sqlite(tmp_path)) as opened:
        yield opened
