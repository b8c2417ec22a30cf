"""A server on a SQLite file, for each test its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Runtime
from holdfast.testing.provider import ScriptedProvider
from tests.serve.http.api_server import ApiServer, api_server
from tests.serve.http.receiver import Receiver, listening

SAID = "It is a bug in the export."


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    provider = ScriptedProvider([SAID], loop=True)
    async with Runtime(f"sqlite:///{tmp_path}/served.db", provider=provider) as runtime, api_server(runtime) as server:
        yield server


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening() as found:
        yield found
