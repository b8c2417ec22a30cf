"""Settings: tokens and webhooks are made, shown once, used and taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenTab
from tests.console.world import Site, served
from tests.serve.http.receiver import Receiver, listening

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("console")) / "settings.db", allows_private_webhooks=True) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with listening() as found:
        yield found


async def test_a_token_is_made_shown_once_and_revoked(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/settings?tab=tokens")
    await expect(page.get_by_text("No tokens yet")).to_be_visible()
    await page.get_by_role("button", name="New token…").click()
    await expect(page.get_by_role("button", name="Make it")).to_be_disabled()
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("answers:write").check()
    await page.get_by_label("Only sessions whose ids begin with").fill("shop-")
    await page.get_by_role("button", name="Make it").click()
    made = page.get_by_role("status").filter(has_text="It is shown this once")
    token = (await made.locator("code").inner_text()).strip()
    async with httpx2.AsyncClient(base_url=site.url, headers={"authorization": f"Bearer {token}"}) as client:
        me = (await client.get("/api/v1/me")).json()
        assert (me["name"], me["id_prefix"], "answers:write" in me["scopes"]) == ("ann", "shop-", True)
        await page.reload()
        await expect(page.get_by_role("row").filter(has_text="ann")).to_contain_text("shop-…")
        await expect(page.get_by_text(token)).to_have_count(0)
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_text("The token of ann is revoked.")).to_be_visible()
        assert (await client.get("/api/v1/me")).status_code == 401


async def test_a_token_with_a_name_that_cannot_be_is_refused_in_words(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/settings?tab=tokens")
    await page.get_by_role("button", name="New token…").click()
    await page.get_by_label("Name").fill("ann and bob")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_text("token name").first).to_be_visible()


async def test_a_webhook_is_made_tried_switched_off_and_removed(site: Site, tab: OpenTab, receiver: Receiver) -> None:
    page = await tab(f"{site.url}/settings?tab=webhooks")
    await expect(page.get_by_text("No webhooks yet")).to_be_visible()
    await page.get_by_role("button", name="New webhook…").click()
    await page.get_by_label("Address").fill(receiver.url)
    for kind in ("session.ended", "turn.ended", "item.settled", "worker.lost"):
        await page.get_by_label(kind).check()
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("status").filter(has_text="It is shown this once")).to_contain_text("whsec_")
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.get_by_text("It answered 200.")).to_be_visible()
    assert receiver.types() == ["ping"]
    await page.get_by_role("button", name="Deliveries").click()
    await expect(page.get_by_role("cell", name="taken (200)")).to_be_visible()
    receiver.status = 500
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_role("cell", name="it answered 500")).to_be_visible()
    await page.get_by_role("button", name="Switch off").click()
    await expect(page.get_by_text("off: it was switched off")).to_be_visible()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No webhooks yet")).to_be_visible()


async def test_somebody_who_is_no_administrator_is_told_so(site: Site, tab: OpenTab) -> None:
    token, _ = await site.app.api.door.tokens.create("bob", ["sessions:read"])
    page = await tab(f"{site.url}/settings?tab=tokens#token={token}", signed_in=False)
    await expect(page.get_by_text("Not allowed")).to_be_visible()
    await expect(page.get_by_role("tab", name="Tokens")).to_have_count(0)
