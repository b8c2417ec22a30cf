"""Keys: each does on its page what the page of keys says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import Site, begin_chat, fill, served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "keys.db") as site:
        await fill(site)
        yield site


async def test_two_letters_go_to_each_page_and_are_not_read_while_somebody_types(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    places = {
        "s": "Sessions",
        "c": "Chat",
        "t": "Strategies",
        "w": "Workers",
        "o": "Costs",
        ",": "Settings",
        "i": "Inbox",
    }
    await expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()
    for letter, name in places.items():
        await page.keyboard.press("g")
        await page.keyboard.press(letter)
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page.get_by_label("Search sessions")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("gi?")
    await expect(page.get_by_label("Search sessions")).to_have_value("gi?")
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()


async def test_the_page_of_keys_is_shown_and_gives_the_focus_back(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    await page.get_by_role("button", name="Keys").focus()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_contain_text("Approve with edits")
    await page.keyboard.press("j")  # keys of the page below are not read
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("button", name="Keys")).to_be_focused()


async def test_a_session_is_found_from_anywhere(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/costs")
    await expect(page.get_by_role("heading", name="Costs")).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Ship the")
    await expect(page.get_by_role("option", name="Ship the shop")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Ship the shop", level=1)).to_be_visible()


async def test_the_list_of_sessions_is_walked_selected_and_opened(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions?program=agent")
    rows = page.get_by_role("grid", name="Sessions")
    await expect(page.get_by_role("link", name="Release notes").first).to_be_visible()
    await page.keyboard.press("j")
    await expect(rows).to_have_attribute("aria-activedescendant", "session-1")
    await page.keyboard.press("k")
    await expect(rows).to_have_attribute("aria-activedescendant", "session-0")
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.keyboard.press("Control+a")
    await expect(page.get_by_text("3 selected")).to_be_visible()
    await page.keyboard.press("c")
    await expect(page.get_by_role("dialog", name="Cancel these 3?")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("3 selected")).to_be_hidden()
    await page.keyboard.press("f")
    await expect(page.get_by_role("dialog", name="Filter")).to_be_visible()
    await page.keyboard.press("Escape")
    async with page.context.expect_page() as opened:
        await page.keyboard.press("o")
    await (await opened.value).close()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab", name="Conversation")).to_be_visible()


async def test_the_parts_of_a_session_have_numbers_and_the_journal_is_walked(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/deploy")
    await expect(page.get_by_role("tab", name="Journal")).to_be_visible()
    for number, name in enumerate(["Conversation", "Journal", "Queue", "Tree", "Usage", "Policy", "Raw"], 1):
        await page.keyboard.press(str(number))
        await expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("2")
    await expect(page.get_by_role("row").first).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.get_by_role("region", name="Details of record 1")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.get_by_role("region", name="Details of record 2")).to_be_visible()
    assert page.url.endswith("#p=2")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#record-detail")).to_be_focused()
    grouped = await page.get_by_role("row").count()
    await page.keyboard.press("r")
    await expect(page.get_by_label("Every record")).to_be_checked()
    await expect(page.get_by_role("row").nth(grouped)).to_be_visible()
    await page.keyboard.press("u")
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()


async def test_what_differs_between_two_sessions_is_walked(site: Site, tab: OpenTab) -> None:
    await begin_chat(site, "other", "Write something else")
    page = await tab(f"{site.url}/compare?l=notes&r=other")
    await expect(page.get_by_role("button", name="Next")).to_be_enabled()
    await page.keyboard.press("n")
    await expect(page.locator(".pair:focus")).to_have_count(1)
    await page.keyboard.press("s")
    await expect(page.get_by_role("button", name="Side by side")).to_be_visible()


async def test_letters_can_be_switched_off(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/settings")
    await page.get_by_role("checkbox", name="on").uncheck()
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog", name="Find")).to_be_visible()
