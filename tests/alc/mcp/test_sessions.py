"""Sessions by algocline's tools: its shapes, its texts, and what it gets wrong done right."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.serve.calls import ERAS, Host, host_of

ASKS = "return alc.llm('hi', {system = 'be brief', max_tokens = 9, temperature = 0.5})"
TWICE = "return alc.llm('one') .. alc.llm('two')"
BATCH = "local got = alc.llm_batch({{prompt = 'a'}, {prompt = 'b'}}) return table.concat(got, '+')"


@pytest.fixture
async def holdfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@pytest.fixture(params=ERAS)
async def host(holdfast: Holdfast, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    (tmp_path / "work").mkdir()
    async with host_of(holdfast, EXTENSION.tools, request.param, [tmp_path / "work"]) as opened:
        yield opened


async def test_a_run_asks_and_is_answered_to_its_end(host: Host) -> None:
    asked = await host.call("alc_run", code=ASKS)
    session_id = asked.pop("session_id")
    assert asked == {
        "status": "needs_response",
        "query_id": "q-0",
        "prompt": "hi",
        "system": "be brief",
        "max_tokens": 9,
        "options": {"temperature": 0.5},
    }
    told = await host.call("alc_continue", session_id=session_id, response="hello")
    assert (told["status"], told["result"]) == ("completed", "hello")
    assert told["stats"]["auto"]["llm_calls"] == 1


async def test_a_batch_is_asked_at_once_and_answered_in_parts(host: Host) -> None:
    asked = await host.call("alc_run", code=BATCH)
    assert [query["id"] for query in asked["queries"]] == ["q-0", "q-1"]
    told = await host.call("alc_continue", session_id=asked["session_id"], response="x", query_id="q-1")
    assert (told["status"], told["remaining"]) == ("accepted", 1)
    told = await host.call(
        "alc_continue", session_id=asked["session_id"], responses=[{"query_id": "q-0", "response": "y"}]
    )
    assert told["result"] == "y+x"


async def test_the_same_answer_twice_does_not_answer_the_next_question(host: Host) -> None:
    asked = await host.call("alc_run", code=TWICE)
    for _ in range(2):
        told = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-0", response="a")
        assert told["prompt"] == "two"
    why = await host.refusal("alc_continue", session_id=asked["session_id"], query_id="q-0", response="other")
    assert why.startswith("Continue failed: already responded to query_id: q-0")


async def test_code_and_code_file_exclude_each_other_and_one_is_needed(host: Host) -> None:
    both = await host.refusal("alc_run", code="return 1", code_file="/tmp/x.lua")
    assert both == "Provide either `code` or `code_file`, not both."
    assert await host.refusal("alc_run") == "Either `code` or `code_file` must be provided."


async def test_code_of_a_file_is_run(host: Host, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "code.lua").write_text("return ctx.n + 1")
    assert (await host.call("alc_run", code_file=str(work / "code.lua"), ctx={"n": 1}))["result"] == 2
    assert "cannot be read" in await host.refusal("alc_run", code_file=str(work / "missing.lua"))


@pytest.mark.parametrize("way", ["straight", "dots", "link to it", "link to its directory", "a name that begins alike"])
async def test_no_file_is_read_that_the_operator_has_not_allowed(
    holdfast: Holdfast, host: Host, tmp_path: Path, way: str
) -> None:
    """What is run is recorded, and a host could read it there."""
    work, other = tmp_path / "work", tmp_path / "workshop"
    other.mkdir()
    (other / "secret").write_text("return 'hunter2'")
    (work / "link").symlink_to(other / "secret")
    (work / "folder").symlink_to(other)
    given = {
        "straight": other / "secret",
        "dots": work / ".." / "workshop" / "secret",
        "link to it": work / "link",
        "link to its directory": work / "folder" / "secret",
        "a name that begins alike": Path(f"{work}shop/secret"),
    }[way]
    for project in ({}, {"project_root": str(other)}):
        why = await host.refusal("alc_run", code_file=str(given), **project)
        assert "--code-dir" in why
        assert "hunter2" not in why
    assert (await holdfast.sessions()).rows == []


async def test_a_ctx_that_was_sent_as_text_is_read(host: Host) -> None:
    assert (await host.call("alc_run", code="return ctx.n", ctx=json.dumps({"n": 7})))["result"] == 7


async def test_an_error_of_the_code_is_a_result_with_figures(host: Host) -> None:
    told = await host.call("alc_run", code="error('boom')")
    assert (told["status"], told["stats"]["auto"]["llm_calls"]) == ("error", 0)
    assert "boom" in told["error"]


async def test_answers_that_cannot_be_taken_change_nothing(host: Host) -> None:
    session_id = (await host.call("alc_run", code=BATCH))["session_id"]
    refusals = [
        ({"session_id": "s-none", "response": "x"}, "Continue failed: session 's-none' not found"),
        (
            {"session_id": session_id, "response": "x"},
            "Continue failed: 2 queries pending; specify query_id explicitly",
        ),
        ({"session_id": session_id, "response": "x", "query_id": "q-9"}, "Continue failed: unknown query_id: q-9"),
        ({"session_id": session_id, "responses": []}, "Empty responses array"),
        ({"session_id": session_id, "responses": [{"query_id": "q-0"}]}, "Continue failed: the response to q-0 is"),
        ({"session_id": session_id}, "Either 'response' or 'responses' must be provided"),
        ({"session_id": session_id, "responses": [{"query_id": "q-0", "response": "x"}] * 2}, "Continue failed: "),
        (
            {
                "session_id": session_id,
                "responses": [{"query_id": "q-0", "response": "x"}, {"query_id": "q-9", "response": "y"}],
            },
            "Continue failed: unknown query_id: q-9",
        ),
    ]
    for arguments, why in refusals:
        assert (await host.refusal("alc_continue", **arguments)).startswith(why)
    status = await host.call("alc_status", session_id=session_id, pending_filter="meta")
    assert [query["query_id"] for query in status["pending"]] == ["q-0", "q-1"]


async def test_the_host_can_say_that_there_is_no_answer(host: Host) -> None:
    code = "local ok, why = pcall(alc.llm, 'x') return {ok, why}"
    session_id = (await host.call("alc_run", code=code))["session_id"]
    told = await host.call("alc_continue", session_id=session_id, error="the model refused")
    assert told["result"] == [False, "the model refused"]


async def test_arguments_of_other_releases_are_passed_over_and_named(host: Host) -> None:
    told = await host.call("alc_run", code="return 1", host_mode="auto", zeal=3)
    assert (told["status"], told["ignored_arguments"]) == ("completed", ["host_mode", "zeal"])


async def test_the_role_of_a_query_stands_beside_its_prompt(host: Host) -> None:
    asked = await host.call("alc_run", code="return alc.llm('hi', { role = 'judge', cache_breakpoint = true })")
    assert (asked["role"], asked["cache_breakpoint"]) == ("judge", True)
    status = await host.call("alc_status", session_id=asked["session_id"], pending_filter="preview")
    assert status["pending"][0]["role"] == "judge"


async def test_the_environment_says_how_long_previews_are(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = (await host.call("alc_run", code="return alc.llm('a long question')"))["session_id"]
    monkeypatch.setenv("ALC_PROMPT_PREVIEW_CHARS", "6")
    status = await host.call("alc_status", session_id=session_id, pending_filter="preview")
    assert status["pending"][0]["prompt_preview"] == "a long"


async def test_the_status_of_all_and_of_one(host: Host) -> None:
    assert await host.call("alc_status") == {"active_sessions": 0, "sessions": []}
    assert (await host.refusal("alc_status", pending_filter="all")).startswith("unknown pending_filter preset 'all'")
    session_id = (await host.call("alc_run", code=ASKS))["session_id"]
    listed = await host.call("alc_status")
    assert [each["session_id"] for each in listed["sessions"]] == [session_id]
    shown = await host.call("alc_status", session_id=session_id, pending_filter="preview", include_history=True)
    assert shown["pending"][0]["prompt_preview"] == "hi"
    assert shown["metrics"]["conversation_history"]
    assert await host.refusal("alc_status", session_id="s-x") == "session 's-x' not found (may have completed)"
    why = 'unknown pending_filter preset \'all\' (valid: "meta" | "preview" | "full")'
    assert await host.refusal("alc_status", session_id=session_id, pending_filter="all") == why


async def test_a_run_can_be_cancelled_and_found_afterwards(host: Host) -> None:
    session_id = (await host.call("alc_run", code=ASKS))["session_id"]
    assert (await host.call("alc_cancel", session_id=session_id, reason="enough"))["status"] == "cancelled"
    assert (await host.call("alc_status", session_id=session_id))["phase"] == "cancelled"


async def test_advice_runs_a_package_by_its_name_and_nothing_else(host: Host, tmp_path: Path) -> None:
    package = tmp_path / "home" / "packages" / "greets_in_lua"
    package.mkdir(parents=True)
    (package / "init.lua").write_text("return { run = function(ctx) return ctx.greeting .. ' ' .. ctx.task end }")
    told = await host.call("alc_advice", strategy="greets_in_lua", task="you", opts={"greeting": "hello", "task": "me"})
    assert told["result"] == "hello you"
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'reached')!r}, 'w')\nasync def run(ctx): ...\n")
    for name in (f"{tmp_path}/evil.py:run", "os:system", "../greets_in_lua", "greets_in_lua/../x"):
        assert "is not a name" in await host.refusal("alc_advice", strategy=name, task="x")
    assert not (tmp_path / "reached").exists()
    assert "no such package" in await host.refusal("alc_advice", strategy="missing", task="x")


@pytest.mark.parametrize(
    "arguments",
    [{"code": 1}, {"code": "return 1", "project_root": "/no/such/place"}],
)
async def test_a_call_with_wrong_arguments_starts_nothing(host: Host, arguments: dict[str, object]) -> None:
    await host.refusal("alc_run", **arguments)
    assert (await host.call("alc_status"))["active_sessions"] == 0


async def test_a_large_ctx_is_taken(host: Host) -> None:
    text = "x" * (10 * 1024 * 1024)
    assert (await host.call("alc_run", code="return #ctx.text", ctx={"text": text}))["result"] == len(text)
