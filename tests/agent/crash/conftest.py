"""Stores for the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.servers import postgres_server

from .running import MakeJob, postgres_jobs, sqlite_jobs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def on_sqlite(tmp_path: Path) -> MakeJob:
    return sqlite_jobs(tmp_path)


@pytest.fixture
def on_postgres(server: str, tmp_path: Path) -> MakeJob:
    return postgres_jobs(server, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def make_job(request: pytest.FixtureRequest) -> MakeJob:
    """Runs on either store."""
    made: MakeJob = request.getfixturevalue("on_sqlite" if request.param == "sqlite" else "on_postgres")
    return made
