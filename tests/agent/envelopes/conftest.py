"""Places for envelopes, made anew for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.agent.envelopes.helpers import KINDS, Rig, a_rig


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield await a_rig(request.param, tmp_path, stack)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "sessions"
