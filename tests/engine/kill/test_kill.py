"""A process that is killed at any durable boundary loses nothing, and a fresh one finishes all of its sessions.

`scenario.py` has the scenario. Every place where the engine is about to make something durable, or has just done so,
is a *seam*. `seams.json` lists them in the order of the scenario, and the process is killed once at each.

A boundary that is new, or gone, fails `test_every_durable_boundary_is_listed`. When that is as it should be:

    HOLDFAST_LIST_SEAMS=1 pytest tests/engine/kill/test_kill.py -k listed

writes the list anew; the change belongs in the commit that caused it.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.engine.kill.laws import broken_laws
from tests.engine.kill.places import postgres_places, sqlite_places
from tests.engine.kill.runs import SEAMS, TRIES, by_step, hurried, kill_at_each, listed_seams, thorough, trace

POSTGRES_SHARE = 3
"""One in so many seams is tried on PostgreSQL in the default run; `make soak` tries all of them."""

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")


def test_every_durable_boundary_is_listed(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for number in range(TRIES):
        found = by_step(trace(sqlite_places(tmp_path)(f"traced-{number}")).seams)
        if "HOLDFAST_LIST_SEAMS" in os.environ:
            SEAMS.write_text(json.dumps(found, indent=2) + "\n")
        if found == json.loads(SEAMS.read_text()):
            break
    assert found == json.loads(SEAMS.read_text())


def test_the_uninterrupted_run_keeps_every_promise(tmp_path: Path) -> None:
    traced = trace(sqlite_places(tmp_path)("traced"))
    assert broken_laws(traced.evidence, traced.expected, None) == []
    assert all(row.summary.state.is_terminal for row in traced.evidence.rows.values())


def test_a_process_killed_at_any_boundary_on_sqlite_loses_nothing(tmp_path: Path) -> None:
    broken = kill_at_each(hurried(listed_seams()), sqlite_places(tmp_path))
    assert not broken, "\n".join(broken)


def test_a_process_killed_at_some_boundaries_on_postgresql_loses_nothing(server: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    seams = listed_seams()
    chosen = random.Random(seed).sample(seams, len(seams) // POSTGRES_SHARE)
    broken = kill_at_each(hurried(chosen), postgres_places(server, tmp_path))
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_process_killed_at_any_boundary_on_sqlite_loses_nothing_however_soon_it_is_replaced(tmp_path: Path) -> None:
    broken = kill_at_each(thorough(listed_seams()), sqlite_places(tmp_path))
    assert not broken, "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_process_killed_at_any_boundary_on_postgresql_loses_nothing(server: str, tmp_path: Path) -> None:
    broken = kill_at_each(thorough(listed_seams()), postgres_places(server, tmp_path))
    assert not broken, "\n".join(broken)
