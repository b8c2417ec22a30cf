"""What keeps people from using a page, as axe finds it."""

from __future__ import annotations

from importlib.resources import files

from playwright.async_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


async def faults(page: Page, name: str) -> list[str]:
    """What keeps somebody from using a page as it is now."""
    await page.evaluate(AXE)  # a script element would be refused by the page's own policy
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{name}: {violation['id']}: {node['html'][:160]}"
        for violation in found["violations"]
        for node in violation["nodes"][:3]
    ]
