"""The report of `alc.eval`: its figures, its order, what is left out of it, and the card that is made of it."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.alc.lua.evaluation import Failure, Json, Lab, Refusal, Reply

ECHO = "function(ctx) return ctx.task end"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


# --- the numbers ------------------------------------------------------------------------------------------------------

# Two-sided 95 % points of Student's t as printed tables give them.
T95 = {
    1: 12.706,
    2: 4.303,
    4: 2.776,
    9: 2.228 + 0.034,
    10: 2.228,
    12: 2.228 - 0.4 * 0.097,
    15: 2.131,
    119: 1.984 - 0.95 * 0.004,
}


def graded(lab: Lab, values: list[float], tags: str = "{}") -> Any:
    cases = ", ".join(f"{{input='{value!r}', tags={tags}}}" for value in values)
    return lab.evaluate(f"{{cases={{{cases}}}, graders={{function(r) return tonumber(r.text) end}}}}, {ECHO}")


@pytest.mark.parametrize(
    "values",
    [
        [0.25, 1.0],
        [1.0, 0.0, 0.5],
        [0.1, 0.2, 0.3, 0.4, 1.0],
        [0.125 * (i % 9) for i in range(10)],
        [0.1 * (i % 11) for i in range(11)],
        [0.1 * (i % 10) for i in range(13)],
        [0.5 + 0.01 * (i % 7) for i in range(16)],
        [0.3 + 0.001 * (i % 13) for i in range(120)],
        [0.3 + 0.001 * (i % 13) for i in range(200)],
    ],
)
def test_mean_spread_and_interval_are_exact(lab: Lab, values: list[float]) -> None:
    aggregated = graded(lab, values)["aggregated"]

    scores = aggregated["scores"]
    assert scores["n"] == aggregated["total"] == len(values)
    assert scores["mean"] == pytest.approx(statistics.fmean(values), abs=1e-14)
    assert scores["std_dev"] == pytest.approx(statistics.stdev(values), abs=1e-14)
    assert scores["median"] == pytest.approx(statistics.median(values), abs=1e-15)
    assert (scores["min"], scores["max"]) == (min(values), max(values))
    margin = T95.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    assert aggregated["ci_95"]["lower"] == pytest.approx(max(0.0, statistics.fmean(values) - margin), abs=1e-12)
    assert aggregated["ci_95"]["upper"] == pytest.approx(min(1.0, statistics.fmean(values) + margin), abs=1e-12)


def test_one_case_has_an_interval_of_one_point(lab: Lab) -> None:
    aggregated = graded(lab, [0.5])["aggregated"]

    assert aggregated["ci_95"] == {"lower": 0.5, "upper": 0.5}
    assert aggregated["scores"]["std_dev"] == 0.0
    assert "pass_at_5" not in aggregated


@pytest.mark.parametrize(("passed", "total"), [(0, 5), (5, 5), (3, 10), (1, 10), (9, 10), (7, 12), (2, 4)])
def test_pass_at_k_is_the_chance_of_a_pass_among_k_results(lab: Lab, passed: int, total: int) -> None:
    aggregated = graded(lab, [1.0] * passed + [0.0] * (total - passed))["aggregated"]

    assert (aggregated["passed"], aggregated["pass_rate"]) == (passed, passed / total)
    assert aggregated["pass_at_1"] == passed / total
    for k in (5, 10):
        if total >= k:
            chance = 1 - math.comb(total - passed, k) / math.comb(total, k)
            assert aggregated[f"pass_at_{k}"] == pytest.approx(chance, abs=1e-12)
        else:
            assert f"pass_at_{k}" not in aggregated


def test_a_score_that_misses_one_by_rounding_passes(lab: Lab) -> None:
    entries = ", ".join("{'not_empty', weight=0.1}" for _ in range(3))

    report = lab.evaluate(f"{{ {entries}, cases={{{{input='a'}}}} }}, {ECHO}")

    assert report["results"][0]["passed"]
    assert graded(lab, [0.99])["aggregated"]["passed"] == 0


def test_tags_are_counted_apart_and_told_in_order(lab: Lab) -> None:
    report = lab.evaluate(
        "{cases={{input='a', expected='a', tags={'z', 'a', 'z'}}, {input='b', expected='x', tags={'z', 7}}}}, " + ECHO
    )

    tags = report["aggregated"]["by_tag"]
    assert list(tags) == ["7", "a", "z"]
    assert (tags["z"]["pass"], tags["z"]["fail"], tags["z"]["rate"]) == (1, 1, 0.5)
    assert tags["z"]["stats"]["mean"] == 0.5
    assert report["summary"].splitlines() == [
        "(inline):inline: 1 of 2 passed (50.0 %)",
        "mean score 0.500, standard deviation 0.707, 95 % interval 0.000 to 1.000",
        "pass@1 0.500",
        "  7: 0 of 1 passed (0.0 %)",
        "  a: 1 of 1 passed (100.0 %)",
        "  z: 1 of 2 passed (50.0 %)",
    ]


def test_the_same_evaluation_gives_the_same_bytes_in_every_vm(lab: Lab) -> None:
    tags = ", ".join(f"'tag{i}'" for i in range(30))
    case = f"{{input='a', tags={{{tags}}}, context={{c=1, b=2, a=3}}}}"
    code = f"return alc.json_encode(alc.eval({{cases={{{case}}}}}, {ECHO}))"

    assert len({lab.run(code).result for _ in range(6)}) == 1


def test_letters_of_every_script_go_through_unharmed(lab: Lab) -> None:
    report = lab.evaluate(
        f"{{name='東京', cases={{{{input='首都は？ 🗼', expected='首都は？ 🗼', tags={{'日本'}}}}}}}}, {ECHO}"
    )

    assert report["aggregated"]["passed"] == 1
    assert report["name"] == "(inline):東京"
    assert list(report["aggregated"]["by_tag"]) == ["日本"]


def test_what_has_no_form_in_json_is_left_out_of_the_report_but_graders_see_it(lab: Lab) -> None:
    report = lab.evaluate(
        "{cases={{input='a', context={f=function() return 'a' end, [3]='three', deep={1, print, {2}}}}},"
        f" graders={{function(r, c) return r.text == c.context.f() end}}}}, {ECHO}"
    )

    assert report["aggregated"]["passed"] == 1
    assert report["results"][0]["case"]["context"] == {"3": "three", "deep": [1, None, [2]]}


def test_the_example_of_the_documentation_runs(lab: Lab) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "lua-eval.md"
    (example,) = re.findall(r"^```lua\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    run = lab.run(example, lambda query: "Lima" if "Peru" in query["prompt"] else "Kyoto")

    assert run.result[0] == 0.5
    assert "capitals: 1 of 2 passed" in run.result[1]


# --- cards ------------------------------------------------------------------------------------------------------------


def test_a_card_is_made_of_the_figures_with_the_results_as_samples(lab: Lab) -> None:
    calls: list[Json] = []

    def answer(query: Json) -> Reply:
        assert (query["kind"], query["name"]) == ("tool", "holdfast.card")
        calls.append(query["arguments"])
        return {"card_id": "demo_model_1", "path": "/cards/demo/demo_model_1.toml", "count": 2}

    arguments = f"{{name='basic', cases={{{{input='a', expected='a'}}, {{input='b', expected='x'}}}}}}, {ECHO}"
    run = lab.run(f"return alc.eval({arguments}, {{auto_card=true, card_pkg='demo'}})", answer)

    assert run.result["card_id"] == "demo_model_1"
    assert [call["op"] for call in calls] == ["create", "write_samples"]
    card = calls[0]["card"]
    assert (card["pkg"], card["scenario"]) == ({"name": "demo"}, {"name": "basic"})
    assert card["stats"] == {"pass_rate": 0.5, "mean_score": 0.5, "n": 2, "passed": 1}
    assert [row["case"]["input"] for row in calls[1]["rows"]] == ["a", "b"]
    assert any("demo_model_1" in line for line in run.logged("info"))


def test_a_card_that_cannot_be_written_does_not_take_the_report_away(lab: Lab) -> None:
    arguments = f"{{cases={{{{input='a', expected='a'}}}}}}, {ECHO}, {{auto_card=true, card_pkg='demo'}}"

    report = lab.evaluate(arguments, lambda _: Failure("the disk is full"))

    assert report["aggregated"]["passed"] == 1
    assert "the disk is full" in report["card_error"]
    assert "card_id" not in report


def test_an_evaluation_that_stopped_early_makes_no_card(lab: Lab) -> None:
    def answer(query: Json) -> Reply:
        assert query["kind"] == "llm"
        return Refusal("budget_exceeded: max_llm_calls (0) reached (0 used)")

    report = lab.evaluate(
        "{cases={{input='a'}, {input='b'}}}, function(ctx) return alc.llm(ctx.task) end,"
        " {auto_card=true, card_pkg='demo'}",
        answer,
    )

    assert report["card_error"] == "no card: the evaluation stopped before its last case"
    assert "card_id" not in report
