"""Sessions whose records have times that no calendar has: every command that shows them does, and none breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.queries import HumanQuery
from holdfast.store import open_store
from holdfast.testing.sessions import begin
from tests.cli.helpers import Home


@pytest.mark.parametrize("at", [2**62, -(2**62), 253_402_300_800_000])
def test_a_session_from_no_time_is_shown_exported_and_ended(tmp_path: Path, at: int) -> None:
    home = Home(tmp_path)

    async def made() -> None:
        async with open_store(home.url) as store:
            session = await begin(store, "far", at=at, hold_ms=0)
            await session.ask(HumanQuery(prompt="well?"))

    asyncio.run(made())
    for words in (["sessions"], ["show", "far", "--journal"], ["export", "far", str(tmp_path / "file")]):
        assert home.call(*words, stdin="").exit_code == 0
    refused = home.call("import", str(tmp_path / "file"), stdin="")
    assert "which is no date" in refused.output
    assert home.call("cancel", "far", stdin="").exit_code == 0
