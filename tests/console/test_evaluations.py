"""The page of evaluations: figures, pairs and a matrix of cases that fills in while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast import Context, strategy
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.queries import Usage
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate
from holdfast.strategies.evaluation.plan import Plan
from holdfast.strategies.evaluation.report.page import report_page
from holdfast.testing.provider import ScriptStep, reply
from tests.console.conftest import OpenTab
from tests.console.world import Site, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = {
    "/evals": "capitals",
    "/evals/e-done": "Paired by case",
    "/evals/e-done?order=hardest&differing=yes": "Cases by arm",
    "/evals/compare": "Choose two arms",
    "/evals/compare?l=e-done:knows&r=e-done:model": "Only the left passes",
    "/evals/nobody": "Not found",
}
"""Addresses, and some words that are there once the page is drawn."""

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()

CAPITALS = {"Peru": "Lima", "Japan": "Tokyo", "Kenya": "Nairobi", "Chile": "Santiago"}
ROWS = [{"id": land, "input": f"Capital of {land}?", "expected": city} for land, city in CAPITALS.items()]

gate = asyncio.Event()
"""Opens for the questions of the evaluation that is watched."""


async def answer(request: ModelRequest) -> ScriptStep:
    """The model knows half of the capitals, and waits for the gate where it is asked to."""
    asked = request.messages[-1].text
    if "slowly" in asked:
        await gate.wait()
    known = next((city for land, city in CAPITALS.items() if land in asked and land in ("Peru", "Japan")), "?")
    return reply(known, usage=Usage(prompt_tokens=100, completion_tokens=10, cost=0.0002))


@strategy(name="knows")
async def knows(ctx: Context) -> str:
    """Knows all capitals but one."""
    return next((city for land, city in CAPITALS.items() if land in ctx.task and land != "Chile"), "?")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(Path(tmp_path_factory.mktemp("evaluations")) / "world.db", answer=answer) as site:
        plan = Plan(strategies=["model", knows], data=Dataset(ROWS, name="capitals"))
        await evaluate(plan, id="e-done", on=site.runtime)
        yield site


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_pages_of_evaluations_can_be_used_by_everybody(site: Site, tab: OpenTab, theme: str) -> None:
    page = await tab(f"{site.url}/inbox", theme=theme)
    faults: list[str] = []
    for path, words in PAGES.items():
        await page.goto(site.url + path)
        await expect(page.get_by_text(words).or_(page.get_by_label(words)).first, path).to_be_attached()
        await page.evaluate(AXE)
        found = await page.evaluate("axe.run({resultTypes: ['violations']})")
        for violation in found["violations"]:
            faults += [f"{path}: {violation['id']}: {node['html'][:160]}" for node in violation["nodes"][:3]]
    assert faults == []


async def test_an_evaluation_shows_scores_with_intervals_costs_and_pairs(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/evals")
    await page.get_by_role("link", name="e-done").click()
    arms = page.get_by_role("region", name="Arms", exact=True)
    await expect(arms.locator("tbody tr").nth(0)).to_contain_text("0.500")
    await expect(arms.locator("tbody tr").nth(0)).to_contain_text("0.150 … 0.850")
    await expect(arms.locator("tbody tr").nth(0)).to_contain_text("$0.0008")
    await expect(arms.locator("tbody tr").nth(1)).to_contain_text("0.750")
    await expect(page.get_by_role("region", name="Pairs of arms")).to_contain_text("−0.250")
    await page.get_by_role("link", name="Cases of model and knows").click()
    await expect(page.get_by_role("region", name="Only the right passes")).to_contain_text("Kenya")
    await expect(page.get_by_role("region", name="Both pass")).to_contain_text("Peru")
    await expect(page.get_by_role("region", name="Neither passes")).to_contain_text("Chile")


async def test_arrows_go_through_the_matrix_and_enter_opens_the_session(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/evals/e-done")
    await page.get_by_role("button", name="Peru, model: score 1.00").focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("button", name="Kenya, model: score 0.00")).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("button", name="Kenya, knows: score 1.00")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/s/e-done.t-knows-2-0")
    await expect(page.get_by_text("Nairobi").first).to_be_visible()


async def test_only_the_cases_on_which_arms_differ_are_shown_if_that_is_wanted(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/evals/e-done")
    await expect(page.get_by_role("button", name="Chile, knows")).to_be_visible()
    await page.get_by_label("Only where arms differ").check()
    await expect(page.get_by_role("button", name="Chile, knows")).to_have_count(0)
    await expect(page.get_by_role("button", name="Kenya, knows")).to_be_visible()
    assert "differing=yes" in page.url


async def test_cells_fill_in_while_an_evaluation_runs(site: Site, tab: OpenTab) -> None:
    rows = [{**row, "input": f"{row['input']} Say it slowly." if row["id"] != "Peru" else row["input"]} for row in ROWS]
    plan = Plan(strategies=["model"], data=rows)
    running = asyncio.create_task(evaluate(plan, id="e-live", on=site.runtime, jobs=4))
    try:
        page = await tab(f"{site.url}/evals/e-live")
        await expect(page.get_by_role("button", name="Peru, model: score 1.00")).to_be_visible()
        await expect(page.get_by_role("button", name="Kenya, model: running")).to_be_visible()
        await expect(page.get_by_text("1 of 4 trials · 3 running")).to_be_visible()
        gate.set()
        await expect(page.get_by_role("button", name="Kenya, model: score 0.00")).to_be_visible()
        await expect(page.get_by_text("Done", exact=True)).to_be_visible()
    finally:
        gate.set()
        await running


async def test_trials_are_folded_in_the_list_of_sessions(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions")
    await expect(page.get_by_role("link", name="e-done", exact=True)).to_be_visible()
    await expect(page.get_by_role("link", name="e-done.t-")).to_have_count(0)
    await page.goto(f"{site.url}/sessions?id_prefix=e-done.")
    await expect(page.get_by_role("row").filter(has_text="Capital of Kenya?").first).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_page_that_is_written_to_a_file_can_be_used_by_everybody(
    site: Site, tab: OpenTab, tmp_path: Path, theme: str
) -> None:
    report = await Evaluation("e-done", site.runtime.mount.store).report()
    (tmp_path / "report.html").write_text(report_page([report]))
    page = await tab(f"file://{tmp_path / 'report.html'}", theme=theme, signed_in=False)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.get_by_text("knows").first).to_be_visible()
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found["violations"]] == []
