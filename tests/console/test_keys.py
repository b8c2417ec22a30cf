"""Keys: each does on its page what the page of keys says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from holdfast.testing.patience import until
from tests.console.conftest import OpenTab
from tests.console.key_table import TESTED, keys_with_tests, listed_keys
from tests.console.world import Site, begin_chat, fill, served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "keys.db") as site:
        await fill(site)
        yield site


async def chord(page: Page, first: str, second: str) -> None:
    """Press two keys in quick succession, however busy the machine is: the second is sent without an answer to the
    first."""
    await asyncio.gather(page.keyboard.press(first), page.keyboard.press(second))


async def close(page: Page, dialog: str) -> None:
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name=dialog)).to_be_hidden()


async def test_every_key_of_the_console_has_a_test() -> None:
    assert keys_with_tests() == listed_keys(), "key_table.py names the test of each key"
    sources = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    missing = [name for tests in TESTED.values() for name in tests if f"async def {name}(" not in sources]
    assert missing == []


async def test_two_letters_go_to_each_page_and_are_not_read_while_somebody_types(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    places = {
        "s": "Sessions",
        "c": "Chat",
        "t": "Strategies",
        "e": "Evaluations",
        "w": "Workers",
        "o": "Costs",
        ",": "Settings",
        "i": "Inbox",
    }
    await expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()
    for letter, name in places.items():
        await chord(page, "g", letter)
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await chord(page, "g", "s")
    await expect(page.get_by_label("Search sessions")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search sessions")).to_be_focused()
    await page.keyboard.type("gi?")
    await expect(page.get_by_label("Search sessions")).to_have_value("gi?")
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()


async def test_the_page_of_keys_is_shown_and_gives_the_focus_back(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("button", name="File it with the data team?")).to_be_visible()
    await page.get_by_role("button", name="Keys").focus()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_contain_text("Approve with edits")
    await page.keyboard.press("j")  # keys of the page below are not read
    await close(page, "Keys")
    await expect(page.get_by_role("button", name="Keys")).to_be_focused()


async def test_a_session_is_found_from_anywhere(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/costs")
    await expect(page.get_by_role("heading", name="Costs")).to_be_visible()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Find a page or a session")).to_be_focused()
    await page.keyboard.type("Ship the")
    found = page.get_by_role("listbox", name="Found").get_by_role("option")
    await expect(found.first).to_contain_text("Ship the shop")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Ship the shop", level=1)).to_be_visible()


async def test_questions_are_walked_and_opened(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    rows = page.locator(".rows .item")
    await expect(rows).to_have_count(5)
    for key, index in (("j", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("k", 0), ("j", 1)):
        await page.keyboard.press(key)
        await expect(rows.nth(index)).to_have_attribute("aria-current", "true")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab", name="Journal")).to_be_visible()


async def test_the_list_of_sessions_is_walked_selected_and_opened(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions?program=agent")
    rows = page.get_by_role("grid", name="Sessions")
    await expect(page.get_by_role("link", name="Release notes").first).to_be_visible()
    count = await page.locator(".row-line .title").count()
    await page.keyboard.press("j")
    await expect(rows).to_have_attribute("aria-activedescendant", "session-1")
    await page.keyboard.press("k")
    await expect(rows).to_have_attribute("aria-activedescendant", "session-0")
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.keyboard.press("Control+a")
    await expect(page.get_by_text(f"{count} selected")).to_be_visible()
    await page.keyboard.press("c")
    await expect(page.get_by_role("dialog", name=f"Cancel these {count}?")).to_be_visible()
    await close(page, f"Cancel these {count}?")
    await page.keyboard.press("Escape")
    await expect(page.get_by_text(f"{count} selected")).to_be_hidden()
    await page.keyboard.press("f")
    await expect(page.get_by_role("dialog", name="Filter")).to_be_visible()
    await close(page, "Filter")
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


async def test_a_row_of_the_journal_is_found_linked_and_forked_before(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/notes?tab=journal")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await expect(page.get_by_role("row").first).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept("5"))
    await page.keyboard.press(":")
    await expect(page.get_by_role("region", name="Details of record")).to_be_visible()
    assert page.url.endswith("#p=5")
    await page.keyboard.press("k")
    await expect(page.get_by_role("region", name="Details of record 2")).to_be_visible()
    await page.keyboard.press("y")
    await expect(page.get_by_text("Copied a link to the row")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == f"{site.url}/s/notes?tab=journal#p=2"
    page.once("dialog", lambda dialog: dialog.accept("6"))
    await page.keyboard.press(":")
    await expect(page.get_by_role("region", name="Details of record 6")).to_be_visible()
    await page.keyboard.press("Shift+F")
    await expect(page.get_by_text("Forked.")).to_be_visible()
    await expect(page.get_by_role("link", name="notes", exact=True)).to_be_visible()  # what it was forked from


async def test_the_composer_is_reached_a_turn_stopped_and_the_last_input_taken_back(site: Site, tab: OpenTab) -> None:
    await begin_chat(site, "stopped", "hello")
    page = await tab(f"{site.url}/s/stopped")
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await page.keyboard.press("c")
    await expect(page.get_by_label("Message")).to_be_focused()
    await page.keyboard.type("talk for ever")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_label("Reply being written")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Stop the turn").click()
    await expect(page.get_by_text("The turn was stopped: cancelled")).to_be_visible()
    await page.get_by_label("Message").focus()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_text("Forked.")).to_be_visible()
    await expect(page.get_by_label("Message")).to_have_value("talk for ever")
    assert not page.url.endswith("/s/stopped")


async def test_an_item_is_queued_by_key(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/notes?tab=queue")
    await expect(page.get_by_text("Nothing waits")).to_be_visible()
    await page.keyboard.press("n")
    await page.get_by_label("Input").fill("And then?")
    await page.get_by_role("button", name="Queue it").click()
    await expect(page.get_by_role("cell", name="And then?")).to_be_visible()
    await page.get_by_role("button", name="Withdraw").click()
    await expect(page.get_by_text("Nothing waits")).to_be_visible()


async def test_a_tree_is_folded_and_walked(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/parent?tab=tree")
    rows = page.get_by_role("table", name="Tree of sessions").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await page.keyboard.press("ArrowLeft")
    await expect(rows).to_have_count(1)
    await page.keyboard.press("ArrowRight")
    await expect(rows).to_have_count(2)
    for key in ("j", "k", "j"):
        await page.keyboard.press(key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="parent", exact=True)).to_be_visible()  # whose child it is


async def test_what_differs_between_two_sessions_is_walked(site: Site, tab: OpenTab) -> None:
    await begin_chat(site, "other", "Write something else")
    page = await tab(f"{site.url}/compare?l=notes&r=other")
    await expect(page.get_by_role("button", name="Next")).to_be_enabled()
    await page.keyboard.press("n")
    await expect(page.locator(".pair:focus")).to_have_count(1)
    await page.keyboard.press("p")
    await expect(page.locator(".pair:focus")).to_have_count(1)
    await page.keyboard.press("s")
    await expect(page.get_by_role("button", name="Side by side")).to_be_visible()


async def test_a_new_chat_is_one_key_away(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/chat/notes")
    await expect(page.get_by_text("You said")).to_be_visible()
    await page.keyboard.press("n")
    await expect(page.get_by_role("heading", name="What shall we work on?")).to_be_visible()


async def test_a_strategy_is_found_and_run_by_keys(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/strategies")
    await expect(page.get_by_role("link", name="cot").first).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Find a strategy")).to_be_focused()
    await page.keyboard.type("step by step")
    await page.get_by_role("link", name="cot").first.click()
    await page.get_by_label("task").fill("Why is the sky blue?")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("tab", name="Journal")).to_be_visible()
    rows = (await site.runtime.mount.store.sessions(limit=1)).rows
    assert [row.summary.program for row in rows] == ["cot"]
    await until(lambda: _is_at(page, rows[0].session_id))


async def _is_at(page: Page, session_id: str) -> bool:
    return page.url.endswith(f"/s/{session_id}")


async def test_letters_can_be_switched_off(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/settings")
    await page.get_by_role("checkbox", name="on").uncheck()
    await chord(page, "g", "s")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog", name="Find")).to_be_visible()
    await expect(page.get_by_role("heading", name="Settings", include_hidden=True)).to_be_attached()
