"""What keeps people from using a page: what axe finds in either theme, and pages that are too wide for a telephone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from playwright.async_api import Page, TimeoutError, ViewportSize, expect

KEEP_COLOURS = """
const Color = axe.commons.color.Color, parse = Color.prototype.parseString, known = new Map();
Color.prototype.parseString = function (text) {
  if (known.has(text)) ({r: this.r, g: this.g, b: this.b, alpha: this.alpha} = known.get(text));
  else known.set(text, new Color(parse.call(this, text)));
  return this;
};
axe.configure({noHtml: true});
"""
"""axe reads the few colours of a page anew for each element and each of its ancestors, which takes half of its time."""

AXE = (files("axe_playwright_python") / "axe.min.js").read_text() + f"(() => {{{KEEP_COLOURS}}})();"

COLOUR_RULES = ["color-contrast", "link-in-text-block"]
"""The rules of axe that look at colours. Themes differ in nothing else, which `test_built_files` checks."""

DESK: ViewportSize = {"width": 1440, "height": 900}
TELEPHONE: ViewportSize = {"width": 390, "height": 800}

GO = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"

FITS = f"""
Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth) <= {TELEPHONE["width"]}
"""


@dataclass(frozen=True)
class View:
    """A page as it is checked: its path, words that are there once it is drawn, and the dialogs that it opens."""

    path: str
    words: str
    dialogs: Mapping[str, str] = field(default_factory=dict)
    """The title of each dialog, and the name of its button."""


async def faults(page: Page, name: str, within: str = "html") -> list[str]:
    """What keeps somebody from using a page as it is now, or a part of it, in the light and in the dark theme."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)  # a script element would be refused by the page's own policy
    found = await _violations(page, f"{name}, light", within, {})
    await page.emulate_media(color_scheme="dark")
    found += await _violations(page, f"{name}, dark", within, {"runOnly": COLOUR_RULES})
    await page.emulate_media(color_scheme="light")
    return found


async def _violations(page: Page, name: str, within: str, options: dict[str, list[str]]) -> list[str]:
    run = (
        "([within, options]) => axe.run(within, {resultTypes: ['violations'], ...options}).then(all => all.violations)"
    )
    return [
        f"{name}: {violation['id']}: {' '.join(map(str, node['target']))}"
        for violation in await page.evaluate(run, [within, options])
        for node in violation["nodes"][:3]
    ]


async def faults_of_views(page: Page, views: list[View]) -> list[str]:
    """The faults of pages and of their dialogs, and which of the pages are wider than a telephone.

    The pages are gone to without loading the document again, as links do.
    """
    found: list[str] = []
    for view in views:
        found += await faults_of_view(page, view)
    return found


async def faults_of_view(page: Page, view: View) -> list[str]:
    words = page.get_by_text(view.words).or_(page.get_by_label(view.words)).first
    await expect(
        words, f"another page has '{view.words}' too: whether this one is drawn would not be known"
    ).to_have_count(0)
    await page.evaluate(GO, view.path)
    await expect(words, f"{view.path} shows '{view.words}'").to_be_attached()
    found = await faults(page, view.path)
    for title, button in view.dialogs.items():
        await page.get_by_role("button", name=button).first.click()
        found += await faults_of_dialog(page, title)
    await page.set_viewport_size(TELEPHONE)
    try:
        await page.wait_for_function(FITS)
    except TimeoutError:
        found.append(f"{view.path} is wider than a telephone")
    await page.set_viewport_size(DESK)
    return found


async def faults_of_dialog(page: Page, title: str) -> list[str]:
    """The faults of a dialog that is opened, which is closed afterwards."""
    dialog = page.get_by_role("dialog", name=title)
    await expect(dialog).to_be_visible()
    found = await faults(page, title, within="dialog[open]")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    return found
