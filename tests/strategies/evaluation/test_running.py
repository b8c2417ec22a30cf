"""Running evaluations: every trial once, resumed, retried, added to, graded again, within a budget."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.core.budget import Budget, Price
from holdfast.core.queries import LlmQuery, Usage
from holdfast.core.state import State
from holdfast.engine.drivers import Reply
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.errors import ComparisonError, DriftError, PlanError
from holdfast.strategies.evaluation.evaluation import cancel_evaluation, evaluate
from holdfast.strategies.evaluation.graders.spec import make_grader
from holdfast.strategies.evaluation.orders import WorkOrder
from holdfast.strategies.evaluation.overview import list_evaluations
from holdfast.strategies.evaluation.plan import Plan
from holdfast.strategies.evaluation.report.comparison import compare_arms
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.testing.patience import soon
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.provider import ScriptedProvider, ScriptStep, fault, reply
from tests.strategies.evaluation.helpers import JUDGE, MODEL, bench, cases, plan, question, right_on_even


@strategy(name="tests.twice")
async def twice(ctx: Context) -> str:
    """Ask twice, and answer with the last word."""
    await ctx.llm(f"Think: {ctx.task}")
    return str(await ctx.llm(ctx.task))


@strategy(name="tests.raises")
async def raises(ctx: Context) -> str:
    await ctx.llm(ctx.task)
    raise ValueError("no idea")


@strategy(name="tests.silent")
async def silent(ctx: Context) -> str:
    return ""


async def test_each_case_is_run_by_each_arm_so_many_times(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(6, strategies=["model", twice], repeat=2))
        report = await ev.report()
        assert here.calls == 6 * 2 + 6 * 2 * 2
        assert [figures.arm for figures in report.arms] == ["model@gpt-4o", "tests.twice@gpt-4o"]
        for figures in report.arms:
            assert figures.score is not None
            assert (figures.score.mean, figures.score.n, figures.trials) == (0.5, 6, 12)
        assert (report.arms[0].calls, report.arms[1].calls) == (12, 24)
        assert report.state == "done"
        listed = await list_evaluations(here.runtime.mount.holdfast.store)
        assert [(each.id, each.state, each.cases) for each in listed] == [("e-1", "done", 6)]


async def test_the_same_evaluation_again_asks_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.evaluate(plan())
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan())
        await here.evaluate(order=WorkOrder(do="run"))
        assert here.calls == 0
        assert (await ev.report()).arms[0].trials == 4


async def test_rows_that_are_lost_are_made_again_from_the_sessions(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        before = (await (await here.evaluate(plan(graders=["contains"]))).report()).to_json()
        store, rows = here.runtime.mount.holdfast.store, TrialRows("e-1")
        for key in await store.list_state(rows.namespace):
            await store.delete_state(rows.namespace, key)
    async with bench(tmp_path) as here:
        ev = await here.evaluate(order=WorkOrder(do="run"))
        assert here.calls == 0
        after = (await ev.report()).to_json()
        assert after["arms"] == before["arms"]


async def test_more_repeats_and_models_run_only_what_is_new(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.evaluate(plan())
        assert here.calls == 4
        await here.evaluate(plan(repeat=5))
        assert here.calls == 20
        ev = await here.evaluate(plan(repeat=5, models=[MODEL, "other:model"]))
        assert here.calls == 40
        assert [figures.trials for figures in (await ev.report()).arms] == [20, 20]


async def test_a_trial_is_a_session_like_any_other(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.evaluate(plan(models=[MODEL, "other:model"]))
        hf = here.runtime.mount.holdfast
        shown = await hf.status("e-1.t-model@gpt-4o-0-0")
        assert shown["outcome"]["result"] == "0"
        comparison = await hf.compare("e-1.t-model@gpt-4o-0-0", "e-1.t-model@model-1-0")
        assert comparison is not None
        assert (await hf.check_replay("e-1.t-model@gpt-4o-0-0")).state == "ok"
        before = here.calls
        fork = await hf.fork("e-1.t-model@gpt-4o-0-0", before="q-0", id="forked")
        assert (fork.result, here.calls) == ("0", before + 1)


async def test_a_changed_dataset_or_option_is_refused_with_both_sides(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.evaluate(plan())
        rows = cases(4)
        rows[2]["expected"] = "two"
        with pytest.raises(DriftError) as refused:
            await here.evaluate(plan(data=rows))
        assert 'case 2.expected.0: "2" then, "two" now' in str(refused.value)
        with pytest.raises(DriftError, match="model_options"):
            await here.evaluate(plan(models=[{"model": MODEL, "options": {"temperature": 1}, "name": "gpt-4o"}]))
        with pytest.raises(DriftError, match="grader exact_match"):
            await here.evaluate(plan(graders=["contains"]))
        assert here.calls == 4
        ev = await here.evaluate(plan(data=rows), accept_drift=True)
        assert any("drift was accepted" in note for note in (await ev.report()).notes)


async def test_a_changed_strategy_file_is_refused_on_resume(tmp_path: Path) -> None:
    file = tmp_path / "echo.py"
    file.write_text("def main(ctx):\n    return llm(ctx['task'])\n")
    async with bench(tmp_path) as here:
        await here.evaluate(plan(strategies=[str(file)]))
        file.write_text("def main(ctx):\n    return llm('Please: ' + ctx['task'])\n")
        with pytest.raises(DriftError, match="line 2") as refused:
            await here.evaluate(None)
        assert "Please" in str(refused.value)


async def test_another_judge_asks_no_model_under_test(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        if request.model == "gpt-5":
            return "Yes"
        return right_on_even(request) if question(request).startswith("Say") else "no"

    async with bench(tmp_path, answer) as here:
        await here.evaluate(plan(graders=["exact_match"]))
        assert here.calls == 4
        spec = make_grader({"grader": "llm_yes_no", "judge": JUDGE})
        ev = await here.evaluate(order=WorkOrder(do="grade", graders=[spec]))
        asked = [request.model for request in here.provider.requests[4:]]
        assert asked == ["gpt-5"] * 4
        first, second = [(await ev.report(number)).arms[0].score for number in (0, 1)]
        assert first is not None
        assert second is not None
        assert (first.mean, second.mean) == (0.5, 1.0)
        again = make_grader({"grader": "llm_yes_no", "judge": "other:model"})
        await here.evaluate(order=WorkOrder(do="grade", graders=[again]))
        assert here.calls == 12
        assert (await ev.report()).gradings == 3


async def test_a_judge_without_a_verdict_leaves_the_trial_ungraded(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        return right_on_even(request) if question(request).startswith("Say") else "I would rather not say"

    async with bench(tmp_path, answer) as here:
        ev = await here.evaluate(plan(graders=[{"grader": "llm_yes_no", "judge": JUDGE}]))
        figures = (await ev.report()).arms[0]
        assert (figures.score, figures.ungraded, figures.errors) == (None, 4, 0)


async def test_pairs_are_judged_in_both_orders(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        text = question(request)
        if not text.startswith("You assess"):
            return "long and good" if "Think" in text or request.model == "gpt-4o" else "bad"
        return "A" if text.index("long and good") < text.index("bad") else "B"

    given = {"grader": "pairwise", "baseline": "model@model", "judge": JUDGE}
    async with bench(tmp_path, answer) as here:
        ev = await here.evaluate(plan(2, models=[MODEL, "other:model"], graders=[given]))
        assert here.calls == 4 + 2 * 2
        means = {figures.arm: figures.score.mean for figures in (await ev.report()).arms if figures.score}
        assert means == {"model@gpt-4o": 1.0, "model@model": 0.5}


async def test_a_service_that_is_down_is_missing_and_what_raises_scores_0(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        number = int(question(request).split()[-1])
        return fault("overloaded") if number == 3 and request.model == "gpt-4o" else str(number)

    async with bench(tmp_path, answer) as here:
        ev = await here.evaluate(plan(10, strategies=["model", raises, silent]))
        report = await ev.report()
        model, failing, empty = report.arms
        assert (model.missing, model.errors, model.trials) == (1, 0, 10)
        assert model.score is not None
        assert (model.score.mean, model.score.n) == (1.0, 9)
        assert not model.is_comparable
        assert any("not comparable" in note for note in report.notes)
        assert "not comparable" in report.comparisons[0].sentence
        assert failing.score is not None
        assert (failing.errors, failing.missing, failing.score.mean) == (9, 1, 0.0)
        assert failing.failures[0].why.startswith("error: ValueError: no idea")
        assert empty.score is not None
        assert (empty.score.mean, empty.errors) == (0.0, 0)


async def test_a_retry_is_another_attempt_at_what_failed(tmp_path: Path) -> None:
    is_up = False

    def answer(request: ModelRequest) -> ScriptStep:
        number = int(question(request).split()[-1])
        return str(number) if is_up or number != 1 else fault("overloaded")

    async with bench(tmp_path, answer) as here:
        await here.evaluate(plan())
        before = here.calls
        await here.evaluate(order=WorkOrder(do="run"))
        assert here.calls == before, "resuming is not retrying"
        is_up = True
        ev = await here.evaluate(order=WorkOrder(do="retry", which="errors"))
        assert here.calls == before + 1
        assert (await ev.report()).arms[0].missing == 0
        store = here.runtime.mount.holdfast.store
        kept = await store.session("e-1.t-model@gpt-4o-1-0")
        assert kept.summary.state is State.FAILED, "the first attempt is kept"
        assert (await store.session("e-1.t-model@gpt-4o-1-0+2")).summary.state is State.COMPLETED


async def test_money_is_reserved_and_never_passed(tmp_path: Path) -> None:
    prices = {MODEL: Price(10.0, 1000.0)}
    in_flight: list[int] = []

    async def answer(request: ModelRequest) -> ScriptStep:
        in_flight.append(1)
        await asyncio.sleep(0.005)
        return reply("1", usage=Usage(prompt_tokens=100, completion_tokens=100))  # 0.101 each

    given = plan(
        60, prices=prices, budget={"max_cost": 3.0}, strategies=[{"strategy": "model", "options": {"max_tokens": 120}}]
    )
    async with bench(tmp_path, answer) as here:
        ev = await here.evaluate(given, jobs=50)
        report = await ev.report()
        figures = report.arms[0]
        assert figures.cost is not None
        assert 2.5 < figures.cost <= 3.0
        assert report.state == "stopped"
        assert figures.not_run == 60 - figures.trials
        assert figures.not_run > 0
        rows = await TrialRows.load(here.runtime.mount.holdfast.store, "e-1")
        assert rows.totals().cost == pytest.approx(0.101 * here.calls), "attempts that were too short count, too"
        ev = await here.evaluate(order=WorkOrder(do="run", budget=Budget(max_cost=100.0)), jobs=50)
        report = await ev.report()
        assert (report.state, report.arms[0].not_run, report.arms[0].trials) == ("done", 0, 60)


async def test_a_limit_of_money_needs_prices(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        with pytest.raises(PlanError, match="max_cost needs prices"):
            await here.evaluate(plan(models=["local:nameless"], budget={"max_cost": 1.0}))
        assert here.calls == 0


async def test_an_unknown_price_is_no_cost_and_not_0(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(models=["local:nameless", MODEL]))
        unknown, known = (await ev.report()).arms
        assert unknown.cost is None
        assert known.cost == pytest.approx(4 * (100 * 2.5 + 10 * 10) / 1e6)


async def test_a_persons_grade_counts_after_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(2, graders=["human"]))
        report = await ev.report()
        assert (report.state, report.arms[0].score) == ("waiting", None)
        store = here.runtime.mount.holdfast.store
        asked = await store.all_sessions(SessionFilter(waiting_for="human"))
        assert len(asked) == 2
    async with bench(tmp_path) as here:
        for row, said in zip(asked, ["no", "yes"], strict=True):
            await here.runtime.mount.holdfast.feed(row.session_id, said)
        ev = await here.evaluate(order=WorkOrder(do="run"))
        report = await ev.report()
        assert report.arms[0].score is not None
        assert (report.state, report.arms[0].score.mean, here.calls) == ("done", 0.5, 0)


async def test_an_agent_gets_the_input_as_its_turn(tmp_path: Path) -> None:
    agent = AgentDefinition(name="helper", description="Helps", instructions="Be brief.")
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(strategies=[agent]))
        report = await ev.report()
        assert report.arms[0].score is not None
        assert (report.arms[0].score.mean, here.calls) == (0.5, 4)
        assert here.provider.requests[0].system.startswith("Be brief.")


async def test_bundled_strategies_and_grids_are_found_by_name(tmp_path: Path) -> None:
    async with bench(tmp_path, lambda request: "The answer is 1") as here:
        grid = {"strategy": "self_consistency", "grid": {"samples": [2, 3]}}
        ev = await here.evaluate(plan(2, strategies=["cot", grid], graders=["contains"]))
        names = ["cot@gpt-4o", "self_consistency.samples=2@gpt-4o", "self_consistency.samples=3@gpt-4o"]
        arms = (await ev.report()).arms
        assert [each.why for arm in arms for each in arm.failures if each.why.startswith("error")] == []
        assert [(figures.arm, figures.trials, figures.errors) for figures in arms] == [(name, 2, 0) for name in names]


async def test_cancelling_ends_the_trials_too(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hang(request: ModelRequest) -> ScriptStep:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with bench(tmp_path, hang) as here:
        running = asyncio.create_task(here.evaluate(plan()))
        await soon(begun.wait())
        hf = here.runtime.mount.holdfast
        _, ended = await soon(cancel_evaluation(hf, "e-1", "enough", None))
        assert ended >= 1
        await soon(running)
        alive = await hf.store.all_sessions(SessionFilter(states=[State.RUNNING, State.PAUSED]))
        assert alive == []


async def test_evaluations_are_compared_on_common_cases(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        first = await (await here.evaluate(plan(6))).report()
        second = await (await here.evaluate(plan(data=cases(10)[2:], models=["other:model"]), id="e-2")).report()
        third = await (await here.evaluate(plan(data=[{"input": "Say 77", "expected": "77"}]), id="e-3")).report()
    found = compare_arms(first, "model@gpt-4o", second, "model@model")
    assert (found.common, found.only_first, found.only_second) == (4, 2, 4)
    assert found.paired.difference.mean == 0.0
    with pytest.raises(ComparisonError, match="no case in common"):
        compare_arms(first, "model@gpt-4o", third, "model@gpt-4o")


async def test_a_plan_that_makes_no_sense_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        for given, why in [
            (plan(strategies=["no_such"]), "no_such"),
            (plan(strategies=[]), "at least one"),
            (plan(graders=["perfect"]), "there is none of that name"),
            (plan(repeat=0), "repeat"),
            (plan(models=[MODEL, MODEL]), "the same as"),
        ]:
            with pytest.raises((PlanError, Exception), match=why):
                await here.evaluate(given)
        assert await list_evaluations(here.runtime.mount.holdfast.store) == []


async def test_options_of_a_model_reach_the_service(tmp_path: Path) -> None:
    models = [{"model": MODEL, "options": {"temperature": 0.5}}, MODEL]
    async with bench(tmp_path) as here:
        await here.evaluate(plan(1, models=models))
        assert sorted(request.params.get("temperature") or 0 for request in here.provider.requests) == [0, 0.5]


async def test_a_service_is_asked_no_more_than_so_much_at_once(tmp_path: Path) -> None:
    open_calls = most = 0

    async def answer(request: ModelRequest) -> ScriptStep:
        nonlocal open_calls, most
        open_calls += 1
        most = max(most, open_calls)
        await asyncio.sleep(0.005)
        open_calls -= 1
        return "1"

    async with bench(tmp_path, answer) as here:
        await here.evaluate(plan(12), jobs=Jobs(8, {MODEL: 2}))
        assert most == 2


async def test_an_engine_with_a_driver_of_its_own_will_do(tmp_path: Path) -> None:
    def answer(query: LlmQuery) -> Reply:
        return Reply(query.prompt.split()[-1], Usage(prompt_tokens=5, completion_tokens=1, cost=0.25))

    async with open_holdfast(f"sqlite:///{tmp_path / 'own.db'}") as hf:
        hf.drive("llm", answer)
        ev = await evaluate(plan(3, models=[], strategies=["model", twice]), id="e-1", on=hf)
        report = await ev.report()
        assert [(figures.score and figures.score.mean, figures.cost) for figures in report.arms] == [
            (1.0, 0.75),
            (1.0, 1.5),
        ]
        with pytest.raises(PlanError, match="leave out models"):
            await evaluate(plan(3), id="e-2", on=hf)


async def test_strategies_in_lua_are_evaluated_and_strategies_grade(tmp_path: Path) -> None:
    (tmp_path / "ask.lua").write_text('return alc.llm("Please: " .. ctx.task)')
    (tmp_path / "longer.py").write_text("len(ctx['answer']) > 0 and ctx['answer'] in ctx['case']['expected']\n")
    async with bench(tmp_path) as here:
        graders = [f"strategy:{tmp_path / 'longer.py'}"]
        ev = await here.evaluate(plan(4, strategies=[str(tmp_path / "ask.lua")], graders=graders))
        figures = (await ev.report()).arms[0]
        assert figures.score is not None
        assert (figures.arm, figures.score.mean, figures.errors) == ("ask@gpt-4o", 0.5, 0)


async def test_evaluations_run_on_postgresql(server: str) -> None:
    provider = ScriptedProvider([right_on_even], loop=True)
    async with Runtime(fresh_database(server)) as runtime:
        runtime.add_model(MODEL, provider, "gpt-4o")
        ev = await evaluate(plan(6, repeat=2), id="e-1", on=runtime, jobs=4)
        await evaluate(plan(6, repeat=3), id="e-1", on=runtime, jobs=4)
        figures = (await ev.report()).arms[0]
        assert figures.score is not None
        assert (figures.score.mean, figures.trials, len(provider.requests)) == (0.5, 18, 18)


async def test_workers_of_a_service_take_the_trials(tmp_path: Path) -> None:
    elsewhere = ScriptedProvider([right_on_even], loop=True)
    async with (
        bench(tmp_path, service="default") as here,
        Runtime(f"sqlite:///{tmp_path / 'eval.db'}", service="fleet") as worker,
    ):
        worker.add_model(MODEL, elsewhere, "gpt-4o")
        ev = await soon(here.evaluate(plan(8, service="fleet")))
        figures = (await ev.report()).arms[0]
        assert figures.score is not None
        assert (figures.score.mean, figures.trials) == (0.5, 8)
        assert figures.cost == pytest.approx(8 * (100 * 2.5 + 10 * 10) / 1e6)
        assert (here.calls, len(elsewhere.requests)) == (0, 8)


def test_the_plan_of_a_file_is_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"input": "Say 1", "expected": 1}\n')
    (tmp_path / "plan.toml").write_text(
        'strategies = ["cot"]\nmodels = ["openai:gpt-4o"]\ndata = "q.jsonl"\nrepeat = 2\n'
    )
    frozen, rows = Plan.load(tmp_path / "plan.toml").freeze()
    assert (frozen.repeat, [case.expected for case in rows], frozen.arms[0].name) == (2, [["1"]], "cot@gpt-4o")
    (tmp_path / "plan.toml").write_text('strategies = ["cot"]\ndata = "q.jsonl"\nrepeats = 2\n')
    with pytest.raises(PlanError, match="unknown key 'repeats'"):
        Plan.load(tmp_path / "plan.toml")
