"""Pictures of the console, from `holdfast serve --demo`:

python -m tests.console.screenshots            # the two of the README, into docs/images
python -m tests.console.screenshots --all DIR  # every page, in both themes
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from tests.console.conftest import CHROMIUM, FLAGS

IMAGES = Path(__file__).parents[2] / "docs" / "images"

SIZE: ViewportSize = {"width": 1280, "height": 800}

PAGES = {
    "inbox": "/inbox",
    "decided": "/inbox?tab=decided",
    "sessions": "/sessions",
    "chat": "/chat",
    "evaluations": "/evals",
    "evaluation": "/evals/e-sorting",
    "compared": "/evals/compare?l=e-sorting:model&r=e-sorting:sort_twice",
    "cards": "/evals/cards",
    "strategies": "/strategies",
    "strategy": "/strategies/panel",
    "workers": "/workers",
    "costs": "/costs",
    "settings": "/settings",
    "tokens": "/settings?tab=tokens",
    "webhooks": "/settings?tab=webhooks",
    "server": "/settings?tab=server",
}
TABS = ("conversation", "journal", "queue", "tree", "usage", "policy", "raw")


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[str]:
    """A server of the demo, and the address that signs a browser in."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "holdfast.cli",
            "serve",
            "--demo",
            "--port",
            "0",
            "--store",
            f"sqlite:///{folder}/demo.db",
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            async with asyncio.timeout(60):
                while True:
                    line = (await process.stdout.readline()).decode()
                    said.append(line)
                    if found := re.search(r"http://\S+#code=\S+", line):
                        break
                    if not line:
                        sys.exit("the demo did not start:\n" + "".join(said))
            yield found.group()
        finally:
            process.terminate()
            await process.wait()


async def signed_in(browser: Browser, address: str, theme: str, token: str | None) -> Page:
    """A tab of the console in a theme."""
    context = await browser.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
        viewport=SIZE,
        device_scale_factor=1.5,
    )
    page = await context.new_page()
    if token is not None:
        await page.add_init_script(f"sessionStorage.setItem('holdfast.token', '{token}')")
    await page.goto(address if token is None else address.partition("#")[0])
    return page


async def main(folder: Path, everything: bool) -> None:
    if CHROMIUM is None:
        sys.exit("there is no chromium: `apt-get install chromium-headless-shell`, or name one in HOLDFAST_CHROMIUM")
    folder.mkdir(parents=True, exist_ok=True)
    async with demo() as address, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await signed_in(browser, address, "light", None)
        origin = address.partition("#")[0].rstrip("/")
        await page.get_by_role("heading", name="Inbox").wait_for(timeout=60_000)
        await filled(page)
        await page.get_by_role("button", name=re.compile("Refund|refund")).first.click()
        await page.get_by_role("button", name=re.compile("Approve")).first.wait_for(timeout=60_000)
        await page.locator(".gone").first.wait_for(state="detached")
        await page.screenshot(path=folder / "console-inbox.png")
        waiting = await page.evaluate("document.querySelector('.detail .session')?.pathname ?? ''")
        token = await page.evaluate("sessionStorage.getItem('holdfast.token')")
        dark = await signed_in(browser, address, "dark", token)
        await shot(dark, origin + waiting, folder / "console-session.png")
        if everything:
            paths = {**PAGES, **{f"session-{tab}": f"{waiting}?tab={tab}" for tab in TABS}}
            for theme, tab in (("light", page), ("dark", dark)):
                for name, path in paths.items():
                    await shot(tab, origin + path, folder / f"{name}-{theme}.png")
        await browser.close()


FILLED = ("newsletter-november", "chat-refund", "chat-export-other", "e-sorting")
"""Sessions that the demo begins last."""


async def filled(page: Page) -> None:
    """Wait until the demo has made all that a newcomer should see, and the page shows it."""
    token = await page.evaluate("sessionStorage.getItem('holdfast.token')")
    headers = {"authorization": f"Bearer {token}"}
    api = page.url.split("/", 3)[:3]
    async with asyncio.timeout(180):
        while True:
            found = await page.request.get(f"{'/'.join(api)}/api/v1/sessions?limit=200", headers=headers)
            rows = {row["session_id"]: row["summary"] for row in (await found.json())["data"]}
            asks = [id for id, summary in rows.items() if summary["asks"] and id in FILLED]
            if set(FILLED) <= set(rows) and {"newsletter-november", "chat-refund"} <= set(asks):
                return
            await asyncio.sleep(0.5)


async def shot(page: Page, address: str, file: Path) -> None:
    await page.goto(address)
    await page.wait_for_timeout(1_200)
    await page.screenshot(path=file)


if __name__ == "__main__":
    everything = sys.argv[1:2] == ["--all"]
    asyncio.run(main(Path(sys.argv[2]) if everything else IMAGES, everything))
