"""Two workers, one killed every second, while items and cancellations come in: nothing is lost, nothing done twice.

The default run is a slice of four seconds on a few sessions. `make soak` runs all of it, and prints its figures.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from tests.agent.soak.child import LEASE_MS
from tests.agent.soak.harness import Plan, Report, run

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")

TAKEOVER_MS = {"sqlite": LEASE_MS, "postgresql": 2_000}
"""Milliseconds after which what a dead worker had under way is gone on with."""

BUSY = 2
"""How many times as long it may take where other tests run at the same time."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/soak.db"
    return fresh_database(request.getfixturevalue("server"))


def check(report: Report, patience: int = 1) -> None:
    print(f"\n{report}")
    assert report.broken == []
    assert report.kills
    assert report.turns
    assert report.cancels["withdrawn"] + report.cancels["stopped"]
    most = patience * TAKEOVER_MS[report.plan.url.partition(":")[0]]
    assert max(report.takeovers_ms, default=0) <= most, sorted(report.takeovers_ms)[-5:]


async def test_every_item_has_one_outcome_however_often_workers_are_killed(url: str, tmp_path: Path) -> None:
    check(await run(Plan(url, tmp_path / "ledger", seconds=4.0, sessions=30)), BUSY)


@soak
@pytest.mark.soak
async def test_every_item_of_500_sessions_has_one_outcome(url: str, tmp_path: Path) -> None:
    check(await run(Plan(url, tmp_path / "ledger", seconds=30.0, sessions=500)))
