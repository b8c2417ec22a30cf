"""What another process does is taken up because the store says so, not because somebody looks from time to time."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine import patrol, takeover, timers
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.patience import soon
from tests.engine.helpers import quiet, sqlite
from tests.store.pg_fixtures import database, postgres_url

__all__ = ["database", "postgres_url"]


@strategy(name="news-naps")
async def naps(ctx: Context) -> str:
    """Sleeps for a moment."""
    await ctx.sleep(0.2)
    return "awake"


@strategy(name="news-asks")
async def asks(ctx: Context) -> str:
    """Asks whichever process has a model."""
    return str(await ctx.llm("hello?"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store on which nobody looks for anything in the time that a test takes."""
    for module, name in ((takeover, "LOOK_MS"), (patrol, "PATROL_MS"), (timers, "LOOK_MS")):
        monkeypatch.setattr(module, name, 3_600_000)
    if request.param == "sqlite":
        return sqlite(tmp_path)
    found: str = request.getfixturevalue("database")
    return found


async def test_a_timer_that_another_process_has_set_is_met(url: str) -> None:
    async with quiet(url) as here, open_holdfast(url) as other:
        await soon(other.start(asks, id="first", llm="host"))
        await here.start(naps, id="s", wait=0)
        assert await soon(other.result("s")) == "awake"


async def test_a_session_that_another_process_leaves_is_taken_up(url: str) -> None:
    async with quiet(url) as here, open_holdfast(url) as other:
        other.drive("llm", lambda query: "hello")
        await soon(other.start(naps, id="first"))
        await here.start(asks, id="s", llm="any", wait=0)
        assert await soon(other.result("s")) == "hello"


async def test_nothing_that_waits_for_a_host_is_looked_at(url: str) -> None:
    async with quiet(url) as here:
        await here.start(asks, id="s", llm="host")
        assert await here.store.open_needs() == []
