"""Every page in both themes: it can be used by everybody, runs without faults, and asks no other host."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast.serve.console.files import console_files
from tests.console.conftest import OpenTab
from tests.console.world import TOKEN, Site, fill, interview, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = {
    "/inbox": "File it with the data team?",
    "/inbox?tab=later": "Nothing is put aside",
    "/inbox?tab=decided": "Nothing was decided yet",
    "/sessions": "Ship the shop",
    "/sessions?q=nothing-has-this-name": "No session matches",
    "/s/deploy": "It cannot be undone",
    "/s/deploy?tab=journal#p=4": "Fork before",
    "/s/deploy?tab=queue": "Nothing waits",
    "/s/parent?tab=tree": "interview",
    "/s/notes?tab=usage": "By model",
    "/s/deploy?tab=policy": "Rules of",
    "/s/summary?tab=raw": "The record that started it",
    "/s/summary": "Sum up these tickets",
    "/s/broken": "is locked",
    "/s/nobody": "Not found",
    "/compare": "Name two sessions",
    "/compare?l=notes&r=notes-fork": "notes-fork",
    "/chat": "What shall we work on?",
    "/chat/notes": "You said",
    "/strategies": "Reasoning",
    "/strategies/cot": "Last runs",
    "/workers": "Processes",
    "/costs": "Most expensive sessions",
    "/settings": "Single-letter keys",
    "/settings?tab=tokens": "New token",
    "/settings?tab=server": "Doctor",
}
"""The pages, and some words that are there once they are drawn."""

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "world.db") as site:
        await fill(site)
        yield site


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_can_be_used_by_everybody(site: Site, tab: OpenTab, theme: str) -> None:
    page = await tab(f"{site.url}/inbox", theme=theme)
    faults: list[str] = []
    for path, words in PAGES.items():
        await page.goto(site.url + path)
        await expect(page.get_by_text(words).first, f"{path} shows '{words}'").to_be_attached()
        await page.evaluate(AXE)  # a script element would be refused by the page's own policy
        found = await page.evaluate("axe.run({resultTypes: ['violations']})")
        for violation in found["violations"]:
            faults += [f"{path}: {violation['id']}: {node['html'][:160]}" for node in violation["nodes"][:3]]
    assert faults == []


async def test_the_sign_in_page_takes_a_token_and_keeps_it_out_of_the_address(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions", signed_in=False)
    await page.get_by_label("Token").fill("hf_wrong_token")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("unknown, was revoked, or has expired")
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    other = await tab(f"{site.url}/inbox#token={TOKEN}", signed_in=False)
    await expect(other.get_by_role("heading", name="Inbox")).to_be_visible()
    assert TOKEN not in other.url


async def test_the_first_page_needs_little_script(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_text("File it with the data team?").first).to_be_visible()
    names = await page.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
    loaded = [each.removeprefix(site.url) for each in names if each.endswith(".js")]
    assert sum(len(zlib.compress(console_files()[each].content, 9)) for each in loaded) <= 120_000


async def test_a_page_that_is_not_there_is_said_to_be_so(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/nobody")
    await expect(page.get_by_text("Not found", exact=True)).to_be_visible()
    await page.get_by_role("link", name="All sessions").click()
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


async def test_filters_and_tabs_are_in_the_address(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions?label=deploy")
    await expect(page.get_by_role("link", name="Ship the shop")).to_be_visible()
    await expect(page.get_by_role("link", name="Release notes")).to_have_count(0)
    await page.get_by_label("Search sessions").fill("nothing")
    await expect(page.get_by_text("No session matches")).to_be_visible()
    assert "q=nothing" in page.url
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(page.get_by_role("link", name="Release notes").first).to_be_visible()
    await page.goto(f"{site.url}/s/notes?tab=usage")
    await expect(page.get_by_role("tab", name="Usage")).to_have_attribute("aria-selected", "true")


async def test_many_sessions_are_cancelled_at_once_and_the_progress_is_shown(site: Site, tab: OpenTab) -> None:
    for number in range(3):
        await site.runtime.mount.holdfast.start(interview, id=f"many-{number}", labels=["many"])
    page = await tab(f"{site.url}/sessions?label=many")
    await expect(page.get_by_role("link", name="many-0")).to_be_visible()
    await page.keyboard.press("x")
    await page.get_by_role("button", name="Select all 3 that match").click()
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel the sessions").click()
    await page.get_by_role("link", name="Progress").click()
    await expect(page.get_by_text("3 of 3", exact=True)).to_be_visible()
    for number in range(3):
        row = await site.runtime.mount.store.session(f"many-{number}")
        assert row.summary.state == "cancelled"


async def test_a_server_that_is_away_is_said_to_be_away_until_it_is_back(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions", fast=True)
    await expect(page.get_by_role("link", name="Ship the shop")).to_be_visible()
    await page.context.set_offline(True)
    await page.get_by_label("Search sessions").fill("ship")
    await expect(page.get_by_text("The server cannot be reached")).to_be_visible()
    await page.context.set_offline(False)  # the page notices by itself
    await expect(page.get_by_role("link", name="Ship the shop")).to_be_visible()
