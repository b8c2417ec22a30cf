"""A conversation that is followed live is the transcript, wherever its stream is cut."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from holdfast.testing.patience import until
from tests.console.conftest import OpenTab
from tests.console.world import TALK, Site, begin_chat, served

pytestmark = pytest.mark.asyncio(loop_scope="session")


class CutStreams:
    """Ends the event stream of a session after each event that can be resumed from."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.cuts = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if "/sessions/" not in scope["path"] or not scope["path"].endswith("/events"):
            await self._app(scope, receive, send)
            return
        is_over = False

        async def cut(message: Any) -> None:
            nonlocal is_over
            if is_over:
                raise ConnectionError("the stream was cut")
            if b"\nevent: " in message.get("body", b""):
                is_over, self.cuts = True, self.cuts + 1
                await send({**message, "more_body": False})
            else:
                await send(message)

        with contextlib.suppress(ConnectionError):
            await self._app(scope, receive, cut)


async def drawn(page: Page) -> list[tuple[str, str]]:
    """The messages of a page: their ids, and their words."""
    found: list[list[str]] = await page.evaluate(
        "[...document.querySelectorAll('[data-message]')].map(each => "
        "[each.dataset.message, (each.querySelector('.blocks > .plain, .blocks > .markdown') ?? each).textContent])"
    )
    return [(name, " ".join(text.split())) for name, text in found]


async def transcript(site: Site, session_id: str) -> list[tuple[str, str]]:
    """The same of the journal."""
    session = await site.runtime.session(session_id).open()
    view = await session.read_view()
    return [(each.id, " ".join(each.text.split())) for each in view.messages if each.role != "tool"]


async def test_a_conversation_is_the_transcript_though_its_stream_is_cut_at_every_event(
    tmp_path: Path, tab: OpenTab
) -> None:
    cutter: list[CutStreams] = []

    def cut(app: Any) -> CutStreams:
        cutter.append(CutStreams(app))
        return cutter[0]

    async with served(tmp_path / "cut.db", cut) as site:
        await begin_chat(site, "chat", "hello")
        page = await tab(f"{site.url}/s/chat", fast=True)
        await expect(page.get_by_text("You said: hello")).to_be_visible()
        await page.get_by_label("Message").fill("talk to me")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_text("".join(TALK).strip())).to_be_visible()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()  # the turn is over
        await page.get_by_label("Message").fill("Ship it")
        await page.keyboard.press("Control+Enter")
        await page.get_by_role("button", name="Approve", exact=False).first.click()
        await expect(page.get_by_text("It runs.")).to_be_visible()
        await until(lambda: _same(page, site))
        assert cutter[0].cuts >= 15


async def _same(page: Page, site: Site) -> bool:
    texts = await transcript(site, "chat")
    shown = await drawn(page)
    is_same = [name for name, _ in shown] == [name for name, _ in texts]
    plain = [(one, two) for (_, one), (_, two) in zip(shown, texts, strict=False) if "|" not in two]
    return is_same and all(one == two for one, two in plain)


async def test_a_reply_is_drawn_while_it_is_said_and_a_turn_can_be_stopped(tmp_path: Path, tab: OpenTab) -> None:
    async with served(tmp_path / "live.db") as site:
        await begin_chat(site, "chat", "hello")
        page = await tab(f"{site.url}/chat/chat")
        await expect(page.get_by_text("You said: hello")).to_be_visible()
        await page.get_by_label("Message").fill("talk for ever")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_label("Reply being written")).to_contain_text("word3 word4")
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_role("button", name="Stop the turn").click()
        await expect(page.get_by_text("The turn was stopped: cancelled")).to_be_visible()
        await expect(page.get_by_label("Reply being written")).to_be_hidden()
        assert await _names(page) == [name for name, _ in await transcript(site, "chat")]


async def _names(page: Page) -> list[str]:
    return [name for name, _ in await drawn(page)]
