"""Stores for the crash tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.crash.harness import MakeJob, postgres_jobs, sqlite_jobs


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
