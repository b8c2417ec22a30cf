"""Many sessions: the first rows are there at once, and scrolling never holds the page up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from bench.loader import load
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import served

pytestmark = pytest.mark.asyncio(loop_scope="session")

WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver(list => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({type: 'longtask', buffered: false});
"""


async def scrolled(tmp_path: Path, tab: OpenTab, count: int) -> dict[str, Any]:
    """What was seen of a list of so many sessions."""
    file = tmp_path / "large.db"
    await load(f"sqlite:///{file}", "chat", count)
    async with served(file) as site:
        page = await tab(f"{site.url}/inbox")
        await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        began: float = await page.evaluate("performance.now()")
        await page.get_by_role("link", name="Sessions").click()
        await page.wait_for_selector(".row-line .title")
        first_ms = await page.evaluate("performance.now()") - began
        await page.evaluate(WATCH_TASKS)
        grid = page.get_by_role("grid", name="Sessions")
        drawn = page.locator(".row-line .title")
        for _ in range(15):
            await grid.evaluate("each => each.scrollBy(0, 4000)")
            await expect(drawn.nth(10)).to_be_attached()  # what was scrolled to is read, and drawn
        held = await page.locator(".row-line").count()
        last = await grid.evaluate("each => Math.round(each.scrollTop / 46)")
        await grid.evaluate("each => each.scrollTo(0, 0)")
        await page.wait_for_selector("#session-0 .title")
        return {"first_ms": first_ms, "held": held, "last": last, "longest": await page.evaluate("window.longest")}


async def test_a_list_draws_only_what_is_near_and_reads_on_as_it_is_scrolled(tmp_path: Path, tab: OpenTab) -> None:
    seen = await scrolled(tmp_path, tab, 1_500)
    assert seen["held"] < 60
    assert seen["last"] > 300


@pytest.mark.soak
@pytest.mark.skipif(not os.environ.get("HOLDFAST_SOAK"), reason="long: HOLDFAST_SOAK=1")
async def test_a_hundred_thousand_sessions_are_there_in_a_second(tmp_path: Path, tab: OpenTab) -> None:
    seen = await scrolled(tmp_path, tab, 100_000)
    assert seen["first_ms"] < 1_000
    assert seen["longest"] < 100
    assert seen["held"] < 60
