"""Evaluations by algocline's tools: durable sessions, found and compared with those of plans."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.evaluations.comparison import welch_test
from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate
from holdfast.strategies.evaluation.overview import list_evaluations
from holdfast.strategies.evaluation.plan import Plan
from tests.serve.calls import ERAS, Host, host_of
from tests.serve.mcp_hosts import install

SUMS = """return { cases = {
  { input = "2", expected = "2", name = "two", tags = { "even" } },
  { input = "3", expected = "4", name = "three" },
} }"""
ECHO = "return { run = function(ctx) return ctx.prefix and ctx.prefix .. ctx.task or ctx.task end }"
ASKS = "return { run = function(ctx) return alc.llm(ctx.task) end }"
NEVER = "return { run = function(ctx) return 'never' end }"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "algocline"))
    install(tmp_path / "home" / "packages", {"echo": ECHO, "asks": ASKS, "never": NEVER})
    return tmp_path / "home"


@pytest.fixture
async def holdfast(home: Path, tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast, tmp_path: Path) -> AsyncIterator[Host]:
    (tmp_path / "work").mkdir()
    async with host_of(holdfast, EXTENSION.tools, ERAS[-1], [tmp_path / "work"]) as opened:
        yield opened


async def evaluated(host: Host, strategy: str, **arguments: Any) -> Any:
    return await host.call("alc_eval", strategy=strategy, **{"scenario": SUMS, **arguments})


@pytest.mark.parametrize("era", ERAS)
async def test_an_evaluation_asks_each_case_and_ends_with_a_report(holdfast: Holdfast, era: str) -> None:
    async with host_of(holdfast, EXTENSION.tools, era) as host:
        asked = await evaluated(host, "asks")
        assert (asked["status"], asked["query_id"], asked["prompt"]) == ("needs_response", "q-0", "2")
        assert asked["eval_id"] == asked["session_id"]
        asked = await host.call("alc_continue", session_id=asked["session_id"], response="2")
        done = await host.call("alc_continue", session_id=asked["session_id"], response="3")
    report = done["result"]
    assert done["status"] == "completed"
    assert report["name"] == "asks:inline"
    assert (report["aggregated"]["total"], report["aggregated"]["passed"]) == (2, 1)
    assert [each["case"]["name"] for each in report["failures"]] == ["three"]


async def test_options_are_data_and_never_code(host: Host) -> None:
    hostile = {"prefix": "'); os.exit() --\\ \"]]"}
    done = await evaluated(host, "echo", strategy_opts=hostile)
    assert done["result"]["results"][0]["response"]["text"] == hostile["prefix"] + "2"
    assert "is not a name" in await host.refusal("alc_eval", strategy='x"); os.exit() --', scenario=SUMS)


async def test_a_bundled_strategy_is_evaluated_as_a_child_session(host: Host, holdfast: Holdfast) -> None:
    asked = await evaluated(host, "cot")
    assert asked["status"] == "needs_response"
    while asked["status"] == "needs_response":
        queries = asked.get("queries") or [{"id": asked["query_id"]}]
        responses = [{"query_id": each["id"], "response": "Answer: 2"} for each in queries]
        asked = await host.call("alc_continue", session_id=asked["session_id"], responses=responses)
    assert asked["status"] == "completed", asked
    assert asked["result"]["aggregated"]["total"] == 2
    rows = (await holdfast.sessions()).rows
    assert sum(row.summary.parent == asked["session_id"] for row in rows) == 2


async def test_alc_eval_within_a_program_finds_bundled_strategies_and_says_which_are_not_there(host: Host) -> None:
    scenario = '{ cases = { { input = "2", expected = "2" } } }'
    asked = await host.call("alc_run", code=f'return alc.eval({scenario}, "cot")')
    assert asked["status"] == "needs_response"
    ended = await host.call("alc_run", code=f'return alc.eval({scenario}, "no_such_thing")')
    assert ended["status"] == "error"
    assert "strategy 'no_such_thing' could not be loaded" in ended["error"]


async def test_a_strategy_that_is_not_there_is_told_before_anything_begins(host: Host, holdfast: Holdfast) -> None:
    assert "no_such_thing" in await host.refusal("alc_eval", strategy="no_such_thing", scenario=SUMS)
    assert (await holdfast.sessions()).rows == []


async def test_a_scenario_comes_by_text_by_file_or_by_name_and_only_by_one(
    host: Host, home: Path, tmp_path: Path
) -> None:
    (home / "scenarios").mkdir(parents=True)
    (home / "scenarios" / "stored.lua").write_text(SUMS)
    (tmp_path / "work" / "filed.lua").write_text(SUMS)
    (tmp_path / "secret.lua").write_text(SUMS)
    names = [
        (await host.call("alc_eval", strategy="echo", **given))["result"]["name"]
        for given in ({"scenario_name": "stored"}, {"scenario_file": str(tmp_path / "work" / "filed.lua")})
    ]
    assert names == ["echo:stored", "echo:filed"]
    for wrong in ({}, {"scenario": SUMS, "scenario_name": "stored"}):
        assert "exactly one of" in await host.refusal("alc_eval", strategy="echo", **wrong)
    outside = await host.refusal("alc_eval", strategy="echo", scenario_file=str(tmp_path / "secret.lua"))
    assert "no directory that files may be read from" in outside
    assert "not found" in await host.refusal("alc_eval", strategy="echo", scenario_name="nowhere")


async def test_a_stored_scenario_that_changes_does_not_change_what_has_begun(host: Host, home: Path) -> None:
    (home / "scenarios").mkdir(parents=True)
    (home / "scenarios" / "stored.lua").write_text(SUMS)
    asked = await host.call("alc_eval", strategy="asks", scenario_name="stored")
    (home / "scenarios" / "stored.lua").write_text("return 5")
    await host.call("alc_continue", session_id=asked["session_id"], response="2")
    done = await host.call("alc_continue", session_id=asked["session_id"], response="3")
    assert done["result"]["aggregated"]["total"] == 2


async def test_a_card_is_kept_if_it_is_wanted(host: Host) -> None:
    done = await evaluated(host, "echo", auto_card=True)
    assert done["result"]["card_id"].startswith("echo_")


async def test_the_history_is_newest_first_and_marks_what_has_no_result(host: Host) -> None:
    first = await evaluated(host, "echo")
    second = await evaluated(host, "never")
    waiting = await evaluated(host, "asks")
    failed = await evaluated(host, "echo", scenario="return { cases = 5 }")
    assert failed["status"] == "error"
    told = await host.call("alc_eval_history")
    assert [each["eval_id"] for each in told["evals"]] == [
        each["session_id"] for each in (failed, waiting, second, first)
    ]
    assert [each["status"] for each in told["evals"]] == ["failed", "paused", "completed", "completed"]
    newest = told["evals"][2]
    assert (newest["strategy"], newest["pass_rate"], newest["total_cases"], newest["passed"]) == ("never", 0, 2, 0)
    assert set(newest) >= {"timestamp", "mean_score", "llm_calls", "elapsed_ms", "summary"}
    only = await host.call("alc_eval_history", strategy="echo", limit=1)
    assert [each["eval_id"] for each in only["evals"]] == [failed["session_id"]]


async def test_the_detail_is_the_completed_event(host: Host) -> None:
    done = await evaluated(host, "echo")
    told = await host.call("alc_eval_detail", eval_id=done["eval_id"])
    assert (told["status"], told["result"], told["eval_id"]) == ("completed", done["result"], done["session_id"])
    assert told["stats"]["auto"]["llm_calls"] == 0
    assert "Eval result not found" in await host.refusal("alc_eval_detail", eval_id="nobody_1700000000")
    asked = await evaluated(host, "asks")
    assert "paused" in await host.refusal("alc_eval_detail", eval_id=asked["eval_id"])
    assert "Eval result not found" in await host.refusal("alc_eval_detail", eval_id="../../etc/passwd")


async def test_two_evaluations_are_compared_unpaired_and_paired(host: Host) -> None:
    good, bad = await evaluated(host, "echo"), await evaluated(host, "never")
    told = await host.call("alc_eval_compare", eval_id_a=good["eval_id"], eval_id_b=bad["eval_id"])
    assert told["status"] == "completed"
    sides, found = told["result"], told["result"]["comparison"]
    assert (sides["a"]["strategy"], sides["b"]["pass_rate"]) == ("echo:inline", 0)
    assert set(sides["a"]) == {"eval_id", "strategy", "scores", "pass_rate", "pass_at_1", "ci_95"}
    assert (found["delta_mean"], found["winner"]) == (0.5, "none")
    assert set(found["welch_t"]) == {"t_stat", "df", "significant", "direction"}
    assert (found["paired"]["cases"], found["paired"]["only_a_better"]) == (2, 1)


def test_welchs_test_has_algoclines_words() -> None:
    first = {"n": 10, "mean": 0.7, "std_dev": 0.4830459}
    second = {"n": 10, "mean": 0.4, "std_dev": 0.5163978}
    found = welch_test(first, second)
    assert found["p_value"] == pytest.approx(0.1964675, abs=1e-6)
    assert (found["significant"], found["direction"]) == (False, "a>b")
    assert welch_test(second, first)["direction"] == "a<b"
    assert welch_test({**first, "n": 1}, second)["direction"] == "insufficient_data"
    still = {"n": 3, "mean": 1.0, "std_dev": 0.0}
    assert (welch_test(still, still)["direction"], welch_test(still, still)["df"]) == ("equal", 4)


async def test_plans_are_in_the_history_and_compared_with_scenarios(host: Host, holdfast: Holdfast) -> None:
    data = [{"id": "two", "input": "2", "expected": "2"}, {"id": "three", "input": "3", "expected": "4"}]
    plan = Plan(strategies=["echo", "never"], data=data, graders=["exact_match"])
    await evaluate(plan, id="e-1", on=holdfast)
    run = await evaluated(host, "echo")
    told = (await host.call("alc_eval_history"))["evals"]
    assert {each["eval_id"] for each in told} == {"e-1:echo", "e-1:never", run["eval_id"]}
    detail = await host.call("alc_eval_detail", eval_id="e-1:echo")
    assert detail["result"]["aggregated"]["passed"] == 1
    assert [each["response"]["text"] for each in detail["result"]["results"]] == ["2", "3"]
    assert detail["result"]["results"][0]["grades"][0]["grader"] == "exact_match"
    found = await host.call("alc_eval_compare", eval_id_a=run["eval_id"], eval_id_b="e-1:never")
    assert found["result"]["comparison"]["delta_mean"] == 0.5


async def test_files_that_algocline_wrote_are_found(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "algocline" / "evals"
    folder.mkdir(parents=True)
    scores = {"n": 2, "mean": 1.0, "std_dev": 0.0}
    stored = {"status": "completed", "result": {"name": "cot:old", "aggregated": {"scores": scores, "pass_rate": 1.0}}}
    (folder / "cot_1700000000.json").write_text(json.dumps(stored))
    meta = {"eval_id": "cot_1700000000", "strategy": "cot", "timestamp": 1_700_000_000, "pass_rate": 1.0}
    (folder / "cot_1700000000.meta.json").write_text(json.dumps(meta))
    (folder / "broken.meta.json").write_text("{")
    told = await host.call("alc_eval_history")
    assert [each["eval_id"] for each in told["evals"]] == ["cot_1700000000"]
    assert len(told["warnings"]) == 1
    detail = await host.call("alc_eval_detail", eval_id="cot_1700000000")
    assert detail["result"] == stored["result"]
    run = await evaluated(host, "never")
    found = await host.call("alc_eval_compare", eval_id_a="cot_1700000000", eval_id_b=run["eval_id"])
    assert found["result"]["comparison"]["paired"] is None


async def test_the_commands_of_evaluations_know_those_of_scenarios(host: Host, holdfast: Holdfast) -> None:
    run = await evaluated(host, "echo")
    (listed,) = await list_evaluations(holdfast.store)
    assert (listed.kind, listed.state, listed.cases, listed.arms) == ("scenario", "done", 2, ["echo"])
    evaluation = Evaluation(run["eval_id"], holdfast.store)
    report = await evaluation.report()
    assert report.arms[0].score is not None
    assert report.arms[0].score.mean == 0.5
    assert [case.id for case in report.cases] == ["two", "three"]
    failed = [trial.text async for trial in evaluation.trials(failed=True)]
    assert failed == ["3"]
