"""One browser for all tests, and tabs that fail their test if anything goes wrong in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, async_playwright, expect

from holdfast.testing.patience import HANG_S
from tests.console.accessibility import DESK
from tests.console.world import TOKEN

CHROMIUM = os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

STEP_MS = min(HANG_S, 20.0) * 1000
"""Milliseconds that a step in a tab may take."""

expect.set_options(timeout=STEP_MS)

OpenTab: TypeAlias = Callable[..., Awaitable[Page]]
"""Opens an address in a tab of its own: `await tab(url)`."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("HOLDFAST_BROWSER"):
            pytest.fail("HOLDFAST_BROWSER is set, and there is no chromium")
        pytest.skip("there is no chromium: `apt-get install chromium`, or name one in HOLDFAST_CHROMIUM")
    async with async_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[OpenTab]:
    """Tabs of one person, who is signed in. An error in a tab, and a request to another host, fail the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    async def opened(url: str, *, signed_in: bool = True, fast: bool = False) -> Page:
        if not contexts or fast:
            contexts.append(await browser.new_context(color_scheme="light", reduced_motion="reduce", viewport=DESK))
        context = contexts[-1]
        page: Page = await context.new_page()
        page.set_default_timeout(STEP_MS)
        origin = "/".join(url.split("/")[:3])

        def watch(request: Request) -> None:
            if not request.url.startswith((origin, "data:", "blob:")):
                wrong.append(f"asked {request.url}")

        page.on("request", watch)
        page.on("pageerror", lambda error: wrong.append(f"raised {error}"))
        page.on("console", lambda said: wrong.append(f"said {said.text}") if is_wrong(said.type, said.text) else None)
        if signed_in:
            await page.add_init_script(f"sessionStorage.setItem('holdfast.token', '{TOKEN}')")
        if fast:
            await page.add_init_script(FAST_WAITS)
        await page.goto(url)
        return page

    yield opened
    for context in contexts:
        await context.close()
    assert wrong == []


FAST_WAITS = """
const wait = window.setTimeout;
window.setTimeout = (run, ms, ...rest) => wait(run, ms >= 400 ? ms / 40 : ms, ...rest);
"""
"""Waits of a page are forty times shorter: a stream that is cut is opened again at once."""


def is_wrong(kind: str, text: str) -> bool:
    """Whether a line of the browser's console is about a fault. A refused request is part of some tests."""
    return kind == "error" and "Failed to load resource" not in text
