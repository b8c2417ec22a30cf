"""Retention deletes what has ended in small steps, by age and by size, and gives back the space."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.loader import load

from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.retention import STEP
from holdfast.engine.upkeep import Upkeep
from holdfast.store.postgres import size
from holdfast.store.sqlite import upkeep
from holdfast.store.upkeep import UpkeepStore
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import quiet, sqlite
from tests.engine.programs import two_questions
from tests.store.postgres.helpers import connected

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


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return sqlite(tmp_path) if request.param == "sqlite" else fresh_database(request.getfixturevalue("server"))


async def used(store: UpkeepStore) -> int:
    """About how many bytes a store takes."""
    low, high = 0, 2**30
    while high - low > 2**12:
        middle = (low + high) // 2
        low, high = (middle, high) if await store.is_larger(middle) else (low, middle)
    return high


async def test_a_store_that_is_too_large_deletes_what_ended_first_until_it_is_not(url: str) -> None:
    await load(url, "ended", SESSIONS)
    async with quiet(url) as hf:
        ended = [row.session_id for row in await hf.store.all_sessions()]
        waiting = (await hf.start(two_questions)).session_id
        most = int(0.7 * await used(hf.store))
    async with open_holdfast(url, upkeep=Upkeep(on=False, max_bytes=most)) as hf:
        _, deleted = await hf.clean()
        assert not await hf.store.is_larger(most)
        kept = [row.session_id for row in await hf.store.all_sessions()]
        assert waiting in kept
        assert sorted([*deleted, *kept]) == sorted([*ended, waiting])
        assert 0.1 * SESSIONS < len(deleted) < 0.6 * SESSIONS
        assert await hf.clean() == ([], [])


async def test_what_has_not_ended_is_kept_however_large_the_store_is(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_holdfast(url, upkeep=Upkeep(on=False, max_bytes=0)) as hf:
        waiting = (await hf.start(two_questions)).session_id
        assert await hf.clean() == ([], [])
        assert [row.session_id for row in await hf.store.all_sessions()] == [waiting]
    assert "no session is left that has ended" in caplog.text


async def test_the_size_of_large_tables_is_estimated_from_some_of_their_pages(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database(server)
    await load(url, "ended", SESSIONS)
    async with connected(url) as connection:
        exact = await size.used_bytes(connection, 0)
        monkeypatch.setattr(size, "SAMPLED_PAGES", 4)
        estimates = [await size.used_bytes(connection, 0) for _ in range(200)]
    assert len(set(estimates)) > 1
    assert 0.7 * exact < sum(estimates) / len(estimates) < 1.3 * exact
