"""Fleets whose workers, connections and engine are killed at random: a short slice, and the minute for `make fleet`."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.restate_server import RestateServer, restate_cluster
from tests.fleet.soak import soak

IS_LONG = pytest.mark.skipif("HOLDFAST_FLEET" not in os.environ, reason="long; `make fleet` runs it")
SLICE = Namespace(seconds=5.0, sessions=40, seed=2)
MINUTE = Namespace(seconds=60.0, sessions=1_000, seed=3)


async def test_a_fleet_on_postgresql_alone_loses_nothing_and_does_nothing_twice(server: str, tmp_path: Path) -> None:
    assert await soak(fresh_database(server), tmp_path, [], SLICE) == []


async def test_a_fleet_with_an_engine_loses_nothing_and_does_nothing_twice(
    server: str, restate: RestateServer, tmp_path: Path
) -> None:
    assert await soak(fresh_database(server), tmp_path, [restate], SLICE) == []


@pytest.mark.fleet
@IS_LONG
async def test_a_minute_of_kills_on_postgresql_alone(server: str, tmp_path: Path) -> None:
    assert await soak(fresh_database(server), tmp_path, [], MINUTE) == []


@pytest.mark.fleet
@IS_LONG
async def test_a_minute_of_kills_with_an_engine_of_three_nodes(
    server: str, restate_program: Path, tmp_path: Path
) -> None:
    with restate_cluster(restate_program, tmp_path / "cluster", 3) as servers:
        assert await soak(fresh_database(server), tmp_path, servers, MINUTE) == []
