"""A short slice of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from tests.chaos.run import chaos, disk

SECONDS = 6.0


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_after_trouble_every_session_ends_or_says_what_it_waits_for(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = store if store == "sqlite" else fresh_database(request.getfixturevalue("server"))
    with disk(tmp_path):
        run, problems = await chaos(where, tmp_path, SECONDS, seed=1)
    assert problems == []
    assert run.started
    assert run.faults
