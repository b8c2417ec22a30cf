"""Every page in both themes: it can be used by everybody, runs without faults, and asks no other host."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast.serve.console.files import console_files
from holdfast.serve.http.links import QuestionLink
from tests.console.accessibility import View, faults, faults_of_dialog, faults_of_views
from tests.console.conftest import OpenTab
from tests.console.world import TOKEN, Site, fill, interview, served, triage

pytestmark = pytest.mark.asyncio(loop_scope="session")

VIEWS = {
    "lists": [
        View("/inbox?tab=later", "Nothing is put aside"),
        View("/inbox?tab=decided", "Nothing was decided yet"),
        View("/inbox", "File it with the data team?", {"Keys": "Keys"}),
        View("/sessions?q=nothing-has-this-name", "No session matches"),
        View("/sessions", "Ship the shop", {"Filter": "Filter", "Find": "Find"}),
        View("/compare", "Name two sessions"),
        View("/compare?l=notes&r=notes-fork", "notes-fork"),
    ],
    "session that waits": [
        View(
            "/s/deploy",
            "It cannot be undone",
            {"Cancel this session?": "Cancel…", "Fork": "Fork…", "Compare with…": "Compare…"},
        ),
        View("/s/deploy?tab=journal#p=4", "Fork before"),
        View("/s/deploy?tab=queue", "Nothing waits", {"New item": "New item"}),
        View("/s/deploy?tab=policy", "Rules of"),
    ],
    "other sessions": [
        View("/s/parent?tab=tree", "interview"),
        View("/s/notes?tab=usage", "By turn"),
        View("/s/cells?tab=cells", "Cell 1"),
        View("/s/summary", "Sum up these tickets"),
        View("/s/summary?tab=raw", "The record that started it"),
        View("/s/broken", "is locked"),
        View("/s/nobody", "Not found"),
    ],
    "work": [
        View("/chat", "What shall we work on?"),
        View("/chat/notes", "You said"),
        View("/strategies", "Reasoning"),
        View("/strategies/cot", "Last runs"),
        View("/workers", "Processes"),
        View("/costs", "Most expensive sessions"),
        View("/costs?by=model", "m-1"),
    ],
    "settings": [
        View("/settings", "Single-letter keys"),
        View("/settings?tab=tokens", "New token", {"New token": "New token…"}),
        View("/settings?tab=webhooks", "New webhook", {"New webhook": "New webhook…"}),
        View("/settings?tab=server", "Doctor"),
    ],
}
"""The pages, in groups that are checked side by side."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "world.db") as site:
        await fill(site)
        yield site


async def test_a_fault_is_found_in_the_theme_that_has_it(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/workers")
    await expect(page.get_by_text("Processes").first).to_be_attached()
    await page.evaluate("document.querySelector('h1').style.color = 'light-dark(#000, #444)'")
    assert [each.partition(": h1")[0] for each in await faults(page, "workers", within="#main")] == [
        "workers, dark: color-contrast"
    ]
    await page.evaluate("document.querySelector('h1').style.color = 'light-dark(#bbb, #fff)'")
    assert [each.partition(": h1")[0] for each in await faults(page, "workers", within="#main")] == [
        "workers, light: color-contrast"
    ]
    await page.evaluate("document.querySelector('h1').style.color = ''")
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [each.partition(": #main")[0] for each in await faults(page, "workers", within="#main")] == [
        "workers, light: button-name"
    ]


@pytest.mark.parametrize("group", VIEWS)
async def test_every_page_and_dialog_can_be_used_by_everybody(site: Site, tab: OpenTab, group: str) -> None:
    page = await tab(f"{site.url}/settings?tab=none")
    await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert await faults_of_views(page, VIEWS[group]) == []


async def test_dialogs_and_panels_of_a_session_can_be_used_by_everybody(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/s/deploy")
    found: list[str] = []
    for title, item in {"Title and labels": "Title and labels…", "Delete this session?": "Delete…"}.items():
        await page.get_by_label("More actions").click()
        await page.get_by_role("button", name=item).click()
        found += await faults_of_dialog(page, title)
        await page.get_by_label("More actions").click()
    for panel in ("Deny…", "Approve with edits…", "Always…"):
        await page.get_by_role("button", name=panel).click()
        found += await faults(page, panel, within=".answer")
    assert found == []


async def test_pages_for_people_without_a_token_can_be_used_by_everybody(site: Site, tab: OpenTab) -> None:
    links = site.app.api.door.links
    expires_at = site.runtime.mount.holdfast.now() + 60_000
    signed = await links.sign(QuestionLink("triage", "q-0", expires_at))
    page = await tab(f"{site.url}/a/{signed}", signed_in=False)
    await expect(page.get_by_role("heading", name="File it with the data team?")).to_be_visible()
    found = await faults(page, "approval link")
    await page.goto(f"{site.url}/a/nonsense")
    await expect(page.get_by_text("This link is not valid")).to_be_visible()
    found += await faults(page, "invalid link")
    await page.goto(f"{site.url}/inbox")
    await expect(page.get_by_label("Token")).to_be_visible()
    found += await faults(page, "sign-in")
    assert found == []


async def test_the_theme_is_that_of_the_system_until_somebody_chooses_one(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
    await page.emulate_media(color_scheme="dark")
    await page.get_by_role("button", name="Use the light theme").click()
    await expect(page.locator("html")).to_have_css("color-scheme", "light")
    await page.reload()
    await expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
    await expect(page.locator("html")).to_have_css("color-scheme", "light")


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


async def test_a_session_whose_code_has_changed_is_shown_with_both_sides(
    site: Site, tab: OpenTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await tab(f"{site.url}/s/interview")
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Check the replay").click()
    await expect(page.get_by_text("It replays as recorded")).to_be_visible()
    monkeypatch.setattr(interview, "function", triage.function)
    await page.get_by_role("button", name="Check the replay").click()
    dialog = page.get_by_role("dialog", name="The replay differs")
    await expect(dialog.get_by_role("region", name="Recorded")).to_contain_text("What was the hardest part?")
    await expect(dialog.get_by_role("region", name="Now")).to_contain_text("File it with the data team?")
    assert await faults(page, "divergence") == []
    await dialog.get_by_role("link", name="record 2").click()
    await expect(page.get_by_role("region", name="Details of record 2")).to_be_visible()
    await expect(dialog).to_be_hidden()


async def test_a_session_that_cannot_be_read_is_repaired_from_the_list(site: Site, tab: OpenTab) -> None:
    await site.runtime.mount.holdfast.start(interview, id="hurt")
    path = site.runtime.mount.store.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE sessions SET state = 'nonsense' WHERE id = 'hurt'")
    page = await tab(f"{site.url}/sessions?q=hurt")
    await expect(page.get_by_role("alert")).to_contain_text("1 session cannot be read")
    await page.get_by_role("button", name="Repair").click()
    await expect(page.get_by_text("Repaired 1 session.")).to_be_visible()
    await expect(page.get_by_role("link", name="hurt")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
