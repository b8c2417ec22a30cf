"""The prompts, and the completion of what is typed into them and into the URIs of resources."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from holdfast.alc.cards.tool import own_box
from holdfast.alc.lua.source import lua_code
from holdfast.alc.lua.stubs import render_stubs
from holdfast.core.records import Program
from holdfast.programs.api.python_stubs import render_python_stubs
from holdfast.serve.mcp.prompts import MAX_ARGUMENT_CHARS
from holdfast.serve.mcp.server import Family, McpServer, tools_of
from tests.serve.mcp_hosts import ERAS, Tools, error_of, home, install, read_text, served

__all__ = ["home"]

INVALID = -32602


@pytest.fixture
async def server(home: Path) -> AsyncIterator[McpServer]:
    async with served() as server:
        yield server


async def said(client: Client, prompt: str, **arguments: str) -> str:
    """The text of a prompt."""
    [first, *_] = (await client.get_prompt(prompt, arguments)).messages
    assert first.role == "user"
    assert isinstance(first.content, types.TextContent)
    return first.content.text


# --- prompts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_two_prompts_are_offered_with_their_arguments(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        found = (await client.list_prompts()).prompts
    arguments = {each.name: {a.name: a.required for a in each.arguments or []} for each in found}
    assert arguments == {
        "advice": {"task": True, "strategy": False},
        "new_strategy": {"name": True, "purpose": True, "language": False},
    }
    assert all(each.title and each.description for each in found)


@pytest.mark.parametrize("era", ERAS)
async def test_advice_sets_the_model_to_a_strategy_and_a_task(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        text = await said(client, "advice", strategy="twice", task="Is tea {good} for me?")
        assert "`twice` (Asks twice, to be sure)" in text
        assert text.endswith("Is tea {good} for me?")
        free = await said(client, "advice", task="Is tea good?")
        assert "`strategies`" in free


@pytest.mark.parametrize("family", ["holdfast", "alc", "all"])
async def test_prompts_and_instructions_speak_of_tools_that_are_there(home: Path, family: Family) -> None:
    there = {tool.name for tool in tools_of(family)}
    async with served(family) as server, Client(server.server, mode="legacy") as client:
        texts = [
            await said(client, "advice", task="t"),
            await said(client, "advice", task="t", strategy="twice"),
            *[
                await said(client, "new_strategy", name="mine", purpose="p", language=language)
                for language in ("lua", "python")
            ],
            client.instructions or "",
        ]
    every = {tool.name for each in ("holdfast", "alc") for tool in tools_of(each)}
    for text in texts:
        named = set(re.findall(r"`(\w+)`", text)) & every
        assert named, text
        assert named <= there


@pytest.mark.parametrize("era", ERAS)
async def test_new_strategy_leads_to_the_api_and_names_only_what_it_has(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        text = await said(client, "new_strategy", name="second_look", purpose="Look twice.", language="lua")
        assert "Look twice." in text
        assert 'name = "second_look"' in text
        used = set(re.findall(r"\balc\.(\w+)\(?", text)) - {"d"}
        assert {"llm", "llm_batch"} <= used
        stubs = render_stubs()
        assert all(f"function alc.{name}(" in stubs for name in used), used
        links = [
            message.content
            for message in (
                await client.get_prompt("new_strategy", {"name": "x", "purpose": "y", "language": "lua"})
            ).messages
            if isinstance(message.content, types.ResourceLink)
        ]
        assert await read_text(client, links[0].uri) == stubs


@pytest.mark.parametrize("era", ERAS)
async def test_new_strategy_in_python_leads_to_the_api_and_names_only_what_it_has(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        messages = (await client.get_prompt("new_strategy", {"name": "second_look", "purpose": "Look."})).messages
        text, link = (message.content for message in messages)
        assert isinstance(text, types.TextContent)
        assert isinstance(link, types.ResourceLink)
        stubs = render_python_stubs()
        assert await read_text(client, link.uri) == stubs
        used = set(re.findall(r"\b(llm\w*|json_extract|parse_\w+|match_\w+|parameters)\b(?!:)", text.text))
        assert {"llm", "llm_batch", "llm_async", "json_extract", "parameters"} <= used
        assert all(f"def {name}(" in stubs for name in used), used


async def test_the_language_of_a_new_strategy_is_that_of_the_tools_unless_it_is_said(home: Path) -> None:
    for family, fence in (("holdfast", "```py"), ("all", "```py"), ("alc", "```lua")):
        async with served(family) as server, Client(server.server) as client:  # type: ignore[arg-type]
            assert fence in await said(client, "new_strategy", name="mine", purpose="p")
            assert (await completed(client, "new_strategy", "language", "")).values == ["lua", "python"]


async def test_the_python_skeleton_runs_once_its_gaps_are_filled(server: McpServer) -> None:
    async with Client(server.server) as client:
        text = await said(client, "new_strategy", name="second_look", purpose="Look twice.")
        [code] = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
        call = Tools(client)
        asked = await call("run", code=code.replace("…", "Look twice."), language="python", task="look")
        assert asked["prompt"] == "Look twice.\n\nTask:\nlook"
        ended = await call("answer", session_id=asked["session_id"], response=" seen ")
    assert ended["result"] == {"task": "look", "result": "seen"}


async def test_the_skeleton_of_a_new_strategy_runs_once_its_gaps_are_filled(server: McpServer) -> None:
    async with Client(server.server) as client:
        text = await said(client, "new_strategy", name="second_look", purpose="Look twice.", language="lua")
        [code] = re.findall(r"```lua\n(.*?)```", text, re.DOTALL)
        call = Tools(client)
        filled = code.replace("answer = …", "answer = alc.llm(task)")
        asked = await call("run", code=filled, task="look")
        ended = await call("answer", session_id=asked["session_id"], response="seen")
    assert ended["result"]["result"] == {"answer": "seen"}


REFUSED = [
    ("nobody", {}, "there is no prompt"),
    ("advice", {}, "`task` is missing"),
    ("advice", {"task": "  "}, "`task` is missing"),
    ("advice", {"task": "t", "strategy": "nobody"}, "there is no strategy"),
    ("advice", {"task": "t", "strategy": "shelf"}, "there is no strategy"),
    ("advice", {"task": "t", "strategy": "../twice"}, "there is no strategy"),
    ("advice", {"task": "t", "colour": "red"}, 'no argument "colour"'),
    ("advice", {"task": "t" * (MAX_ARGUMENT_CHARS + 1)}, "characters"),
    ("new_strategy", {"name": "mine"}, "`purpose` is missing"),
    ("new_strategy", {"name": "Mine!", "purpose": "p"}, "cannot be the name"),
    ("new_strategy", {"name": "string", "purpose": "p"}, "cannot be the name"),
    ("new_strategy", {"name": "lambda", "purpose": "p"}, "cannot be the name"),
    ("new_strategy", {"name": "mine", "purpose": "p", "language": "cobol"}, "(there are: lua, python)"),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("prompt", "arguments", "why"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
async def test_arguments_that_make_no_prompt_are_refused(
    server: McpServer, era: str, prompt: str, arguments: dict[str, str], why: str
) -> None:
    async with Client(server.server, mode=era) as client:
        error = await error_of(client.get_prompt(prompt, arguments))
    assert error.code == INVALID
    assert why in error.message
    assert len(error.message) < 500


# --- completion --------------------------------------------------------------------------------------


async def completed(client: Client, ref: str, argument: str, typed: str) -> types.Completion:
    """What is offered for an argument of a prompt, or a hole in the template of a URI."""
    reference = types.ResourceTemplateReference(uri=ref) if "://" in ref else types.PromptReference(name=ref)
    return (await client.complete(reference, {"name": argument, "value": typed})).completion


@pytest.mark.parametrize("era", ERAS)
async def test_names_of_strategies_are_completed_where_one_is_typed(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        for ref, argument in (("advice", "strategy"), ("holdfast://strategies/{name}", "name")):
            assert "twice" in (await completed(client, ref, argument, "tw")).values
            assert (await completed(client, ref, argument, "comput")).values == ["computed"]
            assert (await completed(client, ref, argument, "she")).values == [], "a library is no strategy"
            every = await completed(client, ref, argument, "")
            assert "cot" in every.values
            assert every.values == sorted(every.values)
            # Strategies that other tests have registered in this process count too, and a hundred are shown.
            assert every.has_more == (every.total != len(every.values))
        code = "holdfast://strategies/{name}/strategy.py"
        assert (await completed(client, code, "name", "tw")).values == []
        assert "cot" in (await completed(client, code, "name", "co")).values
        for part in ("init.lua", "meta"):
            assert (await completed(client, f"alc://packages/{{name}}/{part}", "name", "she")).values == ["shelf"]


@pytest.mark.parametrize("era", ERAS)
async def test_ids_of_sessions_are_completed_at_most_a_hundred_and_sorted(server: McpServer, era: str) -> None:
    holdfast, program = server.holdfast, _quick()
    for number in range(103):
        await holdfast.start(program, id=f"run-{number:03}")
    await holdfast.start(lua_code("return alc.llm('?')"), id="run-000-waits")
    async with Client(server.server, mode=era) as client:
        for template in (
            "holdfast://sessions/{session_id}",
            "holdfast://sessions/{session_id}/journal{?from,limit}",
            "alc://logs/{session_id}",
        ):
            some = await completed(client, template, "session_id", "run-000")
            assert some.values == ["run-000", "run-000-waits"]
            assert (some.total, some.has_more) == (2, False)
        many = await completed(client, "holdfast://sessions/{session_id}", "session_id", "run-")
        assert len(many.values) == 100
        assert many.values == sorted(many.values)
        assert "run-102" in many.values, "the newest are kept"
        assert (many.total, many.has_more) == (None, True)
        assert (await completed(client, "alc://eval/{result_id}", "result_id", "run-000")).values == ["run-000"]


def _quick() -> Program:
    return lua_code("return 1")


async def test_strategies_past_a_hundred_are_counted_and_cut(server: McpServer, home: Path) -> None:
    source = "return { meta = {}, run = function() end }"
    install(home / "packages", {f"many_{number:03}": source for number in range(120)})
    async with Client(server.server) as client:
        found = await completed(client, "advice", "strategy", "many_")
    assert found.values == [f"many_{number:03}" for number in range(100)]
    assert (found.total, found.has_more) == (120, True)


async def test_cards_and_scenarios_are_completed_too(server: McpServer, home: Path) -> None:
    card = own_box().create({"pkg": {"name": "twice"}, "card_id": "twice-1"}, now=1_700_000_000.0)
    (home / "scenarios").mkdir()
    (home / "scenarios" / "sums.lua").write_text("return {}")
    async with Client(server.server) as client:
        assert (await completed(client, "alc://cards/{card_id}", "card_id", "tw")).values == [card["card_id"]]
        samples = await completed(client, "alc://cards/{card_id}/samples{?offset,limit}", "card_id", "x")
        assert samples.values == []
        assert (await completed(client, "alc://scenarios/{name}", "name", "s")).values == ["sums"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_cannot_be_completed_gives_nothing_and_what_is_not_there_is_refused(
    server: McpServer, era: str
) -> None:
    async with Client(server.server, mode=era) as client:
        for ref, argument, typed in (
            ("advice", "task", "x"),
            ("advice", "colour", ""),
            ("new_strategy", "name", "t"),
            ("holdfast://sessions/{session_id}", "colour", ""),
            ("holdfast://sessions/{session_id}", "session_id", "../%00'; DROP TABLE sessions;--"),
            ("holdfast://sessions/{session_id}", "session_id", "s-" * 5000),
            ("alc://cards/{card_id}", "card_id", "../"),
        ):
            assert (await completed(client, ref, argument, typed)).values == []
        for ref in ("nobody", "holdfast://nobody/{session_id}", "holdfast://strategies"):
            assert (await error_of(completed(client, ref, "name", ""))).code == INVALID
