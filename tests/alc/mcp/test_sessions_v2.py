"""Runs in the background by algocline's later tools: what each state looks like, answers, cancellations, bad calls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.mcp.sessions_v2 import TOOLS
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import HANG_S
from tests.serve.calls import ERAS, Host, Told, host_of

ASKS = "return alc.llm('hi')"
ASKS_TWICE_AT_ONCE = "local got = alc.llm_batch({{prompt='a'},{prompt='b', system='s'}}) return table.concat(got, '+')"
RUNS_ON = "local t = alc.llm('go') local x = 0 for i = 1, 1e9 do x = x + i end return x"


@pytest.fixture
async def holdfast(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast) -> AsyncIterator[Host]:
    async with host_of(holdfast, TOOLS) as opened:
        yield opened


async def until(host: Host, session_id: str, *states: str) -> Told:
    """The state of a run, once it is one of these."""
    async with asyncio.timeout(HANG_S):
        while True:
            told: Told = await host.call("alc_v2_state", session_id=session_id)
            if told["state"] in states:
                return told
            await asyncio.sleep(0.02)


async def paused(host: Host, code: str, **arguments: Any) -> str:
    """The id of a run that has come to its first question."""
    session_id: str = (await host.call("alc_v2_run", code=code, **arguments))["session_id"]
    await until(host, session_id, "paused")
    return session_id


async def position(holdfast: Holdfast, session_id: str) -> int:
    return await holdfast.store.position(session_id)


def answer(query_id: str, response: Any, **more: Any) -> Told:
    return {"payload_kind": "single", "query_id": query_id, "response": response, **more}


@pytest.mark.parametrize("era", ERAS)
async def test_a_run_goes_from_its_start_through_its_question_to_its_result(holdfast: Holdfast, era: str) -> None:
    async with host_of(holdfast, TOOLS, era) as host:
        before = int(time.time() * 1000) - 1000
        started = await host.call("alc_v2_run", code="return ctx.word .. alc.llm('hi')", ctx={"word": "oh "})
        session_id = started["session_id"]
        told = await until(host, session_id, "paused")
        assert told["kind"] == "single"
        [prompt] = told["prompts"]
        assert (prompt["query_id"], prompt["prompt"], prompt["max_tokens"]) == ("q-0", "hi", 1024)
        assert before < told["paused_at"]
        resumed = await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "well"))
        assert resumed["outcome"] in ("continued", "terminal")
        done = await until(host, session_id, "done")
        assert done["value"] == "oh well"
        assert done["usage"]["completion_tokens"] > 0
        assert done["finished_at"] >= told["paused_at"]
        assert done["stats"]["auto"]["llm_calls"] == 1
        assert await host.call("alc_v2_cancel", session_id=session_id) == done


async def test_a_start_does_not_wait_for_a_program_that_takes_long(host: Host) -> None:
    code = "local x = 0 for i = 1, 6e7 do x = x + i end return x"
    told = await host.call("alc_v2_run", code=code)
    assert told["state"] == "running"
    assert (await until(host, told["session_id"], "done"))["value"] == 1800000030000000


async def test_a_program_that_does_not_ask_has_no_usage(host: Host) -> None:
    told = await host.call("alc_v2_run", code="return {1, 2}")
    done = await until(host, told["session_id"], "done")
    assert (done["value"], done["usage"]) == ([1, 2], None)


async def test_ctx_as_text_is_read_as_the_json_that_it_is(host: Host) -> None:
    told = await host.call("alc_v2_run", code="return ctx.a", ctx=json.dumps({"a": 7}))
    assert (await until(host, told["session_id"], "done"))["value"] == 7


async def test_an_answer_that_ends_the_run_says_how_it_ended(host: Host) -> None:
    session_id = await paused(host, ASKS)
    async with asyncio.timeout(HANG_S):
        while True:  # a loaded machine may take long enough for the answer to be told before the end
            told = await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "done"))
            if told["outcome"] == "terminal":
                break
    assert (told["terminal"], told["value"], told["session_id"]) == ("done", "done", session_id)
    assert "state" not in told


async def test_an_answer_that_does_not_end_the_run_shows_the_next_question(host: Host) -> None:
    session_id = await paused(host, "return alc.llm('one') .. alc.llm('two')")
    told = await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    assert told["outcome"] == "continued"
    assert told["next"]["state"] in ("running", "paused")
    [prompt] = (await until(host, session_id, "paused"))["prompts"]
    assert (prompt["query_id"], prompt["prompt"]) == ("q-1", "two")


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda rows: {"payload_kind": "batch", "responses": rows},
        lambda rows: ["batch", *rows],
        lambda rows: rows,
        lambda rows: json.dumps({"payload_kind": "batch", "responses": rows}),
    ],
    ids=["object", "list with kind", "list", "text"],
)
async def test_several_answers_are_taken_in_every_form_of_a_batch(host: Host, wrapped: Any) -> None:
    session_id = await paused(host, ASKS_TWICE_AT_ONCE)
    told = await host.call("alc_v2_state", session_id=session_id)
    assert told["kind"] == "batch"
    assert [(each["prompt"], each["system"]) for each in told["prompts"]] == [("a", None), ("b", "s")]
    rows = [{"query_id": "q-1", "response": "B"}, {"query_id": "q-0", "response": "A"}]
    await host.call("alc_v2_resume", session_id=session_id, payload=wrapped(rows))
    assert (await until(host, session_id, "done"))["value"] == "A+B"


async def test_one_answer_of_a_batch_leaves_the_other_question(host: Host) -> None:
    session_id = await paused(host, ASKS_TWICE_AT_ONCE)
    told = await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "A"))
    assert told["outcome"] == "continued"
    assert [each["query_id"] for each in told["next"]["prompts"]] == ["q-1"]
    assert told["next"]["kind"] == "single"


async def test_the_same_answer_twice_is_taken_once(host: Host, holdfast: Holdfast) -> None:
    session_id = await paused(host, "return alc.llm('one') .. alc.llm('two')")
    await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    await until(host, session_id, "paused")
    before = await position(holdfast, session_id)
    again = await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    assert again["replayed"] is True
    assert await position(holdfast, session_id) == before


async def test_an_error_instead_of_an_answer_reaches_the_program(host: Host) -> None:
    session_id = await paused(host, "local ok, why = pcall(alc.llm, 'hi') return {ok, why}")
    payload = {"payload_kind": "single", "query_id": "q-0", "error": "rate limited"}
    await host.call("alc_v2_resume", session_id=session_id, payload=payload)
    ok, why = (await until(host, session_id, "done"))["value"]
    assert ok is False
    assert "rate limited" in why


async def test_usage_given_with_an_answer_is_the_usage_of_the_run(host: Host) -> None:
    session_id = await paused(host, ASKS)
    usage = {"prompt_tokens": 11, "completion_tokens": 22}
    await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x", usage=usage))
    assert (await until(host, session_id, "done"))["usage"] == usage


async def test_a_program_that_raises_has_failed_with_its_message(host: Host) -> None:
    told = await host.call("alc_v2_run", code="error('broken on purpose')")
    failed = await until(host, told["session_id"], "failed")
    assert "broken on purpose" in failed["message"]
    assert (failed["kind"], failed["error_kind"]) == ("lua_error", "error")
    assert failed["occurred_at"] > 0


# --- cancelling ------------------------------------------------------------------------------------


async def test_a_cancelled_run_says_why_and_what_it_waited_for(host: Host, holdfast: Holdfast) -> None:
    session_id = await paused(host, ASKS)
    reason = {"code": "timeout", "detail": "took too long", "requested_at": 1}
    told = await host.call("alc_v2_cancel", session_id=session_id, reason=reason)
    assert told["state"] == "cancelled"
    assert (told["reason"]["code"], told["reason"]["detail"]) == ("timeout", "took too long")
    assert told["state_before"]["prompts"][0]["prompt"] == "hi"
    assert told["stats"]["auto"]["llm_calls"] == 1
    before = await position(holdfast, session_id)
    assert await host.call("alc_v2_cancel", session_id=session_id, reason={"code": "user"}) == told
    assert await position(holdfast, session_id) == before


@pytest.mark.parametrize(
    ("reason", "code", "detail"),
    [
        (None, "user", None),
        ("enough", "user", "enough"),
        ('{"code": "internal"}', "internal", None),
        ({"detail": "d"}, "user", "d"),
    ],
)
async def test_a_reason_may_be_left_out_or_be_a_text(host: Host, reason: Any, code: str, detail: str | None) -> None:
    session_id = await paused(host, ASKS)
    told = await host.call("alc_v2_cancel", session_id=session_id, **({} if reason is None else {"reason": reason}))
    assert (told["reason"]["code"], told["reason"]["detail"]) == (code, detail)


async def test_a_run_that_computes_can_be_cancelled(host: Host) -> None:
    session_id = await paused(host, RUNS_ON)
    await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    told = await host.call("alc_v2_cancel", session_id=session_id)
    assert told["state"] == "cancelled"
    assert told["state_before"] == {"state": "running"}


async def test_a_run_that_nobody_answered_for_too_long_counts_as_timed_out(tmp_path: Path) -> None:
    impatient = open_holdfast(f"sqlite:///{tmp_path}/runs.db", upkeep=Upkeep(on=False, idle_ttl_ms=1))
    async with impatient as holdfast, host_of(holdfast, TOOLS) as host:
        session_id = await paused(host, ASKS)
        await asyncio.sleep(0.05)
        await holdfast.clean()
        told = await host.call("alc_v2_state", session_id=session_id)
        assert (told["state"], told["reason"]["code"]) == ("cancelled", "timeout")
        refusal = await host.refusal("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
        assert refusal.startswith("session is already cancelled")


# --- another process -------------------------------------------------------------------------------


async def test_a_run_goes_on_after_the_server_that_started_it_is_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with open_holdfast(url) as first, host_of(first, TOOLS) as host:
        session_id = await paused(host, ASKS)
    async with open_holdfast(url) as second, host_of(second, TOOLS, "legacy") as host:
        assert (await host.call("alc_v2_state", session_id=session_id))["state"] == "paused"
        await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "still here"))
        assert (await until(host, session_id, "done"))["value"] == "still here"


# --- bad calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["s-unknown", "s-" + "x" * 100])
async def test_an_unknown_session_is_not_found(host: Host, session_id: str) -> None:
    for tool, more in (("alc_v2_state", {}), ("alc_v2_cancel", {}), ("alc_v2_resume", {"payload": answer("q-0", "x")})):
        assert await host.refusal(tool, session_id=session_id, **more) == f"session not found: {session_id}"


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "", "a b", "x" * 300, "s-\x00"])
async def test_what_can_be_no_session_id_is_refused(host: Host, session_id: str) -> None:
    for tool, more in (("alc_v2_state", {}), ("alc_v2_cancel", {}), ("alc_v2_resume", {"payload": answer("q-0", "x")})):
        assert "invalid session id" in await host.refusal(tool, session_id=session_id, **more)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({}, "payload_kind"),
        ({"payload_kind": "some"}, "neither"),
        ({"payload_kind": "single"}, "query_id"),
        ({"payload_kind": "single", "query_id": "q-0"}, "missing field `response`"),
        ({"payload_kind": "single", "query_id": 5, "response": "x"}, "query_id"),
        ({"payload_kind": "single", "query_id": "q-0", "response": "x", "usage": 3}, "usage"),
        ({"payload_kind": "batch"}, "`responses`"),
        ({"payload_kind": "batch", "responses": []}, "no answer"),
        ({"payload_kind": "batch", "responses": ["x"]}, "invalid payload"),
        ([{"query_id": "q-0", "response": "x"}, {"query_id": "q-0", "response": "y"}], "twice"),
        ("just text", "must be an object"),
        (5, "must be an object"),
        (None, "must be an object"),
    ],
)
async def test_a_payload_that_is_none_is_refused_and_changes_nothing(
    host: Host, holdfast: Holdfast, payload: Any, why: str
) -> None:
    session_id = await paused(host, ASKS)
    before = await position(holdfast, session_id)
    refusal = await host.refusal("alc_v2_resume", session_id=session_id, payload=payload)
    assert refusal.startswith("invalid payload: ")
    assert why in refusal
    assert await position(holdfast, session_id) == before


async def test_an_answer_to_a_query_that_was_not_asked_is_a_feed_error(host: Host, holdfast: Holdfast) -> None:
    session_id = await paused(host, ASKS)
    before = await position(holdfast, session_id)
    refusal = await host.refusal("alc_v2_resume", session_id=session_id, payload=answer("q-9", "x"))
    assert refusal.startswith("feed error: unknown query_id: q-9")
    assert await position(holdfast, session_id) == before


async def test_a_batch_with_one_wrong_answer_takes_none(host: Host, holdfast: Holdfast) -> None:
    session_id = await paused(host, ASKS_TWICE_AT_ONCE)
    before = await position(holdfast, session_id)
    rows = [{"query_id": "q-0", "response": "A"}, {"query_id": "q-7", "response": "?"}]
    assert "q-7" in await host.refusal("alc_v2_resume", session_id=session_id, payload=rows)
    assert await position(holdfast, session_id) == before
    assert len((await host.call("alc_v2_state", session_id=session_id))["prompts"]) == 2


async def test_another_answer_after_the_end_says_that_the_run_is_done(host: Host) -> None:
    session_id = await paused(host, ASKS)
    await host.call("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    await until(host, session_id, "done")
    refusal = await host.refusal("alc_v2_resume", session_id=session_id, payload=answer("q-0", "other"))
    assert refusal.startswith("session is not paused; actual state: Done")


async def test_an_answer_to_a_cancelled_run_says_that_it_is_cancelled(host: Host) -> None:
    session_id = await paused(host, ASKS)
    await host.call("alc_v2_cancel", session_id=session_id)
    refusal = await host.refusal("alc_v2_resume", session_id=session_id, payload=answer("q-0", "x"))
    assert refusal.startswith("session is already cancelled")


@pytest.mark.parametrize("reason", [{"code": "murder"}, {"detail": 5}, 7, [], "x" * 3_000])
async def test_a_reason_that_is_none_is_refused_and_the_run_goes_on(host: Host, reason: Any) -> None:
    session_id = await paused(host, ASKS)
    assert (await host.refusal("alc_v2_cancel", session_id=session_id, reason=reason)).startswith("invalid reason: ")
    assert (await host.call("alc_v2_state", session_id=session_id))["state"] == "paused"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"code": 5}, {"code": None}, {"code": "return 1", "language": "lua"}, {"code": "return 1", "project_root": 1}],
)
async def test_a_run_with_wrong_parameters_starts_nothing(host: Host, holdfast: Holdfast, arguments: Told) -> None:
    assert (await host.refusal("alc_v2_run", **arguments)).startswith("alc_v2_run: ")
    assert (await holdfast.sessions()).rows == []


@pytest.mark.parametrize("project_root", ["", "/nowhere/at/all", "x" * 5_000, "a\x00b"])
async def test_a_project_that_is_not_there_starts_nothing(host: Host, holdfast: Holdfast, project_root: str) -> None:
    refusal = await host.refusal("alc_v2_run", code="return 1", project_root=project_root)
    assert "there is no directory" in refusal
    assert len(refusal) < 400
    assert (await holdfast.sessions()).rows == []


async def test_a_ctx_of_ten_megabytes_is_taken(host: Host) -> None:
    told = await host.call("alc_v2_run", code="return #ctx.text", ctx={"text": "x" * 10_000_000})
    assert (await until(host, told["session_id"], "done"))["value"] == 10_000_000


async def test_code_that_is_no_lua_fails_as_a_run_that_can_be_looked_at(host: Host, holdfast: Holdfast) -> None:
    told = await host.call("alc_v2_run", code="this is not lua")
    await until(host, told["session_id"], "failed")
    assert (await holdfast.store.session(told["session_id"])).summary.state is State.FAILED


async def test_every_tool_has_a_schema_in_one_piece_and_says_what_it_does(host: Host) -> None:
    tools = (await host.client.list_tools()).tools
    assert [tool.name for tool in tools] == ["alc_v2_run", "alc_v2_state", "alc_v2_resume", "alc_v2_cancel"]
    for tool in tools:
        assert "$ref" not in json.dumps(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        assert tool.description
        assert len(tool.description) > 40
        for described in tool.input_schema["properties"].values():
            assert described["description"]
