"""Stores for the tests of agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.servers import fresh_database, postgres_server

from .helpers import Home


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture(params=["memory", "sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """One that other processes can reach."""
    if request.param == "sqlite":
        return Home(f"sqlite:///{tmp_path}/chat.db")
    return Home(fresh_database(request.getfixturevalue("server")))
