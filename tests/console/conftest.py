"""One browser for all tests, and tabs that fail their test if anything goes wrong in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright, expect

from holdfast.testing.patience import HANG_S
from tests.console.accessibility import DESK
from tests.console.world import TOKEN

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""In the order in which they are tried: the first has no windows to draw, and takes half of the time of the others."""

CHROMIUM = os.environ.get("HOLDFAST_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
ONE_PROCESS_FOR_PAGES = ["--renderer-process-limit=1", "--disable-site-isolation-trials"]
"""Whoever opens a page after another finds it warm: its script has been compiled, its styles and fonts read."""

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
        pytest.skip("there is no chromium: `apt-get install chromium-headless-shell`, or name one in HOLDFAST_CHROMIUM")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *ONE_PROCESS_FOR_PAGES])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def context(browser: Browser) -> BrowserContext:
    """What all tabs share. It stays: a process for the pages of each test would have to be started and warm up."""
    context = await browser.new_context(color_scheme="light", reduced_motion="reduce", viewport=DESK)
    await context.new_page()  # while it is open, the process of the pages lives
    return context


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext) -> AsyncIterator[OpenTab]:
    """Tabs of one person, who is signed in. An error in a tab, and a request to another host, fail the test."""
    first = len(context.pages)
    origins: set[str] = set()
    wrong: list[str] = []

    async def opened(url: str, *, signed_in: bool = True, fast: bool = False) -> Page:
        page: Page = await context.new_page()
        page.set_default_timeout(STEP_MS)
        origin = "/".join(url.split("/")[:3])
        origins.add(origin)

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
    await forget(context, first, origins)
    assert wrong == []


async def forget(context: BrowserContext, first: int, origins: set[str]) -> None:
    """Close all tabs but the first ones, and forget what they kept and were allowed: the next test finds nothing."""
    for page in context.pages[first:]:
        await page.close()
    await context.set_offline(False)
    await context.clear_permissions()
    devtools = await context.new_cdp_session(context.pages[0])
    for origin in origins:
        await devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    await devtools.detach()


FAST_WAITS = """
const wait = window.setTimeout;
window.setTimeout = (run, ms, ...rest) => wait(run, ms >= 400 ? ms / 40 : ms, ...rest);
"""
"""Waits of a page are forty times shorter: a stream that is cut is opened again at once."""


def is_wrong(kind: str, text: str) -> bool:
    """Whether a line of the browser's console is about a fault. A refused request is part of some tests."""
    return kind == "error" and "Failed to load resource" not in text
