"""Text of sessions is data: what an attacker makes a model, a tool or a question say runs and loads nothing."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import ATTACKS, begin_chat, hostile, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACTIVE = (
    "script:not([src]), img:not([src^='data:']), iframe, object, embed, form[action], main style, main link, math, "
    "[onerror], [onload]"
)
"""What must not be in a page because of what a session says."""


async def test_ten_attacks_make_no_request_and_run_nothing(tmp_path: Path, tab: OpenTab) -> None:
    async with served(tmp_path / "attacks.db") as site:
        await begin_chat(site, "attacked", "attack me", title=ATTACKS[0], labels=["<b>bold</b>"])
        await site.runtime.mount.holdfast.start(hostile, id="hostile", title=ATTACKS[5])
        page = await tab(f"{site.url}/inbox")
        await page.add_init_script("window.alert = () => { throw new Error('something ran') }")
        places = {
            "/inbox": "evil.test/1",
            "/sessions": "onerror",
            "/s/attacked": "evil.test/2",
            "/s/attacked?tab=journal#p=5": "evil.test",
            "/s/attacked?tab=raw": "attacked",
            "/s/hostile": "evil.test/1",
            "/chat/attacked": "evil.test/2",
            "/compare?l=attacked&r=hostile": "evil.test",
        }
        for path, words in places.items():
            await page.goto(site.url + path)
            await expect(page.get_by_text(words).first).to_be_attached()
            assert await page.locator(ACTIVE).count() == 0, path
            targets = await page.evaluate("[...document.querySelectorAll('main a')].map(each => each.href)")
            assert [each for each in targets if not each.startswith((site.url, "https://", "http://", "mailto:"))] == []
        await page.goto(f"{site.url}/s/attacked")
        for words in ("⟨202E⟩", "pixel"):
            await expect(page.get_by_text(words).first).to_be_attached()
    # The fixture of the tab fails the test if any other host was asked, or anything was raised.


async def test_pages_are_sent_with_a_strict_policy_and_paths_are_only_looked_up(tmp_path: Path) -> None:
    async with served(tmp_path / "policy.db") as site, httpx2.AsyncClient(base_url=site.url) as client:
        page = await client.get("/s/anything")
        policy = page.headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for"):
            assert part in policy
        assert "unsafe" not in policy
        assert page.headers["referrer-policy"] == "no-referrer"
        for path in ("/assets/../../files.py", "/assets/%2e%2e/index.html", "/..%2f..%2fetc/passwd", "/assets/"):
            assert (await client.get(path)).status_code in (400, 404)
