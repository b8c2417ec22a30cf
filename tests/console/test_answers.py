"""Answers: each way to give one, and what a tab shows of those that others give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast.serve.http.links import QuestionLink
from holdfast.testing.patience import until
from tests.console.accessibility import faults
from tests.console.conftest import OpenTab
from tests.console.world import Site, begin_chat, interview, served, triage

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "answers.db") as site:
        yield site


async def a_deploy(site: Site, session_id: str) -> str:
    """A session that waits for somebody to approve a call, and the query."""
    await begin_chat(site, session_id, "Ship the shop", title=f"Ship {session_id}", over=False)
    return str(await until(lambda: _asked(site, session_id)))


async def _asked(site: Site, session_id: str) -> str | None:
    status = await site.runtime.mount.holdfast.status(session_id, pending="full")
    return next((each["query_id"] for each in status.get("pending", [])), None) if _asks(status) else None


def _asks(status: dict[str, Any]) -> bool:
    return any("deploy" in str(each) for each in status.get("pending", []))


async def _messages(site: Site, session_id: str) -> list[str]:
    session = await site.runtime.session(session_id).open()
    return [each.text for each in (await session.read_view()).messages if each.role == "assistant"]


async def _over(site: Site, session_id: str) -> bool:
    session = await site.runtime.session(session_id).open()
    return (await session.read_view()).running is None


async def test_a_call_is_approved_with_one_key_in_the_inbox(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "one-key")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await expect(page.get_by_role("table", name="Arguments")).to_contain_text("2.14.0")
    await expect(page.get_by_text("it cannot be undone")).to_be_visible()
    await page.keyboard.press("a")
    await expect(page.get_by_text("Nobody waits for you")).to_be_visible()
    await until(lambda: _over(site, "one-key"))
    assert (await _messages(site, "one-key"))[-1] == "It runs."


async def test_a_call_is_approved_with_other_arguments(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "edits")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await page.keyboard.press("e")
    await page.get_by_label("Arguments to run it with").fill('{"service": "shop", "version": "2.14.1"}')
    await page.get_by_role("button", name="Approve with these").click()
    await until(lambda: _over(site, "edits"))
    await page.goto(f"{site.url}/s/edits")
    await expect(page.get_by_text("It runs.")).to_be_visible()
    await page.get_by_text("deploy", exact=True).first.click()
    await expect(page.get_by_text("shop 2.14.1 runs")).to_be_attached()


async def test_a_call_is_denied_with_a_reason(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "denied")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await page.keyboard.press("d")
    await expect(page.get_by_label("Reason")).to_be_focused()
    await page.keyboard.type("not on a Friday")
    await page.keyboard.press("Enter")
    await until(lambda: _over(site, "denied"))
    await page.goto(f"{site.url}/inbox?tab=decided")
    await expect(page.get_by_text("deny: not on a Friday")).to_be_visible()


async def test_what_is_always_allowed_is_shown_before_it_is(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "always")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await page.keyboard.press("y")
    await expect(page.get_by_label("Pattern for version")).to_have_value("2.14.0")
    await page.get_by_label("Pattern for version").fill("2.*")
    await page.get_by_role("button", name="Allow this from now on").click()
    await until(lambda: _over(site, "always"))


async def test_a_question_is_put_aside_without_an_answer(site: Site, tab: OpenTab) -> None:
    query = await a_deploy(site, "later")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await page.keyboard.press("l")
    await expect(page.get_by_text("Nobody waits for you")).to_be_visible()
    await page.get_by_role("tab", name="Later").click()
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    assert await _asked(site, "later") == query
    await site.answer_elsewhere("later", query, "deny")


async def test_an_answer_of_one_tab_takes_the_question_out_of_the_other(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "tabs")
    one, two = await tab(f"{site.url}/inbox"), await tab(f"{site.url}/inbox")
    for page in (one, two):
        await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await asyncio.gather(  # it is said for a moment, then the question leaves
        expect(two.get_by_text("Answered by local: approve")).to_be_visible(),
        one.get_by_role("button", name="Approve", exact=False).first.click(),
    )
    await expect(two.get_by_text("Nobody waits for you")).to_be_visible()


async def test_two_different_answers_are_both_shown_and_the_first_counts(site: Site, tab: OpenTab) -> None:
    query = await a_deploy(site, "conflict")
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await page.route("**/api/v1/events*", lambda route: route.abort())  # this tab learns of nothing
    await page.route("**/api/v1/queries*", lambda route: route.abort())
    await site.answer_elsewhere("conflict", query, "deny")
    await page.get_by_role("button", name="Approve", exact=False).first.click()
    alert = page.get_by_role("alert").filter(has_text="already answered")
    await expect(alert).to_contain_text("deny")
    await expect(alert).to_contain_text("approve")


async def test_choices_and_free_answers_are_given_and_several_calls_approved_at_once(site: Site, tab: OpenTab) -> None:
    holdfast = site.runtime.mount.holdfast
    await holdfast.start(triage, id="choices")
    await holdfast.start(interview, id="free")
    page = await tab(f"{site.url}/inbox")
    await page.get_by_role("button", name="File it with the data team?").click()
    await page.get_by_role("button", name="yes", exact=True).click()
    await page.get_by_role("button", name="What was the hardest part?").click()
    await expect(page.get_by_role("heading", name="What was the hardest part?")).to_be_visible()
    await page.keyboard.press("i")
    await expect(page.get_by_label("Answer")).to_be_focused()
    await page.keyboard.type("The acronyms.")
    await page.keyboard.press("Control+Enter")
    assert await holdfast.result("choices", timeout=30) == "yes"
    assert await holdfast.result("free", timeout=30) == "The acronyms."
    for name in ("bulk-1", "bulk-2"):
        await a_deploy(site, name)
    await expect(page.get_by_role("button", name="Run deploy?")).to_have_count(2)
    await page.get_by_role("button", name="Run deploy?").first.click()
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 question selected")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.get_by_text("2 questions selected")).to_be_visible()
    await page.keyboard.press("Shift+A")
    for name in ("bulk-1", "bulk-2"):
        await until(lambda name=name: _over(site, name))  # type: ignore[misc]


async def test_a_link_shows_one_question_to_somebody_without_a_token(site: Site, tab: OpenTab) -> None:
    await a_deploy(site, "linked")
    page = await tab(f"{site.url}/inbox")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Link for somebody else").click()
    await expect(page.get_by_text("Copied a link")).to_be_visible()
    link = await page.evaluate("navigator.clipboard.readText()")
    other = await tab(link, signed_in=False)
    await expect(other.get_by_role("heading", name="Run deploy?")).to_be_visible()
    await expect(other.get_by_role("navigation")).to_have_count(0)
    assert await _asked(site, "linked") is not None  # looking is no answer
    await other.get_by_label("Your name").fill("carol")
    await other.get_by_role("button", name="Approve", exact=True).click()
    await expect(other.get_by_text("Answered by")).to_contain_text("carol")
    await until(lambda: _over(site, "linked"))


async def test_a_link_shows_at_once_what_somebody_else_answered_and_asks_for_nothing_meanwhile(
    site: Site, tab: OpenTab
) -> None:
    await site.runtime.mount.holdfast.start(triage, id="linked-live")
    expires_at = site.runtime.mount.holdfast.now() + 600_000
    signed = await site.app.api.door.links.sign(QuestionLink("linked-live", "q-0", expires_at))
    page = await tab(f"{site.url}/a/{signed}", signed_in=False, fast=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await expect(page.get_by_role("button", name="yes")).to_be_visible()
    await until(lambda: site.app.api.door.metrics.streams > 0)
    asked.clear()
    await site.answer_elsewhere("linked-live", "q-0", "no")
    await expect(page.get_by_text("Answered by bob")).to_be_visible()
    assert asked == []


async def test_the_inbox_and_the_sessions_show_only_ones_own_if_that_is_wanted(site: Site, tab: OpenTab) -> None:
    await site.runtime.mount.holdfast.start(interview, id="not-mine", title="Of somebody else")
    await site.runtime.mount.holdfast.start(interview, id="mine", title="Of my own", labels=["local"])
    page = await tab(f"{site.url}/inbox")
    await expect(page.get_by_role("button", name="Of somebody else")).to_be_visible()
    await page.get_by_role("button", name="Mine").click()
    await expect(page.get_by_role("button", name="Of my own")).to_be_visible()
    await expect(page.get_by_role("button", name="Of somebody else")).to_have_count(0)
    assert "mine=yes" in page.url
    assert await faults(page, "mine") == []
    await page.goto(f"{site.url}/sessions")
    await expect(page.get_by_role("link", name="Of somebody else")).to_be_visible()
    await page.get_by_role("link", name="Mine", exact=True).click()
    await expect(page.get_by_role("link", name="Of my own")).to_be_visible()
    await expect(page.get_by_role("link", name="Of somebody else")).to_have_count(0)
    await page.goto(f"{site.url}/chat")
    await page.get_by_label("First message").fill("Hello")
    await page.get_by_role("button", name="Begin").click()
    await page.wait_for_url("**/chat/s-*")
    row = await site.runtime.mount.store.session(page.url.rpartition("/")[2])
    assert row.summary.labels == ("local",)
    for session_id in ("mine", "not-mine"):
        await site.runtime.mount.holdfast.cancel(session_id)


async def test_the_queue_shows_what_became_of_items(site: Site, tab: OpenTab) -> None:
    session = await site.runtime.session("queued").open()
    await session.enqueue("Tidy up").id("i-1")
    await session.enqueue("Water the plants").id("i-2")
    page = await tab(f"{site.url}/s/queued?tab=queue")
    await expect(page.get_by_role("row").filter(has_text="Water the plants")).to_be_visible()
    await page.get_by_role("row").filter(has_text="Water the plants").get_by_role("button", name="Withdraw").click()
    past = page.get_by_role("region", name="Past items")
    await expect(past.get_by_role("row").filter(has_text="Water the plants")).to_contain_text("Withdrawn by local")
    await page.get_by_role("button", name="Run the next here").click()
    await expect(past.get_by_role("row").filter(has_text="Tidy up")).to_contain_text("Done")
    await expect(page.get_by_text("Nothing waits")).to_be_visible()
    assert await faults(page, "queue") == []
