"""What the children of a run ask reaches the host of the run, over the protocol, and its answers reach them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.serve.mcp.server import McpServer
from holdfast.testing.patience import until
from tests.serve.mcp_hosts import ERAS, Tools, home, install, over_streams, served

__all__ = ["home"]

FORK = """
local entries = alc.fork({ "children_native", "twice" }, ctx)
return { entries[1].result, entries[2].result.first, alc.ask("Enough?") }
"""


@strategy(name="children_native")
async def native(ctx: Context) -> Any:
    return await ctx.llm(f"native: {ctx.task}", system="Be native.")


@strategy(name="children-parent")
async def parent(ctx: Context) -> Any:
    return list(await asyncio.gather(ctx.ask("Who?"), ctx.child("twice", {"task": "tea"}), ctx.child(native)))


@pytest.fixture
async def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpServer]:
    from holdfast.programs import registry

    monkeypatch.setitem(registry._registered, "children_native", native)
    async with served("all") as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
async def test_a_lua_run_asks_for_its_children_and_is_continued_by_their_paths(server: McpServer, era: str) -> None:
    async with over_streams(server, era) as client:
        tools = Tools(client)
        run = await tools("alc_run", code=FORK, ctx={"task": "tea"})
        assert run["status"] == "needs_response"
        shown = {query["id"]: query["prompt"] for query in run["queries"]}
        assert shown == {"q-0.q-0": "native: tea", "q-1": "First: tea"}
        accepted = await tools("alc_continue", session_id=run["session_id"], query_id="q-0.q-0", response="N")
        assert (accepted["status"], accepted["remaining_ids"]) == ("accepted", ["q-1"])
        refused = await tools.refusal("alc_continue", session_id=run["session_id"], query_id="q-0.q-7", response="?")
        assert "unknown query_id: q-0.q-7" in refused
        answers = [{"query_id": "q-0.q-0", "response": "N"}, {"query_id": "q-1", "response": "F"}]
        asked = await tools("alc_continue", session_id=run["session_id"], responses=answers)
        assert asked["prompt"] == "Sure? F"
        asked = await tools("alc_continue", session_id=run["session_id"], response="S")
        assert (asked["kind"], asked["prompt"]) == ("human", "Enough?")
        ended = await tools("alc_continue", session_id=run["session_id"], response="Yes")
    assert ended["result"] == ["N", "F", "Yes"]
    assert ended["stats"]["auto"]["llm_calls"] == 3


async def test_the_status_of_a_run_shows_what_its_children_wait_for(server: McpServer) -> None:
    async with over_streams(server, "legacy") as client:
        tools = Tools(client)
        run = await tools("alc_run", code=FORK, ctx={"task": "tea"})
        status = await tools("alc_status", session_id=run["session_id"], pending_filter="full")
    pending = {each["query_id"]: each for each in status["pending"]}
    assert pending["q-0.q-0"]["prompt"] == "native: tea"


async def test_a_run_in_the_background_is_paused_when_its_children_ask(server: McpServer) -> None:
    async with over_streams(server, "legacy") as client:
        tools = Tools(client)
        run = await tools("alc_v2_run", code="return alc.child('children_native', { task = 'tea' })")

        async def paused() -> Any:
            state = await tools("alc_v2_state", session_id=run["session_id"])
            return state if state["state"] == "paused" else None

        state = await until(paused)
        assert [(each["query_id"], each["prompt"]) for each in state["prompts"]] == [("q-0.q-0", "native: tea")]
        answer = {"payload_kind": "single", "query_id": "q-0.q-0", "response": "N"}
        await tools("alc_v2_resume", session_id=run["session_id"], payload=answer)

        async def done() -> Any:
            state = await tools("alc_v2_state", session_id=run["session_id"])
            return state if state["state"] == "done" else None

        assert (await until(done))["value"] == "N"


async def test_a_host_that_samples_answers_children_in_one_call(server: McpServer) -> None:
    seen: list[str] = []

    async def model(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        prompt = getattr(params.messages[0].content, "text", "")
        seen.append(prompt)
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text=f"<{prompt}>"), model="m")

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"response": "me"})

    async with Client(server.server, mode="2026-07-28", sampling_callback=model, elicitation_callback=person) as client:
        ended = await Tools(client)("run", strategy="children-parent")
    assert ended["result"] == ["me", {"first": "<First: tea>", "second": "<Sure? <First: tea>>"}, "<native: >"]
    assert sorted(seen) == ["First: tea", "Sure? <First: tea>", "native: "]


async def test_a_package_found_by_name_is_one_of_the_runs_project(server: McpServer, tmp_path: Path) -> None:
    project = tmp_path / "project"
    install(project / "vendor", {"local_one": "return { run = function(ctx) return alc.llm('local') end }"})
    (project / "alc.toml").write_text('[packages]\nlocal_one = { path = "vendor/local_one" }\n')
    async with over_streams(server, "legacy") as client:
        run = await Tools(client)("alc_run", code="return alc.child('local_one')", project_root=str(project))
    assert (run["query_id"], run["prompt"]) == ("q-0.q-0", "local")
