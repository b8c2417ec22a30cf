"""What the sweep of a fleet finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine.fleet import sweep as sweeps
from holdfast.engine.fleet.sweep import AHEAD_MS, OVERLAP_MS, WHOLE_EVERY, Sweep
from holdfast.engine.holdfast import Holdfast
from tests.engine.helpers import quiet
from tests.engine.process_child import sleeper


def sweep_of(holdfast: Holdfast, told: list[str]) -> Sweep:
    return Sweep(holdfast.engine, lambda session_id: None, lambda session_id, due: told.append(session_id))


async def test_timers_are_told_of_once_they_are_near(tmp_path: Path) -> None:
    told: list[str] = []
    async with quiet(f"sqlite:///{tmp_path}/store.db") as holdfast:
        for name, ms in (("soon", OVERLAP_MS // 3), ("near", AHEAD_MS - 5_000), ("far", 3 * AHEAD_MS)):
            await holdfast.start(sleeper, id=name, ctx={"ms": ms}, wait=0)
        sweep = sweep_of(holdfast, told)
        await sweep.run(1)
        assert told == []
        await sweep.run(WHOLE_EVERY)  # the first that looks for everything
        assert told == ["soon", "near"]
        await sweep.run(2 * WHOLE_EVERY)
        assert told == ["soon", "near", "near"]


async def test_however_many_timers_have_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "MOST", 3)
    told: list[str] = []
    async with quiet(f"sqlite:///{tmp_path}/store.db") as holdfast:
        names = [f"s-{number}" for number in range(10)]
        for number, name in enumerate(names):
            await holdfast.start(sleeper, id=name, ctx={"ms": 20_000 + 1_000 * (number // 2)}, wait=0)
        await sweep_of(holdfast, told).run(WHOLE_EVERY)
    assert set(told) == set(names)
