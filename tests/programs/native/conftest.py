"""An engine in memory for each test of native strategies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.engine.holdfast import Holdfast, open_holdfast


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened
