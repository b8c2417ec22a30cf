"""Pauses that the protocol itself carries: a call that ends in required input, progress meanwhile, cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.serve.mcp.server import McpServer
from holdfast.testing.patience import until
from tests.serve.mcp_hosts import ERAS, KEYS, Tools, error_of, home, only_session, over_streams, served, text_of

__all__ = ["home"]

STATELESS = "2026-07-28"

SURE = """
local ok, said = pcall(alc.llm, "Sure?")
return { ok = ok, said = tostring(said) }
"""


@strategy(name="native-pauses-panel")
async def panel(ctx: Context) -> Any:
    return await asyncio.gather(ctx.llm("one?"), ctx.llm("two?"), ctx.ask("Which?", choices=["left", "right"]))


@strategy(name="native-pauses-slow")
async def slow(ctx: Context) -> Any:
    """Takes its time, and says how far it is."""
    for step in range(1, 4):
        ctx.progress(step, 3, f"step {step}")
        await ctx.sleep(0.15)
    return await ctx.llm("done?")


@strategy(name="native-pauses-endless")
async def endless(ctx: Context) -> Any:
    await ctx.sleep(3600)


class Model:
    """A host's model: what it was asked, and what it says."""

    def __init__(self, *says: str) -> None:
        self.asked: list[types.CreateMessageRequestParams] = []
        self._says = list(says)

    async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params)
        answer = types.TextContent(text=self._says[len(self.asked) - 1])
        return types.CreateMessageResult(role="assistant", content=answer, model="scripted")

    @property
    def prompts(self) -> list[str]:
        return [getattr(params.messages[0].content, "text", "") for params in self.asked]


class Person:
    """Somebody before a form: what they were shown, and what they do with it."""

    def __init__(self, *does: str | types.ElicitResult) -> None:
        self.shown: list[types.ElicitRequestParams] = []
        self._does = list(does)

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.shown.append(params)
        done = self._does[len(self.shown) - 1]
        return done if isinstance(done, types.ElicitResult) else _filled_in(done)


def _filled_in(answer: str) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"response": answer})


@pytest.fixture
async def server(home: Path) -> AsyncIterator[McpServer]:
    async with served() as server:
        yield server


# --- the loop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family_run", ["run", "alc_advice"])
async def test_a_host_that_samples_runs_a_strategy_in_one_call(home: Path, family_run: str) -> None:
    model = Model("yes", "quite")
    async with served("all") as server, Client(server.server, mode=STATELESS, sampling_callback=model) as client:
        ended = await Tools(client)(family_run, strategy="twice", task="tea?")
        sessions = (await server.holdfast.sessions()).rows
    assert ended["result"] == {"first": "yes", "second": "quite"}
    assert model.prompts == ["First: tea?", "Sure? yes"]
    assert (model.asked[0].system_prompt, model.asked[0].max_tokens) == ("Be brief.", 50)
    assert [row.session_id for row in sessions] == [ended["session_id"]]


async def test_a_host_with_forms_runs_a_strategy_in_one_call(server: McpServer) -> None:
    somebody = Person("yes", "quite")
    async with Client(server.server, mode=STATELESS, elicitation_callback=somebody) as client:
        ended = await Tools(client)("run", strategy="twice", task="tea?")
    assert ended["result"] == {"first": "yes", "second": "quite"}
    assert [params.message for params in somebody.shown] == ["Be brief.\n\nFirst: tea?", "Sure? yes"]


