"""Evaluations over HTTP: listed, with their figures and cases, compared, and in the words of the client."""

from __future__ import annotations

import holdfast
from holdfast.strategies.evaluation.evaluation import evaluate
from holdfast.strategies.evaluation.plan import Plan
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


async def test_the_client_has_words_for_evaluations(api: ApiServer) -> None:
    await evaluated(api)
    async with holdfast.connect(api.url, TOKEN) as hf:
        (listed,) = await hf.evaluations()
        assert listed.arms == ["tests.http.even", "tests.http.right"]
        assert (await hf.evaluation_figures("e-1")).arms[0].score == 2 / 3
        assert [case.id for case in (await hf.evaluation_cases("e-1", after=1)).data] == ["c1", "c2"]
        compared = await hf.compare_arms("e-1:tests.http.even", "e-1:tests.http.right")
        assert compared.only_left.cases == ["c2"]
