"""Stores for the tests of agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from tests.agent.helpers import Home


@pytest.fixture(params=["memory", "sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """One that other processes can reach."""
    if request.param == "sqlite":
        return Home(f"sqlite:///{tmp_path}/chat.db")
    return Home(fresh_database(request.getfixturevalue("server")))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def any_home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """One of each kind of store."""
    if request.param == "memory":
        return Home("memory:")
    if request.param == "sqlite":
        return Home(f"sqlite:///{tmp_path}/chat.db")
    return Home(fresh_database(request.getfixturevalue("server")))
