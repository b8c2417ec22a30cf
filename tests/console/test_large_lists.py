"""Many sessions: the first rows are there at once, and scrolling never holds the page up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from bench.loader import load
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import Site, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver(list => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({type: 'longtask', buffered: false});
"""


@contextlib.asynccontextmanager
async def many_sessions(file: Path, count: int) -> AsyncIterator[Site]:
    """A served store of so many sessions."""
    await load(f"sqlite:///{file}", "chat", count)
    async with served(file) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with many_sessions(tmp_path_factory.mktemp("console") / "large.db", 1_500) as site:
        yield site


async def scrolled(site: Site, tab: OpenTab) -> dict[str, Any]:
    """What was seen of a list of many sessions."""
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


async def test_a_list_draws_only_what_is_near_and_reads_on_as_it_is_scrolled(site: Site, tab: OpenTab) -> None:
    seen = await scrolled(site, tab)
    assert seen["held"] < 60
    assert seen["last"] > 300


async def test_the_focus_stays_with_its_session_and_goes_to_the_list_once_that_is_scrolled_away(
    site: Site, tab: OpenTab
) -> None:
    page = await tab(f"{site.url}/sessions")
    box = page.locator("#session-9 input")
    await box.focus()
    name = await box.get_attribute("aria-label") or ""
    grid = page.get_by_role("grid", name="Sessions")
    await grid.evaluate("each => each.scrollTo(0, 46 * 15)")  # the elements of the rows above are used again
    await expect(page.locator("#session-0")).to_have_count(0)
    await expect(page.get_by_label(name)).to_be_focused()
    await grid.evaluate("each => each.scrollTo(0, 46 * 80)")
    await expect(page.locator("#session-9")).to_have_count(0)
    await expect(grid).to_be_focused()


async def test_rows_are_in_the_order_in_which_they_are_drawn_wherever_a_list_is_scrolled_to(
    site: Site, tab: OpenTab
) -> None:
    page = await tab(f"{site.url}/sessions")
    grid = page.get_by_role("grid", name="Sessions")
    rows = page.locator(".row-line")
    await expect(rows.locator(".title").nth(10)).to_be_attached()
    for row in (1, 12, 40, 80, 55, 3, 79, 0):
        await grid.evaluate(f"each => each.scrollTo(0, 46 * {row})")
        await expect(page.locator(f"#session-{row} .title")).to_be_in_viewport()
        at = await rows.evaluate_all(
            "each => each.map(row => [Number(row.id.slice(8)), row.getBoundingClientRect().y])"
        )
        assert at == sorted(at)
        assert [index for index, _ in at] == list(range(at[0][0], at[0][0] + len(at)))


@pytest.mark.soak
@pytest.mark.skipif(not os.environ.get("HOLDFAST_SOAK"), reason="long: HOLDFAST_SOAK=1")
async def test_a_hundred_thousand_sessions_are_there_in_a_second(tmp_path: Path, tab: OpenTab) -> None:
    async with many_sessions(tmp_path / "large.db", 100_000) as site:
        seen = await scrolled(site, tab)
    assert seen["first_ms"] < 1_000
    assert seen["longest"] < 100
    assert seen["held"] < 60
