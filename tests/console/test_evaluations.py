"""The page of evaluations: figures, pairs and a matrix of cases that fills in while it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast import Context, strategy
from holdfast.agent.providers.provider import ModelRequest
from holdfast.alc.cards.tool import own_library
from holdfast.core.queries import Usage
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate
from holdfast.strategies.evaluation.plan import Plan
from holdfast.strategies.evaluation.report.page import report_page
from holdfast.testing.provider import ScriptStep, reply
from tests.console.accessibility import View, faults, faults_of_views
from tests.console.conftest import OpenTab
from tests.console.world import Site, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

VIEWS = [
    View("/evals", "capitals", {"New evaluation": "New evaluation"}),
    View("/evals/e-done", "Paired by case"),
    View("/evals/compare", "Choose two arms"),
    View("/evals/e-done?order=hardest&differing=yes", "Cases by arm"),
    View("/evals/compare?l=e-done:knows&r=e-done:model", "Only the left passes"),
    View("/evals/nobody", "Not found"),
    View("/evals/cards", "capitals-2"),
    View("/evals/cards/nobody", "Not found"),
    View("/evals/cards/capitals-2", "tuned"),
    View("/strategies/cot", "In evaluations"),
]

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
        await evaluate(Plan(strategies=["cot"], data=ROWS), id="e-cot", on=site.runtime)
        await write_cards(site)
        yield site


async def write_cards(site: Site) -> None:
    """Two cards of which one came from the other, and its alias."""
    library = own_library(site.runtime.mount.store)
    stats = {"pass_rate": 0.5, "n": 4}
    await library.create({"pkg": {"name": "capitals"}, "card_id": "capitals-1", "stats": stats}, now=1_750_000_000.0)
    kin = {"prior_card_id": "capitals-1", "prior_relation": "tuned"}
    card = {"pkg": {"name": "capitals"}, "card_id": "capitals-2", "stats": {"pass_rate": 0.75}, "metadata": kin}
    await library.create(card, now=1_750_000_100.0)
    await library.alias_set("best", "capitals-2", now=1_750_000_200.0)


async def test_the_pages_of_evaluations_can_be_used_by_everybody(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/settings")
    await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert await faults_of_views(page, VIEWS) == []


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


async def test_an_evaluation_is_started_topped_up_and_ended_on_its_page(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/evals")
    await expect(page.get_by_role("link", name="e-done")).to_be_visible()
    await page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New evaluation")
    await dialog.get_by_label("Strategies").fill("knows")
    rows = [*ROWS, {"id": "Mars", "input": "Capital of Mars?", "expected": "?"}]
    await dialog.get_by_label("Cases, one JSON object a line").fill("no json")
    await dialog.get_by_role("button", name="Start").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Line 1 is no JSON")
    await dialog.get_by_label("Cases, one JSON object a line").fill("\n".join(json.dumps(row) for row in rows))
    await expect(dialog.get_by_text("5 cases · 5 trials")).to_be_visible()
    await dialog.get_by_role("button", name="Start").click()
    await page.wait_for_url("**/evals/e-k*")
    await expect(page.get_by_text("Done", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Mars, knows: score 1.00")).to_be_visible()
    await page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    assert await faults(page, "the dialog", within="dialog[open]") == []
    await dialog.get_by_label("Reason").fill("enough")
    await dialog.get_by_role("button", name="Cancel the evaluation").click()
    await expect(page.get_by_text("Cancelled", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)


async def test_an_evaluation_that_ran_out_of_budget_is_resumed_with_a_larger_one(site: Site, tab: OpenTab) -> None:
    plan = Plan(strategies=["model"], data=ROWS, budget={"max_llm_calls": 2})
    await evaluate(plan, id="e-short", on=site.runtime, jobs=1)
    page = await tab(f"{site.url}/evals/e-short")
    await expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    await page.get_by_label("New limit", exact=True).fill("1")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("nobody knows what 'the model' costs")).to_be_visible()
    await page.get_by_label("New limit", exact=True).fill("10")
    await page.get_by_label("Unit of the limit").select_option("model calls")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Chile, model: score 0.00")).to_be_visible()
    await expect(page.get_by_text("Done", exact=True)).to_be_visible()


async def test_a_card_shows_its_names_and_the_cards_that_it_came_from(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/evals/cards")
    await page.get_by_role("link", name="capitals-2").click()
    await expect(page.get_by_text("best", exact=True)).to_be_visible()
    await expect(page.get_by_role("region", name="Figures")).to_contain_text("75.0 %")
    lineage = page.get_by_role("region", name="Lineage")
    await expect(lineage.get_by_role("listitem").nth(1)).to_contain_text("capitals-2")
    await lineage.get_by_role("link", name="capitals-1").click()
    await page.wait_for_url("**/evals/cards/capitals-1")
    await expect(page.get_by_role("region", name="Lineage").get_by_role("link", name="capitals-2")).to_be_visible()


async def test_a_strategy_shows_how_much_of_its_last_evaluation_it_passed(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/strategies")
    await expect(page.get_by_role("link", name="cot 50 % pass")).to_be_visible()
    await page.goto(f"{site.url}/strategies/cot")
    await page.get_by_role("region", name="In evaluations").get_by_role("link", name="e-cot").click()
    await page.wait_for_url("**/evals/e-cot")


async def test_trials_are_folded_in_the_list_of_sessions(site: Site, tab: OpenTab) -> None:
    page = await tab(f"{site.url}/sessions")
    await expect(page.get_by_role("link", name="e-done", exact=True)).to_be_visible()
    await expect(page.get_by_role("link", name="e-done.t-")).to_have_count(0)
    await page.goto(f"{site.url}/sessions?id_prefix=e-done.")
    await expect(page.get_by_role("row").filter(has_text="Capital of Kenya?").first).to_be_visible()


async def test_the_page_that_is_written_to_a_file_can_be_used_by_everybody(
    site: Site, tab: OpenTab, tmp_path: Path
) -> None:
    report = await Evaluation("e-done", site.runtime.mount.store).report()
    (tmp_path / "report.html").write_text(report_page([report]))
    page = await tab(f"file://{tmp_path / 'report.html'}", signed_in=False)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.get_by_text("knows").first).to_be_visible()
    assert await faults(page, "the file") == []
