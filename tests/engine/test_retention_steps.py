"""Retention deletes what has ended in small steps, and gives back the space."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.loader import load

from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.retention import STEP
from holdfast.engine.upkeep import Upkeep
from holdfast.store.sqlite import upkeep
from tests.engine.helpers import sqlite

SESSIONS = 10 * STEP + 1


async def test_all_that_is_too_old_is_deleted_step_by_step_and_its_space_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SPARE_PAGES", 16)
    url = sqlite(tmp_path)
    await load(url, "ended", SESSIONS)
    file = Path(url.removeprefix("sqlite:///"))
    before = file.stat().st_size
    async with open_holdfast(url, upkeep=Upkeep(on=False, keep_ended_ms=0)) as hf:
        steps: list[int] = []
        prune = hf.store._prune

        async def counted(ended_before: int, limit: int, services: object) -> list[str]:
            gone = await prune(ended_before, limit, services)  # type: ignore[arg-type]
            steps.append(len(gone))
            return gone

        hf.store._prune = counted  # type: ignore[method-assign]
        _, deleted = await hf.clean()
        assert len(deleted) == SESSIONS
        assert max(steps) == STEP
        assert await hf.store.all_sessions() == []
    assert file.stat().st_size < before
