"""What a host can read, through the official client in both eras: resources, their limits, and hostile URIs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from holdfast.alc.cards.tool import own_box
from holdfast.alc.lua.stubs import render_stubs
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.serve.mcp.journal import MAX_PAGE_BYTES
from holdfast.serve.mcp.server import McpServer
from tests.serve.mcp_hosts import ERAS, TWICE, Tools, error_of, home, install, read_json, read_text, served

__all__ = ["home"]

INVALID = -32602
NOT_FOUND = {"legacy": -32002, "2026-07-28": -32602}

FIXED = {
    "holdfast://types/alc.d.lua": "text/x-lua",
    "alc://hub/index": "application/json",
    "alc://types/alc.d.lua": "text/x-lua",
    "holdfast://types/__builtins__.pyi": "text/x-python",
    "holdfast://strategies": "application/json",
}
TEMPLATES = {
    "holdfast://strategies/{name}": "application/json",
    "holdfast://strategies/{name}/strategy.py": "text/x-python",
    "holdfast://sessions/{session_id}": "application/json",
    "holdfast://sessions/{session_id}/journal{?from,limit}": "application/json",
    "alc://packages/{name}/init.lua": "text/x-lua",
    "alc://packages/{name}/narrative": "text/markdown",
    "alc://packages/{name}/meta": "application/json",
    "alc://cards/{card_id}": "application/json",
    "alc://cards/{card_id}/samples{?offset,limit}": "application/json",
    "alc://scenarios/{name}": "text/x-lua",
    "alc://eval/{result_id}": "application/json",
    "alc://logs/{session_id}{?limit,max_chars}": "application/json",
}


@strategy(name="resources-native")
async def native(ctx: Context) -> Any:
    """Written in Python.

    With a second paragraph.
    """
    return await ctx.llm("hello?")


@pytest.fixture
async def server(home: Path) -> AsyncIterator[McpServer]:
    async with served() as server:
        yield server


@pytest.fixture(params=ERAS)
async def era(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


# --- what there is -----------------------------------------------------------------------------------


async def test_what_can_be_read_is_listed_with_its_type(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        for each in listed:
            [content] = (await client.read_resource(each.uri)).contents
            assert content.mime_type == each.mime_type
    assert {each.uri: each.mime_type for each in listed} == FIXED
    assert {each.uri_template: each.mime_type for each in templates} == TEMPLATES
    assert all(each.title and each.description for each in listed)
    assert all(each.title and each.description for each in templates)
    names = [each.name for each in (*listed, *templates)]
    assert len(set(names)) == len(names) - 1, "only the two URIs of the same stubs share a name"


async def test_the_api_is_described_under_both_schemes(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        for scheme in ("alc", "holdfast"):
            assert await read_text(client, f"{scheme}://types/alc.d.lua") == render_stubs()


async def test_stubs_of_shapes_are_there_once_their_package_is(server: McpServer, home: Path) -> None:
    uri = "alc://types/alc_shapes.d.lua"
    async with Client(server.server, mode="legacy") as client:
        assert (await error_of(client.read_resource(uri))).code == NOT_FOUND["legacy"]
        install(home / "packages", {"alc_shapes": "return {}"})
        (home / "packages" / "alc_shapes" / "alc_shapes.d.lua").write_text("---@meta\n")
        assert await read_text(client, uri) == "---@meta\n"
        assert uri in [each.uri for each in (await client.list_resources()).resources]


async def test_a_package_of_shapes_without_stubs_writes_them_itself(server: McpServer, home: Path) -> None:
    shapes = home / "packages" / "alc_shapes"
    install(home / "packages", {"alc_shapes": "return { voted = 'a shape' }"})
    (shapes / "luacats.lua").write_text("return { gen = function(all) return '---@meta ' .. all.voted end }")
    async with Client(server.server, mode="legacy") as client:
        assert await read_text(client, "alc://types/alc_shapes.d.lua") == "---@meta a shape"


# --- packages and scenarios --------------------------------------------------------------------------


async def test_a_package_gives_its_code_and_what_it_says_of_itself(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        assert await read_text(client, "alc://packages/twice/init.lua") == TWICE
        meta = await read_json(client, "alc://packages/twice/meta")
        assert (meta["name"], meta["version"], meta["category"]) == ("twice", "1.2.0", "verification")
        computed = await read_json(client, "alc://packages/computed/meta")
        assert computed["description"] == "Says it late"


async def test_a_scenario_is_given_as_the_lua_it_is(server: McpServer, home: Path, era: str) -> None:
    source = 'return { cases = { { input = "2+2?", expected = "4" } } }\n'
    (home / "scenarios").mkdir(parents=True)
    (home / "scenarios" / "sums_1.lua").write_text(source)
    async with Client(server.server, mode=era) as client:
        [content] = (await client.read_resource("alc://scenarios/sums_1")).contents
        assert content.mime_type == "text/x-lua"
        assert await read_text(client, "alc://scenarios/sums_1") == source


# --- cards -------------------------------------------------------------------------------------------


async def test_a_card_and_its_samples_are_read_a_page_at_a_time(server: McpServer, era: str) -> None:
    box = own_box()
    card_id = str(box.create({"pkg": {"name": "twice"}, "stats": {"pass_rate": 0.5}}, now=1_700_000_000.0)["card_id"])
    box.write_samples(card_id, [{"case": number} for number in range(250)])
    async with Client(server.server, mode=era) as client:
        card = await read_json(client, f"alc://cards/{card_id}")
        assert (card["card_id"], card["stats"]) == (card_id, {"pass_rate": 0.5})
        samples = f"alc://cards/{card_id}/samples"
        assert [row["case"] for row in await read_json(client, samples)] == list(range(100))
        assert [row["case"] for row in await read_json(client, f"{samples}?offset=245&limit=10")] == list(
            range(245, 250)
        )
        assert await read_json(client, f"{samples}?limit=0") == []
        assert len(await read_json(client, f"{samples}?limit=10000")) == 250
        assert await read_json(client, f"{samples}?offset=10000000") == []
        for over, most in (("limit=10001", 10_000), ("offset=10000001", 10_000_000)):
            error = await error_of(client.read_resource(f"{samples}?{over}"))
            assert error.code == INVALID
            assert f"must be at most {most}" in error.message


async def test_a_damaged_card_is_told_and_not_taken_for_a_missing_one(server: McpServer, home: Path) -> None:
    (home / "cards" / "twice").mkdir(parents=True)
    (home / "cards" / "twice" / "bad.toml").write_text("= not toml")
    async with Client(server.server, mode="legacy") as client:
        error = await error_of(client.read_resource("alc://cards/bad"))
        assert error.code == -32603
        assert "it is not TOML" in error.message


# --- sessions ----------------------------------------------------------------------------------------


async def test_a_session_and_its_journal_are_read_from_any_position(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        session_id = (await call("run", strategy="twice", task="tea?"))["session_id"]
        await call("answer", session_id=session_id, response="yes")
        own = f"holdfast://sessions/{session_id}"
        shown = await read_json(client, own)
        assert (shown["phase"], shown["pending"][0]["prompt"]) == ("paused", "Sure? yes")
        whole = await read_json(client, f"{own}/journal")
        assert [entry["record"]["type"] for entry in whole["entries"]] == ["started", "paused", "answered", "paused"]
        assert whole["next"] is None
        assert "source" in whole["entries"][0]["record"]["program"]
        middle = await read_json(client, f"{own}/journal?from=1&limit=2")
        assert [entry["position"] for entry in middle["entries"]] == [2, 3]
        assert middle["next"] == 3
        assert (await read_json(client, f"{own}/journal?from=99"))["entries"] == []
        assert (await error_of(client.read_resource(f"{own}/journal?limit=1001"))).code == INVALID


async def test_a_page_of_a_journal_ends_before_it_is_too_long_to_read(server: McpServer) -> None:
    async with Client(server.server) as client:
        code = "for i = 1, 10 do alc.log('info', string.rep('x', ctx.size)) end return 1"
        told = await Tools(client)("run", code=code, ctx={"size": MAX_PAGE_BYTES // 4})
        own = f"holdfast://sessions/{told['session_id']}/journal"
        pages = [await read_text(client, own)]
        while (after := json.loads(pages[-1])["next"]) is not None:
            pages.append(await read_text(client, f"{own}?from={after}"))
        assert len(pages) > 2
        assert max(map(len, pages)) < 2 * MAX_PAGE_BYTES
        positions = [entry["position"] for page in pages for entry in json.loads(page)["entries"]]
        assert positions == list(range(1, await server.holdfast.store.position(told["session_id"]) + 1))


async def test_a_log_has_the_last_exchanges_within_its_limits(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        told = await call("run", code="for i = 1, 6 do alc.llm('question ' .. i) end return 'done'")
        session_id = told["session_id"]
        for number in range(6):
            await call("answer", session_id=session_id, response=f"answer {number + 1} " + "x" * 1000)
        log = await read_json(client, f"alc://logs/{session_id}")
        assert [each["prompt"] for each in log["transcript"]] == [f"question {n}" for n in range(1, 7)]
        assert (log["status"], log["result"], log["stats"]["llm_calls"]) == ("completed", "done", 6)
        last = await read_json(client, f"alc://logs/{session_id}?limit=2")
        assert [each["prompt"] for each in last["transcript"]] == ["question 5", "question 6"]
        assert (last["truncated"], last["original_rounds"], last["returned_rounds"]) == (True, 6, 2)
        short = await read_text(client, f"alc://logs/{session_id}?max_chars=4000")
        assert len(short) <= 4000
        assert json.loads(short)["transcript"][-1]["prompt"] == "question 6"
        for over in ("limit=10001", "max_chars=1000001"):
            assert (await error_of(client.read_resource(f"alc://logs/{session_id}?{over}"))).code == INVALID


async def test_the_report_of_an_evaluation_is_found_by_its_session(server: McpServer, era: str) -> None:
    code = 'return alc.eval({ cases = { { input = "2", expected = "2" } } }, function(ctx) return ctx.task end)'
    async with Client(server.server, mode=era) as client:
        call = Tools(client)
        evaluated = await call("run", code=code)
        report = await read_json(client, f"alc://eval/{evaluated['session_id']}")
        assert report == evaluated["result"]
        assert report["aggregated"]["passed"] == 1
        other = await call("run", code="return { aggregated = 1 }")
        error = await error_of(client.read_resource(f"alc://eval/{other['session_id']}"))
        assert error.code == NOT_FOUND[era]
        assert "the report of an evaluation" in error.message


async def test_strategies_are_read_in_a_list_and_one_by_one(server: McpServer, era: str) -> None:
    async with Client(server.server, mode=era) as client:
        listed = (await read_json(client, "holdfast://strategies"))["strategies"]
        assert {"twice", "computed", "resources-native"} <= {each["name"] for each in listed}
        twice = await read_json(client, "holdfast://strategies/twice")
        assert (twice["kind"], twice["text"]) == ("lua", "twice: asks, and asks again.")
        assert twice["meta"]["category"] == "verification"
        ours = await read_json(client, "holdfast://strategies/resources-native")
        assert (ours["kind"], ours["description"]) == ("native", "Written in Python.")
        assert "second paragraph" in ours["text"]


# --- what is not there -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "alc://packages/nobody/init.lua",
        "alc://packages/nobody/meta",
        "alc://packages/twice",
        "alc://packages/twice/init.lua/more",
        "alc://cards/nobody",
        "alc://cards/nobody/samples",
        "alc://scenarios/nobody",
        "alc://eval/nobody_1700000000",
        "alc://logs/s-nobody",
        "alc://types/nobody.d.lua",
        "alc://types/alc_shapes.d.lua",
        "holdfast://sessions/s-nobody",
        "holdfast://sessions/s-nobody/journal",
        "holdfast://strategies/nobody",
        "holdfast://strategies/shelf",
        "holdfast://strategies/nobody/strategy.py",
        "holdfast://strategies/twice/strategy.py",
        "ALC://types/alc.d.lua",
        "file:///etc/passwd",
        "https://example.org/",
    ],
)
async def test_what_is_not_there_is_not_found_in_the_words_of_the_revision(
    server: McpServer, era: str, uri: str
) -> None:
    async with Client(server.server, mode=era) as client:
        error = await error_of(client.read_resource(uri))
    assert error.code == NOT_FOUND[era]
    assert error.data == {"uri": uri}
    assert "not found" in error.message


HOSTILE = [
    "",
    "alc:",
    "alc://",
    "alc:///",
    "alc://packages//init.lua",
    "alc://packages/../init.lua",
    "alc://packages/./init.lua",
    "alc://packages/../../secret/init.lua",
    "alc://packages/..%2f..%2fsecret/init.lua",
    "alc://packages/%2e%2e/init.lua",
    "alc://packages/..\\..\\secret/init.lua",
    "alc://packages/twice\x00/init.lua",
    "alc://packages/twice\n/init.lua",
    "alc://packages/a b/init.lua",
    "alc://packages/twice@1.2.0/init.lua",
    "alc://packages/-rf/init.lua",
    "alc://packages/twice/init.lua?limit=1",
    "alc://packages/twice/init.lua#top",
    "alc://cards/a&b",
    "alc://cards/a=b",
    "alc://cards/_aliases.toml",
    "alc://cards/a/samples?",
    "alc://cards/a/samples?limit",
    "alc://cards/a/samples?limit=",
    "alc://cards/a/samples?limit=-1",
    "alc://cards/a/samples?limit=1.5",
    "alc://cards/a/samples?limit=0x10",
    "alc://cards/a/samples?limit=٣",
    "alc://cards/a/samples?limit=1&limit=2",
    "alc://cards/a/samples?offset=1&colour=red",
    "alc://cards/a/samples?limit=1?offset=1",
    "alc://cards/a/samples?limit=" + "9" * 30,
    "alc://scenarios/.hidden",
    "alc://scenarios/../../secret",
    "alc://logs/s-1?max_chars=1e3",
    "holdfast://sessions/../x",
    "holdfast://sessions/" + "s" * 201,
    "holdfast://sessions/-x",
    "holdfast://sessions/s-1/journal?from=-1",
    "holdfast://sessions/s-1?from=1",
    "holdfast://strategies/a/../b",
    "alc://cards/" + "x" * 5000,
]


@pytest.mark.parametrize("uri", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
async def test_a_uri_that_plays_tricks_is_refused_and_shows_nothing(
    server: McpServer, home: Path, era: str, uri: str
) -> None:
    for place in (home, home / "packages", home.parent):
        install(place, {"secret": "-- the secret"})
        (place / "secret.lua").write_text("-- the secret")
    async with Client(server.server, mode=era) as client:
        error = await error_of(client.read_resource(uri))
    assert error.code == INVALID
    assert "the secret" not in error.message
    assert len(error.message) < 500