async def test_a_batch_is_one_round_in_which_people_get_forms_with_their_choices(server: McpServer) -> None:
    model, somebody = Model("1", "2"), Person("right")
    async with Client(server.server, mode=STATELESS, sampling_callback=model, elicitation_callback=somebody) as client:
        ended = await Tools(client)("run", strategy="native-pauses-panel")
    assert ended["result"] == ["1", "2", "right"]
    assert ended["stats"]["auto"]["pauses"] == 1
    [form] = somebody.shown
    assert isinstance(form, types.ElicitRequestFormParams)
    assert form.message == "Which?"
    assert form.requested_schema["properties"]["response"]["enum"] == ["left", "right"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_input_that_is_declined_is_an_error_the_strategy_can_catch(server: McpServer, action: Any) -> None:
    somebody = Person(types.ElicitResult(action=action))
    async with Client(server.server, mode=STATELESS, elicitation_callback=somebody) as client:
        ended = await Tools(client)("run", code=SURE)
    assert ended["status"] == "completed"
    assert ended["result"]["ok"] is False
    assert f"the host answered with '{action}'" in ended["result"]["said"]


async def test_hosts_that_cannot_give_input_get_a_handle(server: McpServer) -> None:
    model, somebody = Model(), Person()
    able: dict[str, Any] = {"sampling_callback": model, "elicitation_callback": somebody}
    for era, callbacks in ((STATELESS, {}), ("legacy", able)):
        async with Client(server.server, mode=era, **callbacks) as client:
            call = Tools(client)
            asked = await call("run", strategy="twice", task="tea?")
            assert (asked["status"], asked["query_id"]) == ("needs_response", "q-0")
            assert (await call("answer", session_id=asked["session_id"], response="yes"))["query_id"] == "q-1"
    assert not model.asked
    assert not somebody.shown


# --- by hand -----------------------------------------------------------------------------------------


async def _call(
    client: Client, responses: Any = None, state: str | None = None, **arguments: Any
) -> types.CallToolResult | types.InputRequiredResult:
    result: types.CallToolResult | types.InputRequiredResult = await client.session.call_tool(
        "run", arguments, allow_input_required=True, input_responses=responses, request_state=state
    )
    return result


def _asked(result: types.CallToolResult | types.InputRequiredResult) -> types.InputRequiredResult:
    assert isinstance(result, types.InputRequiredResult), result
    return result


def _ended(result: types.CallToolResult | types.InputRequiredResult) -> dict[str, Any]:
    assert isinstance(result, types.CallToolResult), result
    ended: dict[str, Any] = json.loads(text_of(result))
    return ended


def _pausing(server: McpServer) -> Client:
    return Client(server.server, mode=STATELESS, elicitation_callback=Person())


RUN = {"strategy": "twice", "task": "tea?"}


async def test_the_same_input_sent_again_leads_to_the_same_and_is_taken_once(server: McpServer) -> None:
    async with _pausing(server) as client:
        first = _asked(await _call(client, **RUN))
        assert set(first.input_requests or {}) == {"q-0"}
        answer = {"q-0": _filled_in("yes")}
        second, again = [_asked(await _call(client, answer, first.request_state, **RUN)) for _ in range(2)]
        assert set(second.input_requests or {}) == set(again.input_requests or {}) == {"q-1"}
        ended = _ended(await _call(client, {"q-1": _filled_in("quite")}, second.request_state, **RUN))
    assert ended["result"] == {"first": "yes", "second": "quite"}
    assert ended["stats"]["auto"]["rounds"] == 2
    assert await only_session(server.holdfast) == ended["session_id"]


async def test_another_process_with_the_same_keys_goes_on_and_one_with_others_does_not(
    home: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with open_holdfast(url) as holdfast, _pausing(McpServer(holdfast, keys=KEYS)) as client:
        first = _asked(await _call(client, **RUN))
    assert "s-" not in (first.request_state or "")[:3]
    answer = {"q-0": _filled_in("yes")}
    async with open_holdfast(url) as holdfast:
        async with _pausing(McpServer(holdfast, keys=[b"o" * 32])) as client:
            refused = await error_of(_call(client, answer, first.request_state, **RUN))
            assert (refused.code, refused.message) == (-32602, "Invalid or expired requestState")
        async with _pausing(McpServer(holdfast, keys=KEYS)) as client:
            second = _asked(await _call(client, answer, first.request_state, **RUN))
            assert set(second.input_requests or {}) == {"q-1"}


async def test_state_is_bound_to_its_call_and_cannot_be_made_up(server: McpServer) -> None:
    async with _pausing(server) as client:
        first = _asked(await _call(client, **RUN))
        session_id = await only_session(server.holdfast)
        assert session_id is not None
        answer = {"q-0": _filled_in("yes")}
        for state, arguments in ((first.request_state, {**RUN, "task": "coffee?"}), (session_id, RUN), ("v1.x", RUN)):
            assert (await error_of(_call(client, answer, state, **arguments))).code == -32602
        assert (await server.holdfast.status(session_id))["metrics"]["rounds"] == 0


async def test_a_session_that_was_answered_elsewhere_meanwhile_keeps_that_answer(server: McpServer) -> None:
    async with _pausing(server) as client:
        first = _asked(await _call(client, **RUN))
        session_id = await only_session(server.holdfast)
        await Tools(client)("answer", session_id=session_id, response="no")
        late = await _call(client, {"q-0": _filled_in("yes")}, first.request_state, **RUN)
        assert isinstance(late, types.CallToolResult)
        assert late.is_error
        assert "the recorded answer stands" in str(late.content)
        again = _asked(await _call(client, {"q-0": _filled_in("no")}, first.request_state, **RUN))
        assert _messages(again) == {"q-1": "Sure? no"}


async def test_a_call_repeated_without_its_input_is_asked_the_same_and_starts_nothing(server: McpServer) -> None:
    async with _pausing(server) as client:
        first = _asked(await _call(client, **RUN))
        again = _asked(await _call(client, None, first.request_state, **RUN))
        assert _messages(again) == _messages(first) == {"q-0": "Be brief.\n\nFirst: tea?"}
        assert await only_session(server.holdfast)


def _messages(result: types.InputRequiredResult) -> dict[str, str]:
    return {asked: getattr(request.params, "message", "") for asked, request in (result.input_requests or {}).items()}


# --- progress ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_progress_arrives_while_a_strategy_runs(server: McpServer, era: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    running: list[bool] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        session_id = await only_session(server.holdfast)
        assert session_id is not None
        running.append((await server.holdfast.status(session_id))["phase"] == "paused")

    async with over_streams(server, era) as client:
        result = await client.call_tool("run", {"strategy": "native-pauses-slow"}, progress_callback=hear)
        assert json.loads(text_of(result))["status"] == "needs_response"
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert all(running)


# --- cancellation ------------------------------------------------------------------------------------


async def _state(holdfast: Holdfast) -> State:
    [row] = (await holdfast.sessions()).rows
    return row.summary.state


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_the_host_cancels_cancels_its_session(server: McpServer, era: str) -> None:
    holdfast = server.holdfast
    async with over_streams(server, era) as client:
        call = asyncio.create_task(client.call_tool("run", {"strategy": "native-pauses-endless"}))
        session_id = await until(lambda: only_session(holdfast))
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: _is(holdfast, State.CANCELLED))
        assert (await holdfast.status(session_id))["outcome"]["reason"] == "the host cancelled the call"
        assert (await Tools(client)("sessions"))["sessions"][0]["state"] == "cancelled"


async def _is(holdfast: Holdfast, state: State) -> bool:
    return await _state(holdfast) is state


@pytest.mark.parametrize("era", ERAS)
async def test_a_connection_that_breaks_cancels_no_session(server: McpServer, era: str) -> None:
    async with over_streams(server, era) as client:
        call = asyncio.create_task(client.call_tool("run", {"strategy": "native-pauses-endless"}))
        session_id = await until(lambda: only_session(server.holdfast))
    with pytest.raises(Exception, match="closed"):
        await call
    await asyncio.sleep(0.1)
    assert await _state(server.holdfast) is State.PAUSED
    async with over_streams(server, era) as client:
        assert (await Tools(client)("show", session_id=session_id))["phase"] == "paused"


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_is_not_taken_for_another_hosts_call_of_the_same_number(
    server: McpServer, era: str
) -> None:
    holdfast = server.holdfast

    async def both() -> bool:
        return len((await holdfast.sessions()).rows) == 2

    async with over_streams(server, era) as one:
        async with over_streams(server, era) as other:
            cancelled = asyncio.create_task(one.call_tool("run", {"strategy": "native-pauses-endless"}))
            first = await until(lambda: only_session(holdfast))
            broken = asyncio.create_task(other.call_tool("run", {"strategy": "native-pauses-endless"}))
            await until(both)
            cancelled.cancel()
            await asyncio.wait([cancelled])
        with pytest.raises(Exception, match="closed"):
            await broken
        await asyncio.sleep(0.1)
        states = {row.session_id: row.summary.state for row in (await holdfast.sessions()).rows}
    assert states.pop(first) is State.CANCELLED
    assert list(states.values()) == [State.PAUSED]
