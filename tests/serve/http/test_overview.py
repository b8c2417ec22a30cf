"""Many sessions at once over HTTP: filters, counts, labels, costs, workers, trees and comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Runtime
from holdfast.core.queries import Usage
from holdfast.engine.work_report import WorkReport
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider, reply, stream
from tests.serve.http.api_server import ApiServer, api_server
from tests.serve.http.programs import has_a_child, is_a_child, two_questions

START = {"program": two_questions.name, "llm": "host"}


async def _start(api: ApiServer, session_id: str, **given: Any) -> None:
    reply = await api.post("/sessions", {**START, "id": session_id, **given})
    assert reply.status_code == 201, reply.text


async def _ids(api: ApiServer, **params: Any) -> list[str]:
    reply = await api.get("/sessions", params=params)
    assert reply.status_code == 200, reply.text
    return [row["session_id"] for row in reply.json()["data"]]


async def test_a_row_says_what_a_session_is_called_has_spent_and_waits_for(api: ApiServer) -> None:
    await _start(api, "s-1", title="Sort the mail", labels=["shop", "big"])
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cost": 0.5}
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug", "usage": usage})
    (row,) = (await api.get("/sessions")).json()["data"]
    summary = row["summary"]
    assert (summary["title"], summary["labels"]) == ("Sort the mail", ["big", "shop"])
    assert (summary["tokens"], summary["cost"], summary["turns"]) == (120, 0.5, 0)
    assert (summary["asks"], summary["pending"], summary["waiting_for"]) == (1, 1, "human")
    assert (summary["forked_from"], summary["failure"]) == (None, "")


async def test_an_agents_row_has_its_turns_and_the_beginning_of_its_first_input(api: ApiServer) -> None:
    await api.post("/agents/agent/sessions", {"id": "chat", "labels": ["x"]})
    for text in ("Why is it empty?\nTell me.", "And now?"):
        await api.post("/sessions/chat/turns", {"input": text, "wait_s": 30})
    (row,) = (await api.get("/sessions")).json()["data"]
    assert (row["summary"]["title"], row["summary"]["turns"]) == ("Why is it empty?", 2)
    assert (row["summary"]["labels"], row["summary"]["asks"]) == (["x"], 0)


async def test_sessions_are_found_by_label_text_and_question(api: ApiServer) -> None:
    await _start(api, "s-1", title="Sort the MAIL", labels=["shop"])
    await _start(api, "s-2", labels=["shop", "urgent"])
    await _start(api, "x-3", ctx={"task": "Mail it"})
    await api.post("/sessions/s-2/cancel")
    assert await _ids(api, label="shop") == ["s-2", "s-1"]
    assert await _ids(api, label=["shop", "urgent"]) == ["s-2"]
    assert await _ids(api, q="mail") == ["x-3", "s-1"]
    assert await _ids(api, asking="true") == ["x-3", "s-1"]
    assert await _ids(api, q="mail", id_prefix="s-") == ["s-1"]


async def test_counts_agree_with_the_list(api: ApiServer) -> None:
    for number in range(3):
        await _start(api, f"s-{number}", labels=["a"] if number else [])
    await api.post("/sessions/s-2/cancel")
    counts = (await api.get("/sessions/counts")).json()
    assert (counts["sessions"], counts["by_state"]) == (3, {"paused": 2, "cancelled": 1})
    assert (counts["by_waiting_for"], counts["asks"], counts["more"]) == ({"llm": 2}, 2, False)
    labelled = (await api.get("/sessions/counts", params={"label": "a"})).json()
    assert labelled["by_state"] == {"paused": 1, "cancelled": 1}
    assert (await api.get("/labels")).json() == {"data": [{"label": "a", "sessions": 2}]}


async def test_title_and_labels_are_changed_and_recorded(api: ApiServer) -> None:
    await _start(api, "s-1", labels=["a"])
    row = (await api.client.patch("/sessions/s-1", json={"title": "New", "labels": ["b", "a", "b"]})).json()
    assert (row["summary"]["title"], row["summary"]["labels"]) == ("New", ["a", "b"])
    row = (await api.client.patch("/sessions/s-1", json={"labels": []})).json()
    assert (row["summary"]["title"], row["summary"]["labels"]) == ("New", [])
    entries = (await api.get("/sessions/s-1/journal", params={"type": "labelled"})).json()["data"]
    assert [entry["record"]["by"] for entry in entries] == ["local", "local"]
    refused = await api.client.patch("/sessions/s-1", json={"labels": ["a,b"]})
    assert (refused.status_code, "without a comma" in refused.json()["detail"]) == (400, True)


async def test_costs_are_told_apart_by_day_program_and_label(api: ApiServer) -> None:
    for session_id, labels, cost, calls in (("s-1", ["a", "b"], 1.0, 4), ("s-2", ["a"], 2.0, 2)):
        await _start(api, session_id, labels=labels, budget={"max_llm_calls": calls})
        usage = {"prompt_tokens": 10, "completion_tokens": 0, "cost": cost}
        await api.post(f"/sessions/{session_id}/queries/q-0/answer", {"response": "bug", "usage": usage})
    by_label = (await api.get("/costs", params={"by": "label"})).json()
    assert [(row["key"], row["cost"]) for row in by_label["data"]] == [({"label": "a"}, 3.0), ({"label": "b"}, 1.0)]
    assert by_label["total"] == {"key": {}, "sessions": 2, "tokens": 20, "cost": 3.0}
    assert [row["session_id"] for row in by_label["top"]] == ["s-2", "s-1"]
    assert [(row["session_id"], row["share"]) for row in by_label["budgets"]] == [("s-2", 0.5), ("s-1", 0.25)]
    by_two = (await api.get("/costs", params={"by": ["day", "program"]})).json()
    assert [(row["key"]["program"], row["sessions"]) for row in by_two["data"]] == [(two_questions.name, 2)]
    later = (await api.get("/costs", params={"by": "day", "since": "9999-01-01"})).json()
    assert (later["data"], later["total"]["cost"]) == ([], 0.0)
    assert (await api.get("/costs", params={"since": "yesterday"})).status_code == 400


async def test_what_a_child_has_used_counts_for_its_parent_alone(api: ApiServer) -> None:
    await api.door.holdfast.start(has_a_child, id="s-1", llm="host")
    await until(lambda: _asks(api, "s-1"))
    usage = {"prompt_tokens": 10, "completion_tokens": 0, "cost": 1.0}
    answered = await api.post("/sessions/s-1/queries/q-0.q-0/answer", {"response": "a", "usage": usage, "wait_s": 30})
    assert answered.json()["status"] == "completed", answered.text
    costs = (await api.get("/costs", params={"by": "program"})).json()
    assert costs["total"] == {"key": {}, "sessions": 1, "tokens": 10, "cost": 1.0}
    assert [row["key"]["program"] for row in costs["data"]] == [has_a_child.name]
    of_child = (await api.get("/costs", params={"by": "program", "program": is_a_child.name})).json()
    assert of_child["total"]["cost"] == 1.0


async def _asks(api: ApiServer, session_id: str) -> bool:
    status = await api.door.holdfast.status(session_id, pending="full")
    return bool(status.get("pending"))


async def test_costs_are_told_apart_by_model(tmp_path: Path) -> None:
    usage = Usage(prompt_tokens=8, completion_tokens=2, cost=1.0)
    provider = ScriptedProvider([reply("So.", usage=usage)], loop=True)
    async with Runtime(f"sqlite:///{tmp_path}/s.db", provider=provider) as runtime, api_server(runtime) as api:
        await _start(api, "s-1")
        await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug", "usage": {"cost": 0.5}})
        for chat, model, turns in (("chat-1", "m-1", 1), ("chat-2", "m-2", 2)):
            await api.post("/agents/agent/sessions", {"id": chat, "spec": {"model": model}})
            for _ in range(turns):
                await api.post(f"/sessions/{chat}/turns", {"input": "hi", "wait_s": 30})
        costs = (await api.get("/costs", params={"by": ["day", "model"]})).json()
        rows = {row["key"]["model"]: (row["sessions"], row["cost"]) for row in costs["data"]}
        assert rows == {"host": (1, 0.5), "m-1": (1, 1.0), "m-2": (1, 2.0)}
        assert sum(row["tokens"] for row in costs["data"]) == costs["total"]["tokens"]
        assert (await api.get("/costs", params={"by": ["program", "model"]})).status_code == 400


async def test_a_worker_says_how_many_turns_it_has_and_that_it_drains(tmp_path: Path) -> None:
    provider = ScriptedProvider([stream(*["a "] * 100_000, every_s=0.01)])
    async with Runtime(f"sqlite:///{tmp_path}/s.db", provider=provider) as runtime, api_server(runtime) as api:
        await api.post("/agents/agent/sessions", {"id": "chat"})
        await api.post("/sessions/chat/items", {"input": "talk"})

        async def shows(under_way: int, is_draining: bool) -> bool:
            """Whether the list says so, and the row that other servers read."""
            expected = WorkReport(under_way, 3, is_draining)
            shown = [row["work"] for row in (await api.get("/workers")).json()["data"]]
            told = [row.work for row in await runtime.mount.holdfast.processes()]
            return shown == [msgspec.to_builtins(expected)] and (told == [expected] or not is_draining)

        async with runtime.work(turns=3) as worker:
            await until(lambda: shows(1, is_draining=False))
            worker.stop()
            await until(lambda: shows(1, is_draining=True))
            await api.post("/sessions/chat/turns/current/cancel")
        assert [row["work"] for row in (await api.get("/workers")).json()["data"]] == [None]


async def test_a_session_whose_code_has_changed_is_shown_with_both_sides(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _start(api, "s-1")
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug", "wait_s": 30})
    fine = (await api.get("/sessions/s-1/replay")).json()
    assert (fine["state"], fine["divergence"]) == ("ok", None)
    monkeypatch.setattr(two_questions, "function", is_a_child.function)
    changed = (await api.get("/sessions/s-1/replay")).json()
    assert (changed["state"], changed["divergence"]["position"]) == ("diverges", 2)
    assert "Bug, wish or question?" in changed["divergence"]["recorded"]
    assert "Well?" in changed["divergence"]["asked"]


async def test_workers_say_what_they_have_and_hold(api: ApiServer) -> None:
    await _start(api, "s-1")

    async def is_listed() -> bool:
        return bool((await api.get("/workers")).json()["data"])

    await until(is_listed)
    report = (await api.get("/workers")).json()
    (worker,) = report["data"]
    assert worker["offers"]["services"] == ["default"]
    assert worker["name"].startswith(worker["host"])
    assert (report["unowned"], report["inbox"]["waiting"]) == (0, 0)


async def test_a_tree_has_the_forks_of_a_session(api: ApiServer) -> None:
    await _start(api, "s-1")
    await api.post("/sessions/s-1/forks", {"id": "s-2"})
    await api.post("/sessions/s-2/forks", {"id": "s-3"})
    tree = (await api.get("/sessions/s-1/tree")).json()
    shown = [(node["session_id"], node["parent"], node["depth"], node["relation"]) for node in tree["nodes"]]
    assert shown == [("s-1", None, 0, "root"), ("s-2", "s-1", 1, "fork"), ("s-3", "s-2", 2, "fork")]
    assert tree["more"] is False


async def test_a_comparison_has_as_many_rows_as_were_asked_for(api: ApiServer) -> None:
    for session_id, answers in (("s-1", ("bug", "yes")), ("s-2", ("wish", "no"))):
        await _start(api, session_id)
        for number, answer in enumerate(answers):
            await api.post(f"/sessions/{session_id}/queries/q-{number}/answer", {"response": answer})
    whole = (await api.get("/comparisons", params={"left": "s-1", "right": "s-2"})).json()
    cut = (await api.get("/comparisons", params={"left": "s-1", "right": "s-2", "limit": 1})).json()
    assert len(whole["rows"]) > 1
    assert (whole["more"], cut["more"], cut["rows"]) == (False, True, whole["rows"][:1])


async def test_a_token_with_a_prefix_counts_only_what_it_sees(api: ApiServer) -> None:
    await _start(api, "shop-1", labels=["a"])
    await _start(api, "s-2", labels=["b"])
    made = (await api.post("/tokens", {"name": "shop", "scopes": ["sessions:read"], "id_prefix": "shop-"})).json()
    async with api.as_holder_of(made["token"]) as shop:
        assert (await shop.get("/sessions/counts")).json()["sessions"] == 1
        assert (await shop.get("/labels")).json()["data"] == [{"label": "a", "sessions": 1}]
        assert [row["session_id"] for row in (await shop.get("/queries")).json()["data"]] == ["shop-1"]
        assert (await shop.get("/costs")).json()["total"]["sessions"] == 1
        other = await shop.get("/sessions/counts", params={"id_prefix": "s-"})
        assert other.json()["sessions"] == 0
