"""A Restate server for each process that runs tests, and a fleet for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.restate_server import VARIABLE, RestateServer, find_restate, restate_server
from tests.engine.restate.fleet import RestateFleet
from tests.paths import REPO


@pytest.fixture(scope="session")
def restate_program() -> Path:
    found = find_restate(REPO / "build" / "restate")
    if found is None:
        pytest.skip(f"there is no Restate server: `make restate` installs one from npm, or set {VARIABLE}")
    return found


@pytest.fixture(scope="session")
def restate(restate_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestateServer]:
    with restate_server(restate_program, tmp_path_factory.mktemp("restate")) as server:
        yield server


@pytest.fixture
async def fleet(restate: RestateServer, server: str, tmp_path: Path) -> AsyncIterator[RestateFleet]:
    async with RestateFleet.on(fresh_database(server), [restate], tmp_path) as fleet:
        yield fleet
        await fleet.until_calm()
