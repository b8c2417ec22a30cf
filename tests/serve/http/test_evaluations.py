"""Evaluations over HTTP: listed, with their figures and cases, compared, and in the words of the client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Runtime
from holdfast.core.errors import InvalidValueError
from holdfast.strategies.evaluation.begin import begin_evaluation, has_served_work
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.errors import DriftError
from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate, install_dispatcher
from holdfast.strategies.evaluation.plan import Plan
from holdfast.testing.patience import soon, until
from tests.serve.http.api_server import TOKEN, ApiServer
from tests.serve.http.programs import two_questions

ROWS = [{"id": f"c{number}", "input": f"Say {number}", "expected": str(number)} for number in range(3)]


@holdfast.strategy(name="tests.http.even")
async def even(ctx: holdfast.Context) -> str:
    """Right on even numbers."""
    number = int(ctx.task.split()[-1])
    return str(number) if number % 2 == 0 else "?"


@holdfast.strategy(name="tests.http.right")
async def right(ctx: holdfast.Context) -> str:
    """Right on all but the last one, on which it raises."""
    if ctx.task.endswith("2"):
        raise ValueError("too many")
    return ctx.task.split()[-1]


@holdfast.strategy(name="tests.http.gated")
async def gated(ctx: holdfast.Context) -> str:
    """Right, once it is let through."""
    return str(await ctx.tool("tests.gate", text=ctx.task.split()[-1]))


async def evaluated(api: ApiServer, id: str = "e-1") -> None:
    await evaluate(Plan(strategies=[even, right], data=ROWS, repeat=2), id=id, on=api.runtime)


async def test_evaluations_are_listed_the_newest_first(api: ApiServer) -> None:
    assert (await api.get("/evaluations")).json() == {"data": []}
    await evaluated(api)
    await evaluated(api, "e-2")
    listed = (await api.get("/evaluations")).json()["data"]
    assert [(each["id"], each["state"], each["cases"], each["repeat"]) for each in listed] == [
        ("e-2", "done", 3, 2),
        ("e-1", "done", 3, 2),
    ]
    assert (await api.get("/evaluations", params={"limit": 1})).json()["data"] == listed[:1]


async def test_the_figures_of_an_evaluation(api: ApiServer) -> None:
    await evaluated(api)
    found = (await api.get("/evaluations/e-1")).json()
    assert (found["total"], found["done"], found["running"], found["graders"]) == (12, 12, 0, ["exact_match"])
    even_arm, right_arm = found["arms"]
    assert (even_arm["score"], right_arm["score"], right_arm["errors"]) == (2 / 3, 2 / 3, 2)
    assert even_arm["low"] <= even_arm["score"] <= even_arm["high"]
    assert right_arm["failures"][0]["why"].startswith("error: ValueError: too many")
    (pair,) = found["pairs"]
    assert (pair["better"], pair["worse"], pair["common"]) == (1, 1, 3)


async def test_the_cases_of_an_evaluation_by_arm(api: ApiServer) -> None:
    await evaluated(api)
    page = (await api.get("/evaluations/e-1/cases", params={"limit": 2})).json()
    assert ([row["id"] for row in page["data"]], page["next"], page["total"]) == (["c0", "c1"], 2, 3)
    cell = page["data"][1]["cells"][1]
    assert (cell["score"], cell["tries"], cell["passes"]) == (1.0, 2, 2)
    assert cell["session_id"] == "e-1.t-tests.http.right-1-1"
    assert (await api.get(f"/sessions/{cell['session_id']}")).status_code == 200
    rest = (await api.get("/evaluations/e-1/cases", params={"after": 2})).json()
    assert rest["data"][0]["cells"][1]["trouble"].startswith("error: ValueError: too many")
    assert rest["next"] is None
    differing = (await api.get("/evaluations/e-1/cases", params={"differing": "true"})).json()
    assert [row["id"] for row in differing["data"]] == ["c1", "c2"]
    hardest = (await api.get("/evaluations/e-1/cases", params={"order": "hardest"})).json()
    assert [row["id"] for row in hardest["data"]] == ["c1", "c2", "c0"]
    assert (await api.get("/evaluations/e-1/cases", params={"after": -1})).status_code == 400


async def test_two_arms_are_compared_by_case(api: ApiServer) -> None:
    await evaluated(api)
    sides = {"left": "e-1:tests.http.even", "right": "e-1:tests.http.right"}
    found = (await api.get("/evaluations/comparison", params=sides)).json()
    groups = {name: found[name]["cases"] for name in ("both", "only_left", "only_right", "neither")}
    assert groups == {"both": ["c0"], "only_left": ["c2"], "only_right": ["c1"], "neither": []}
    assert (found["pair"]["mean"], found["left_out"]) == (0.0, 0)
    assert (await api.get("/evaluations/comparison", params={**sides, "left": "e-1:nobody"})).status_code == 400


async def test_what_is_no_evaluation_is_not_found(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    for id in ("s-1", "nobody"):
        assert (await api.get(f"/evaluations/{id}")).status_code == 404
        assert (await api.get(f"/evaluations/{id}/cases")).status_code == 404


async def test_a_token_sees_only_evaluations_of_its_prefix(api: ApiServer) -> None:
    await evaluated(api)
    made = (await api.post("/tokens", {"name": "shop", "scopes": ["sessions:read"], "id_prefix": "shop-"})).json()
    async with api.as_holder_of(made["token"]) as shop:
        assert (await shop.get("/evaluations")).json()["data"] == []
        assert (await shop.get("/evaluations/e-1")).status_code == 404
        sides = {"left": "e-1:tests.http.even", "right": "e-1:tests.http.right"}
        assert (await shop.get("/evaluations/comparison", params=sides)).status_code == 404


async def test_trials_can_be_left_out_of_the_list_of_sessions(api: ApiServer) -> None:
    await evaluated(api)
    listed = (await api.get("/sessions", params={"without_label": "evaluation.part"})).json()["data"]
    assert [row["session_id"] for row in listed] == ["e-1"]


async def test_an_evaluation_that_waits_for_an_order_asks_nobody(api: ApiServer) -> None:
    await evaluated(api)
    assert (await api.get("/queries")).json()["data"] == []


async def test_the_client_has_words_for_evaluations(api: ApiServer) -> None:
    await evaluated(api)
    async with holdfast.connect(api.url, TOKEN) as hf:
        (listed,) = await hf.evaluations()
        assert listed.arms == ["tests.http.even", "tests.http.right"]
        assert (await hf.evaluation_figures("e-1")).arms[0].score == 2 / 3
        assert [case.id for case in (await hf.evaluation_cases("e-1", after=1)).data] == ["c1", "c2"]
        compared = await hf.compare_arms("e-1:tests.http.even", "e-1:tests.http.right")
        assert compared.only_left.cases == ["c2"]


async def test_strategies_have_the_figures_of_their_latest_evaluation(api: ApiServer) -> None:
    assert (await api.get("/evaluations/strategies")).json() == {"data": []}
    await evaluated(api)
    await evaluate(Plan(strategies=[even], data=ROWS[:1]), id="e-2", on=api.runtime)
    for _ in range(2):  # the second time from what was kept
        found = {each["strategy"]: each for each in (await api.get("/evaluations/strategies")).json()["data"]}
        assert (found[even.name]["evaluation"], found[even.name]["pass_rate"], found[even.name]["n"]) == ("e-2", 1.0, 1)
        assert (found[right.name]["evaluation"], found[right.name]["pass_rate"]) == ("e-1", 2 / 3)


# --- begun over HTTP ------------------------------------------------------------------------------------

PLAN = {"strategies": [even.name, right.name], "data": ROWS, "graders": ["exact_match"]}


async def _settled(api: ApiServer, id: str) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        overview: dict[str, Any] = (await api.get(f"/evaluations/{id}")).json()["overview"]
        return overview if overview["state"] not in ("running", "interrupted") else None

    overview: dict[str, Any] = await until(found)
    return overview


async def test_an_evaluation_is_begun_over_http_and_topped_up(api: ApiServer) -> None:
    made = await api.post("/evaluations", {**PLAN, "id": "e-1"})
    assert (made.status_code, made.headers["location"]) == (202, "/api/v1/evaluations/e-1"), made.text
    assert (await _settled(api, "e-1"))["state"] == "done"
    again = await api.post("/evaluations", {**PLAN, "id": "e-1"})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    other = await api.post("/evaluations", {**PLAN, "id": "e-1", "data": ROWS[:2]})
    assert (other.status_code, other.json()["type"]) == (409, "urn:holdfast:error:drift")
    assert (await api.post("/evaluations/e-1/add", {"repeat": 2})).status_code == 202
    assert (await _settled(api, "e-1"))["repeat"] == 2
    assert (await api.get("/evaluations/e-1")).json()["done"] == 12
    assert (await api.post("/evaluations/e-1/retry", {"which": "errors"})).status_code == 202
    await _settled(api, "e-1")
    assert (await api.get("/evaluations/e-1")).json()["done"] == 12
    ended = await api.post("/evaluations/e-1/cancel", {"reason": "enough"})
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
    late = await api.post("/evaluations/e-1/resume")
    assert (late.status_code, "takes no orders any more" in late.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"strategies": ["./mine.py:run"]}, 403, "a file is code"),
        ({"strategies": [{"strategy": "agent:a.md"}]}, 403, "a file is code"),
        ({"strategies": ["nobody_knows_it"]}, 400, "nobody_knows_it"),
        ({"strategies": []}, 400, "at least one"),
        ({"graders": ["python:mine.py:grade"]}, 403, "a function is code"),
        ({"graders": ["strategy:./mine.py"]}, 403, "a file is code"),
        ({"models": ["openai:gpt-5"]}, 400, "no model 'openai:gpt-5'"),
        ({"graders": [{"grader": "llm_yes_no", "judge": "openai:gpt-5"}]}, 400, "no model 'openai:gpt-5'"),
        ({"data": []}, 400, "no cases"),
        ({"data": [{"question": "x"}]}, 400, "unknown fields question"),
        ({"budget": {"max_calls": 3}}, 400, "no limit 'max_calls'"),
        ({"reuse": ["nobody"]}, 404, "nobody"),
        ({"jobs": 0}, 400, "jobs"),
    ],
)
async def test_a_plan_that_cannot_be_served_is_refused(
    api: ApiServer, change: dict[str, Any], status: int, words: str
) -> None:
    reply = await api.post("/evaluations", {**PLAN, **change, "id": "e-1"})
    assert (reply.status_code, words in reply.json()["detail"]) == (status, True), reply.text
    assert (await api.get("/evaluations")).json()["data"] == []


async def test_an_evaluation_that_began_with_a_file_is_not_continued_by_a_server(
    api: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    await evaluate(Plan(strategies=[even], data=tmp_path / "rows.jsonl"), id="e-1", on=api.runtime)
    reply = await api.post("/evaluations/e-1/resume")
    assert (reply.status_code, "holdfast eval resume e-1" in reply.json()["detail"]) == (400, True), reply.text


async def test_the_client_evaluates_on_the_server(api: ApiServer) -> None:
    plan = Plan(strategies=[even, right.name], data=ROWS, graders=["exact_match"])
    async with holdfast.connect(api.url, TOKEN) as hf:
        figures = await soon(hf.evaluate(plan, id="e-1"))
        assert (figures.overview.state, figures.done, figures.arms[0].score) == ("done", 6, 2 / 3)
        with pytest.raises(DriftError):
            await hf.start_evaluation(Plan(strategies=[even], data=ROWS, repeat=2), id="e-1")
        await hf.add_to_evaluation("e-1", 2)
        assert (await _settled(api, "e-1"))["repeat"] == 2
        await hf.retry_evaluation("e-1", "failed")
        await _settled(api, "e-1")
        await hf.resume_evaluation("e-1", budget={"max_llm_calls": 10})
        await _settled(api, "e-1")
        assert (await hf.cancel_evaluation("e-1", "enough")).state == "cancelled"
        with pytest.raises(InvalidValueError, match="told names"):
            await hf.start_evaluation(Plan(strategies=[lambda ctx: "x"], data=ROWS))


async def test_a_server_goes_on_with_what_it_began_before_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/served.db"

    async def shut(text: str) -> str:
        await asyncio.Event().wait()
        return text

    async def open_gate(text: str) -> str:
        return text

    async with Runtime(url) as runtime:
        runtime.mount.holdfast.drive("tests.gate", shut, recovery="safe")
        plan = Plan(strategies=[gated], data=ROWS)
        assert not await begin_evaluation(runtime, "e-1", plan, Jobs(1))
        assert await has_served_work(runtime.mount.store)
    async with Runtime(url) as runtime:
        runtime.mount.holdfast.drive("tests.gate", open_gate, recovery="safe")
        assert await has_served_work(runtime.mount.store)
        install_dispatcher(runtime, Jobs())
        await until(lambda: _is_done(runtime))
        assert not await has_served_work(runtime.mount.store)


async def _is_done(runtime: Runtime) -> bool:
    return (await Evaluation("e-1", runtime.mount.store).report()).state == "done"
