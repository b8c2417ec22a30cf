"""Holdfast's own tools, through the official client in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.serve.mcp.server import McpServer, tools_of
from tests.serve.mcp_hosts import ERAS, Tools, home, served

__all__ = ["home"]

OWN = ["run", "answer", "sessions", "show", "cancel", "fork", "strategies"]


@strategy(name="own-tools-panel")
async def panel(ctx: Context) -> Any:
    """Asks three at once.

    And more that a list does not need.
    """
    asked = (ctx.llm(f"{who}: {ctx.task}") for who in ("optimist", "pessimist", "realist"))
    return [str(answer) for answer in await asyncio.gather(*asked, return_exceptions=True)]


@strategy(name="own-tools-person")
async def person(ctx: Context) -> Any:
    return [await ctx.ask("Which?", choices=["left", "right"]), await ctx.tool("search", words="lua")]


@pytest.fixture
async def server(home: Path) -> AsyncIterator[McpServer]:
    async with served() as server:
        yield server


# --- what is offered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_sees_seven_tools_that_say_what_they_are(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == OWN
    for tool in tools:
        assert tool.title
        assert len(tool.description or "") > 60
        assert tool.input_schema["type"] == "object"
        assert all("description" in each for each in tool.input_schema["properties"].values()), tool.name
        assert tool.output_schema is not None
        assert tool.output_schema["required"], tool.name
        assert "$ref" not in json.dumps([tool.input_schema, tool.output_schema])
    hints = {tool.name: tool.annotations for tool in tools}
    looking = {name for name, each in hints.items() if each is not None and each.read_only_hint}
    assert looking == {"sessions", "show", "strategies"}
    assert [name for name, each in hints.items() if each is not None and each.destructive_hint] == ["cancel"]


def test_the_tools_take_little_of_a_models_window() -> None:
    declared = [
        tool.declared().model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools_of("holdfast")
    ]
    assert len(json.dumps(declared)) <= 12 * 1024


def test_a_run_asks_its_host_and_reaches_nothing_beyond() -> None:
    """Hosts that run unattended refuse tools that say otherwise."""
    assert not any(tool.open_world for tool in tools_of("holdfast"))


def test_a_family_is_chosen_and_all_is_both() -> None:
    own, alc = ([tool.name for tool in tools_of(family)] for family in ("holdfast", "alc"))
    assert own == OWN
    assert all(name.startswith("alc_") for name in alc)
    assert {"alc_run", "alc_advice", "alc_continue", "alc_status", "alc_cancel"} <= set(alc)
    assert [tool.name for tool in tools_of("all")] == own + alc


# --- run and answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_strategy_is_run_by_name_and_answered_to_its_end(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        asked = await call("run", strategy="twice", task="tea?")
        session_id = asked["session_id"]
        assert asked == {
            "status": "needs_response",
            "session_id": session_id,
            "query_id": "q-0",
            "prompt": "First: tea?",
            "system": "Be brief.",
            "max_tokens": 50,
        }
        again = await call("answer", session_id=session_id, response="yes")
        assert (again["query_id"], again["prompt"]) == ("q-1", "Sure? yes")
        ended = await call("answer", session_id=session_id, response="quite")
    assert ended["status"] == "completed"
    assert ended["result"] == {"first": "yes", "second": "quite"}
    assert ended["stats"]["auto"]["llm_calls"] == 2


async def test_code_is_run_with_a_task_and_options_also_where_the_host_sends_them_as_text(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        code = "return { ctx.task, ctx.depth }"
        told = await call("run", code=code, task="think", ctx={"depth": 3, "task": "is replaced"})
        assert told["result"] == ["think", 3]
        told = await call("run", code=code, task="think", ctx='{"depth": 4}')
        assert told["result"] == ["think", 4]
        assert (await call("run", code="return ctx", ctx=[1, 2]))["result"] == [1, 2]


async def test_several_queries_are_answered_at_once_or_one_by_one(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        asked = await call("run", strategy="own-tools-panel", task="rain?")
        session_id = asked["session_id"]
        assert [query["id"] for query in asked["queries"]] == ["q-0", "q-1", "q-2"]
        taken = await call("answer", session_id=session_id, answers=[{"query_id": "q-1", "response": "rain"}])
        assert (taken["status"], taken["remaining"], taken["remaining_ids"]) == ("accepted", 2, ["q-0", "q-2"])
        answers = [
            {"query_id": "q-0", "response": "sun", "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
            {"query_id": "q-2", "error": "no idea"},
        ]
        ended = await call("answer", session_id=session_id, answers=answers)
    assert ended["status"] == "completed"
    assert ended["result"][:2] == ["sun", "rain"]
    assert "no idea" in ended["result"][2]
    assert ended["stats"]["auto"]["failures"] == 1
    assert ended["stats"]["auto"]["prompt_tokens"]["tokens"] >= 7


async def test_the_same_answer_twice_is_taken_once_and_another_one_is_refused(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="twice", task="tea?"))["session_id"]
        first = await call("answer", session_id=session_id, answers=[{"query_id": "q-0", "response": "yes"}])
        again = await call("answer", session_id=session_id, answers=[{"query_id": "q-0", "response": "yes"}])
        assert again == {**first, "replayed": True}
        why = await call.refusal("answer", session_id=session_id, answers=[{"query_id": "q-0", "response": "no"}])
        assert "already responded to query_id: q-0" in why
        assert (await call("show", session_id=session_id))["metrics"]["rounds"] == 1


async def test_people_and_tools_are_asked_too_and_null_is_an_answer(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        asked = await call("run", strategy="own-tools-person")
        assert (asked["kind"], asked["choices"]) == ("human", ["left", "right"])
        searching = await call("answer", session_id=asked["session_id"], response="left")
        assert (searching["kind"], searching["name"], searching["arguments"]) == ("tool", "search", {"words": "lua"})
        ended = await call("answer", session_id=asked["session_id"], response=None)
    assert ended["result"] == ["left", None]


async def test_a_budget_is_kept(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        asked = await call("run", strategy="twice", task="tea?", budget={"max_llm_calls": 1})
        ended = await call("answer", session_id=asked["session_id"], response="yes")
        assert ended["status"] == "error"
        assert "budget_exceeded: max_llm_calls (1) reached" in ended["error"]
        assert "max_tokens must be at least 0" in await call.refusal("run", code="return 1", budget={"max_tokens": -1})
        assert "max_pounds" in await call.refusal("run", code="return 1", budget={"max_pounds": 1})


REFUSED_RUNS: list[tuple[dict[str, Any], str]] = [
    ({}, "give `strategy`"),
    ({"strategy": "twice", "code": "return 1"}, "not both"),
    ({"strategy": "nobody"}, "nobody"),
    ({"strategy": "../packages/twice"}, "not a name"),
    ({"strategy": "twice.lua"}, "not a name"),
    ({"strategy": "os:getcwd"}, "not a name"),
    ({"strategy": ""}, "not a name"),
    ({"code": "return 1", "task": "t", "ctx": [1]}, "`ctx` must be an object"),
    ({"code": "return 1", "language": "cobol"}, "cobol"),
    ({"code": 1}, "Expected `str | null`, got `int` - at `$.code`"),
    ({"code": "return 1", "colour": "red"}, "colour"),
    ({"code": "return 1", "ctx": {"n": "x" * 34_000_000}}, "larger than"),
]


@pytest.mark.parametrize(("arguments", "why"), REFUSED_RUNS, ids=[str(n) for n in range(len(REFUSED_RUNS))])
async def test_a_run_that_cannot_be_is_refused_and_starts_nothing(
    server: McpServer, arguments: dict[str, Any], why: str
) -> None:
    async with Client(server.server) as client:
        assert why in await Tools(client).refusal("run", **arguments)
    assert not (await server.holdfast.sessions()).rows


async def test_a_strategy_named_by_a_python_file_is_not_imported(server: McpServer, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nasync def f(ctx): return 1\n")
    async with Client(server.server) as client:
        for name in (f"{tmp_path}/evil.py:f", f"{tmp_path}/evil.py"):
            assert "not a name" in await Tools(client).refusal("run", strategy=name)
    assert not mark.exists()


REFUSED_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({}, "give either `response`"),
    ({"response": "x", "answers": [{"query_id": "q-0", "response": "x"}]}, "give either `response`"),
    ({"response": "x"}, "3 queries pending; specify query_id explicitly"),
    ({"answers": []}, "`answers` is empty"),
    ({"answers": [{"query_id": "q-0", "response": 1}, {"query_id": "q-0", "response": 2}]}, "q-0 twice"),
    ({"answers": [{"query_id": "q-0"}]}, "q-0: give either `response` or `error`"),
    ({"answers": [{"query_id": "q-0", "response": 1, "error": "e"}]}, "q-0: give either `response` or `error`"),
    ({"answers": [{"response": 1}]}, "query_id"),
    ({"answers": [{"query_id": "q-0", "response": 1}, {"query_id": "q-9", "response": 2}]}, "unknown query_id: q-9"),
    ({"answers": [{"query_id": "q-0", "response": 1, "usage": {"prompt_tokens": -1}}]}, "cannot be negative"),
    ({"answers": "q-0"}, "Expected `array | null`"),
]


@pytest.mark.parametrize(("arguments", "why"), REFUSED_ANSWERS, ids=[str(n) for n in range(len(REFUSED_ANSWERS))])
async def test_an_answer_that_cannot_be_is_refused_and_changes_nothing(
    server: McpServer, arguments: dict[str, Any], why: str
) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="own-tools-panel", task="rain?"))["session_id"]
        before = await server.holdfast.store.position(session_id)
        assert why in await call.refusal("answer", session_id=session_id, **arguments)
    assert await server.holdfast.store.position(session_id) == before


@pytest.mark.parametrize("tool", ["answer", "show", "cancel", "fork"])
async def test_a_session_that_is_not_there_is_told_so(server: McpServer, tool: str) -> None:
    more = {"response": "x"} if tool == "answer" else {}
    async with Client(server.server) as client:
        call = Tools(client)
        assert "session 's-nobody' not found" in await call.refusal(tool, session_id="s-nobody", **more)
        assert "invalid session id" in await call.refusal(tool, session_id="../../etc/passwd", **more)


# --- sessions and show -------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_sessions_are_listed_by_state_and_strategy_a_page_at_a_time(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        asked = [(await call("run", strategy="twice", task=str(n)))["session_id"] for n in range(3)]
        done = (await call("run", code="return 1"))["session_id"]
        paused = await call("sessions", states=["paused"])
        assert [row["session_id"] for row in paused["sessions"]] == asked[::-1]
        row = paused["sessions"][0]
        assert (row["state"], row["strategy"], row["pending_queries"]) == ("paused", "twice", 1)
        assert row["waiting_for"] == ["llm"]
        assert [each["session_id"] for each in (await call("sessions", strategy="code"))["sessions"]] == [done]
        first = await call("sessions", limit=3)
        rest = await call("sessions", limit=3, cursor=first["next_cursor"])
        found = [each["session_id"] for page in (first, rest) for each in page["sessions"]]
        assert found == [done, *asked[::-1]]
        assert "next_cursor" not in rest
        assert "cursor" in await call.refusal("sessions", cursor="last")
        assert "$.limit" in await call.refusal("sessions", limit=0)
        assert "$.states" in await call.refusal("sessions", states=["asleep"])


async def test_show_gives_what_a_session_waits_for_in_full_and_how_it_ended(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="twice", task="x" * 5000))["session_id"]
        shown = await call("show", session_id=session_id)
        assert (shown["state"], shown["phase"], shown["strategy"]) == ("paused", "paused", "twice")
        [pending] = shown["pending"]
        assert pending["prompt"] == "First: " + "x" * 5000
        assert (pending["query_id"], pending["system"], pending["max_tokens"]) == ("q-0", "Be brief.", 50)
        for response in ("a", "b"):
            await call("answer", session_id=session_id, response=response)
        shown = await call("show", session_id=session_id)
        assert (shown["state"], shown["phase"], shown["pending"]) == ("terminal", "completed", [])
        assert shown["outcome"]["result"] == {"first": "a", "second": "b"}
        assert "result" not in (await call("show", session_id=session_id, result=False))["outcome"]


async def test_show_gives_the_journal_page_by_page_without_the_code(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        code = "for i = 1, 150 do alc.log('info', 'line ' .. i) end return alc.llm('secret-of-the-code')"
        session_id = (await call("run", code=code))["session_id"]
        pages = [(await call("show", session_id=session_id, journal=True))["journal"]]
        while (after := pages[-1]["next"]) is not None:
            shown = await call("show", session_id=session_id, journal=True, journal_after=after)
            pages.append(shown["journal"])
        entries = [entry for page in pages for entry in page["entries"]]
        reach = await server.holdfast.store.position(session_id)
        assert len(pages) == 2
        assert [entry["position"] for entry in entries] == list(range(1, reach + 1))
        assert entries[0]["record"]["program"] == {"kind": "lua", "name": "code"}
        assert "journal" not in await call("show", session_id=session_id)


# --- cancel and fork ---------------------------------------------------------------------------------


async def test_a_session_is_cancelled_once_and_an_ended_one_stays_as_it_is(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="twice", task="tea?"))["session_id"]
        ended = await call("cancel", session_id=session_id, reason="enough")
        assert (ended["status"], ended["reason"], ended["by"]) == ("cancelled", "enough", "mcp")
        assert (await call("cancel", session_id=session_id, reason="enough"))["replayed"] is True
        assert "is cancelled" in await call.refusal("answer", session_id=session_id, response="late")
        done = (await call("run", code="return 1"))["session_id"]
        assert "has ended already (completed)" in await call.refusal("cancel", session_id=done)


async def test_a_fork_is_answered_differently_and_the_session_it_comes_from_is_not_changed(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="twice", task="tea?"))["session_id"]
        await call("answer", session_id=session_id, response="yes")
        journal = (await call("show", session_id=session_id, journal=True))["journal"]["entries"]
        first_pause = next(entry["position"] for entry in journal if entry["record"]["type"] == "paused")
        forked = await call("fork", session_id=session_id, at=first_pause)
        assert (forked["query_id"], forked["prompt"]) == ("q-0", "First: tea?")
        assert forked["session_id"] != session_id
        other = await call("answer", session_id=forked["session_id"], response="no")
        assert other["prompt"] == "Sure? no"
        assert (await call("show", session_id=session_id))["pending"][0]["prompt"] == "Sure? yes"
        whole = await call("fork", session_id=session_id)
        assert whole["prompt"] == "Sure? yes"
        assert "99" in await call.refusal("fork", session_id=session_id, at=99)
        assert "$.at" in await call.refusal("fork", session_id=session_id, at=0)


# --- strategies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_strategies_lists_what_can_be_run_with_what_it_is_for(server: McpServer, home: Path, era: str) -> None:
    (home / "packages" / "gone").symlink_to(home / "nowhere")
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        found = {each["name"]: each for each in (await call("strategies", limit=200))["strategies"]}
        assert found["twice"] == {
            "name": "twice",
            "kind": "lua",
            "description": "Asks twice, to be sure",
            "category": "verification",
            "version": "1.2.0",
        }
        assert found["computed"]["description"] == "Says it late"
        assert found["own-tools-panel"] == {
            "name": "own-tools-panel",
            "kind": "native",
            "description": "Asks three at once.",
        }
        assert not {"shelf", "gone"} & set(found)
        told = await call("strategies", search="TWICE sure")
        assert [each["name"] for each in told["strategies"]] == ["twice"]
        told = await call("strategies", search="verification")
        assert "twice" in [each["name"] for each in told["strategies"]]
        assert await call("strategies", search="zebra") == {"strategies": [], "total": 0}


async def test_strategies_come_a_page_at_a_time(server: McpServer) -> None:
    async with Client(server.server) as client:
        call = Tools(client)
        whole = await call("strategies", limit=200)
        names: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await call("strategies", limit=9, **cursor)
            names += [each["name"] for each in page["strategies"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert names == [each["name"] for each in whole["strategies"]] == sorted(names)
        assert len(names) == page["total"] > 2 * 9


async def test_packages_of_a_project_are_found_where_the_project_is_named(server: McpServer, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "mine" / "own").mkdir(parents=True)
    source = 'return { meta = { name = "own", description = "Ours" }, run = function(ctx) return "ours" end }'
    (project / "mine" / "own" / "init.lua").write_text(source)
    (project / "holdfast.toml").write_text('[packages]\nown = { path = "mine/own" }\n')
    async with Client(server.server) as client:
        call = Tools(client)
        assert (await call("strategies", search="ours"))["total"] == 0
        assert (await call("strategies", search="ours", project=str(project)))["strategies"][0]["name"] == "own"
        assert (await call("run", strategy="own", project=str(project)))["result"] == "ours"
        assert "own" in await call.refusal("run", strategy="own")
        for tool, more in (("strategies", {}), ("run", {"strategy": "twice"}), ("run", {"code": "return 1"})):
            refused = await call.refusal(tool, project=str(tmp_path / "nowhere"), **more)
            assert "`project`: there is no directory" in refused
