"""Pages of sessions that cannot be shown as they should: each says what is wrong, and what can still be done."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import served, triage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_session_that_was_deleted_is_said_to_be_and_when(tmp_path: Path, tab: OpenTab) -> None:
    async with served(tmp_path / "deleted.db") as site:
        await site.runtime.mount.holdfast.start(triage, id="old")
        page = await tab(f"{site.url}/s/old")
        await page.get_by_label("More actions").click()
        await page.get_by_role("button", name="Delete…").click()
        await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
        await page.get_by_label("The id of the session").fill("old")
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_text("Deleted.", exact=True)).to_be_visible()
        await page.goto(f"{site.url}/s/old")
        await expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Deleted \d"))
        await page.get_by_role("link", name="All sessions").first.click()
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


async def test_a_damaged_session_can_be_forked_before_the_damage(tmp_path: Path, tab: OpenTab) -> None:
    file = tmp_path / "damaged.db"
    async with served(file) as site:
        await site.runtime.mount.holdfast.start(triage, id="torn")
        await site.runtime.mount.holdfast.feed("torn", {"q-0": "yes"})
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE journal SET body = '' WHERE first > 2")
    async with served(file) as site:
        page = await tab(f"{site.url}/s/torn")
        await expect(page.get_by_role("alert")).to_contain_text("damaged at position")
        await expect(page.get_by_role("button", name="Export")).to_be_visible()
        await page.get_by_role("button", name="Fork…").click()
        await page.get_by_role("button", name="Fork", exact=True).click()
        await expect(page).not_to_have_url(re.compile(r"/s/torn$"))
        await expect(page.get_by_role("gridcell", name="File it with the data team?")).to_be_visible()
