"""Calls that end in required input: what a host may do wrong, or leave out, and the session still comes to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from holdfast import Context, strategy
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.serve.mcp.server import McpServer

TWO_AT_ONCE = "return alc.llm_batch({ { prompt = 'one' }, { prompt = 'two' } })"
ONE = "return alc.llm('one')"


@strategy
async def asks_a_person(ctx: Context) -> Any:
    return await ctx.ask("Which?", choices=["a", "b"])


@pytest.fixture
async def holdfast() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


async def _form(context: Any, params: Any) -> types.ElicitResult:
    raise AssertionError("these tests answer by hand")


async def _sample(context: Any, params: Any) -> types.CreateMessageResult:
    raise AssertionError("these tests answer by hand")


def _client(holdfast: Holdfast, **can: Any) -> Client:
    server = McpServer(holdfast, family="all", keys=[b"k" * 32])
    return Client(server.server, mode="2026-07-28", **(can or {"elicitation_callback": _form}))


async def _required(client: Client, code: str, **round_: Any) -> types.InputRequiredResult:
    given = await client.session.call_tool("alc_run", {"code": code}, allow_input_required=True, **round_)
    assert isinstance(given, types.InputRequiredResult), given
    return given


async def _done(client: Client, code: str, **round_: Any) -> Any:
    given = await client.session.call_tool("alc_run", {"code": code}, allow_input_required=True, **round_)
    assert isinstance(given, types.CallToolResult)
    assert not given.is_error, given
    assert given.structured_content is not None
    return given.structured_content


def _says(text: str) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"response": text})


async def test_an_answer_to_what_nobody_asked_is_ignored(holdfast: Holdfast) -> None:
    async with _client(holdfast) as client:
        asked = await _required(client, ONE)
        given = {"q-0": _says("yes"), "q-77": _says("what?"), "user name": _says("Ann")}
        done = await _done(client, ONE, input_responses=given, request_state=asked.request_state)
    assert (done["status"], done["result"]) == ("completed", "yes")


async def test_what_is_left_out_of_the_answers_is_required_again(holdfast: Holdfast) -> None:
    async with _client(holdfast) as client:
        asked = await _required(client, TWO_AT_ONCE)
        first, second = asked.input_requests or {}
        left = await _required(
            client, TWO_AT_ONCE, input_responses={first: _says("a")}, request_state=asked.request_state
        )
        assert list(left.input_requests or {}) == [second]
        done = await _done(client, TWO_AT_ONCE, input_responses={second: _says("b")}, request_state=left.request_state)
    assert done["result"] == ["a", "b"]


@pytest.mark.parametrize("responses", [None, {}, {"user_name": _says("Ann")}], ids=["none", "empty", "of another"])
async def test_a_repeated_call_without_the_answers_asks_again_and_starts_nothing(
    holdfast: Holdfast, responses: dict[str, types.ElicitResult] | None
) -> None:
    async with _client(holdfast) as client:
        asked = await _required(client, ONE)
        again = await _required(client, ONE, input_responses=responses, request_state=asked.request_state)
        assert again.input_requests == asked.input_requests
        done = await _done(client, ONE, input_responses={"q-0": _says("yes")}, request_state=again.request_state)
    assert done["result"] == "yes"
    assert len((await holdfast.sessions()).rows) == 1


async def test_the_same_round_twice_gets_the_same_result(holdfast: Holdfast) -> None:
    async with _client(holdfast) as client:
        asked = await _required(client, ONE)
        last = {"input_responses": {"q-0": _says("yes")}, "request_state": asked.request_state}
        once, twice = await _done(client, ONE, **last), await _done(client, ONE, **last)
    assert once["session_id"] == twice["session_id"]
    assert (once["status"], once["result"]) == (twice["status"], twice["result"]) == ("completed", "yes")


async def test_another_answer_in_the_same_round_is_a_conflict(holdfast: Holdfast) -> None:
    async with _client(holdfast) as client:
        asked = await _required(client, ONE)
        first = {"input_responses": {"q-0": _says("deny")}, "request_state": asked.request_state}
        assert (await _done(client, ONE, **first))["result"] == "deny"
        given = await client.session.call_tool(
            "alc_run",
            {"code": ONE},
            allow_input_required=True,
            input_responses={"q-0": _says("approve")},
            request_state=asked.request_state,
        )
    assert isinstance(given, types.CallToolResult)
    assert given.is_error
    assert "deny" in str(given.content)
    assert "approve" in str(given.content)


async def test_a_declined_form_is_an_error_that_the_program_sees(holdfast: Holdfast) -> None:
    code = "local ok, why = pcall(alc.llm, 'one') return { ok = ok, why = why }"
    async with _client(holdfast) as client:
        asked = await _required(client, code)
        declined = {"q-0": types.ElicitResult(action="decline")}
        done = await _done(client, code, input_responses=declined, request_state=asked.request_state)
    assert done["result"]["ok"] is False
    assert "decline" in done["result"]["why"]


async def test_a_host_that_samples_is_asked_for_a_sample(holdfast: Holdfast) -> None:
    async with _client(holdfast, sampling_callback=_sample) as client:
        asked = await _required(client, ONE)
        [request] = (asked.input_requests or {}).values()
        assert isinstance(request, types.CreateMessageRequest)
        said = types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text="yes"))
        done = await _done(client, ONE, input_responses={"q-0": said}, request_state=asked.request_state)
    assert done["result"] == "yes"


async def test_a_host_that_only_samples_is_never_sent_a_form(holdfast: Holdfast) -> None:
    async with _client(holdfast, sampling_callback=_sample) as client:
        given = await client.session.call_tool("alc_advice", {"strategy": "asks_a_person"}, allow_input_required=True)
    assert isinstance(given, types.CallToolResult), given
    assert given.structured_content is not None
    assert given.structured_content["status"] == "needs_response"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_every_step_is_told_before_the_result_and_none_twice(holdfast: Holdfast, era: str) -> None:
    code = "alc.progress(1, 3) alc.progress(2, 3) alc.llm('go on?') alc.progress(3, 3, 'done') return 'end'"
    told: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total))

    server = McpServer(holdfast, family="all", keys=[b"k" * 32])
    async with Client(server.server, mode=era) as client:
        paused = await client.call_tool("alc_run", {"code": code}, progress_callback=note)
        assert told == [(1, 3), (2, 3)]
        assert paused.structured_content is not None
        session_id = paused.structured_content["session_id"]
        await client.call_tool("alc_continue", {"session_id": session_id, "response": "yes"}, progress_callback=note)
    assert told == [(1, 3), (2, 3), (3, 3)]
