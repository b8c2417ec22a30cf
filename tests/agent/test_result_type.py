"""Turns that come to a value: submitted by the model, checked, repaired, or given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from holdfast.agent.errors import TurnConflictError
from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.messages import ToolResultBlock
from holdfast.agent.machine.turn import REMINDER, MessageOutcome, StoppedOutcome, ToolValueOutcome, ValueOutcome
from holdfast.agent.mounted_store import RESULT_TYPES
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.result_type import ResultInvalidError, ResultType, ResultTypeError
from holdfast.agent.results import TurnResult
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.sync import SyncRuntime
from holdfast.core.queries import ToolQuery
from holdfast.core.values import Json
from holdfast.testing import ScriptedProvider, reply, tool_call
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from tests.agent.helpers import OBJECT, Home, add, journal


class Town(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0)


@dataclass
class Span:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class Options(TypedDict, total=False):
    deep: bool


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


SCHEMA: dict[str, Json] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def requests(runtime: Runtime) -> list[ModelRequest]:
    provider = runtime.providers["scripted"]
    assert isinstance(provider, ScriptedProvider)
    return provider.requests


def told(request: ModelRequest) -> list[Json]:
    """What the model was told of its last calls."""
    blocks = [block for message in request.messages for block in message.content]
    return [block.content for block in blocks if isinstance(block, ToolResultBlock)]


async def turned(runtime: Runtime, wanted: Any, session_id: str = "s") -> TurnResult:
    session = await runtime.session(session_id).open()
    return await soon(session.turn("As a value, please").output(wanted).run())


def stopped(result: TurnResult) -> StoppedOutcome:
    assert isinstance(result.outcome, StoppedOutcome), result.outcome
    return result.outcome


# --- values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "given", "value", "output"),
    [
        (Town, {"name": "Ely", "people": 3}, {"name": "Ely", "people": 3}, Town(name="Ely", people=3)),
        (Span, {"low": 1, "high": 2}, {"low": 1, "high": 2}, Span(1, 2)),
        (Options, {"deep": True}, {"deep": True}, {"deep": True}),
        (Point, {"x": 1.5}, {"x": 1.5}, Point(1.5)),
        (list[Span], {"result": [{"low": 1, "high": 2}]}, [{"low": 1, "high": 2}], [Span(1, 2)]),
        (int | None, {"result": None}, None, None),
        (SCHEMA, {"n": 3, "more": 4}, {"n": 3, "more": 4}, {"n": 3, "more": 4}),
        ({"type": "integer"}, {"result": 42}, 42, 42),
    ],
    ids=["model", "dataclass", "typeddict", "struct", "list", "union", "schema", "plain"],
)
async def test_a_turn_comes_to_a_value_of_the_type_that_was_wished(
    home: Home, wanted: Any, given: dict[str, Json], value: Json, output: Any
) -> None:
    async with home.runtime(tool_call("finish", **given)) as runtime:
        result = await turned(runtime, wanted)
        assert result.outcome == ValueOutcome(value)
        assert (result.value, result.output) == (value, output)
        assert type(result.output) is type(output)
        assert result.is_success
        tools = {tool.name: tool.parameters for tool in requests(runtime)[0].tools}
        assert tools.keys() == {"finish", "give_up"}
        assert tools["finish"]["type"] == "object"


async def test_what_is_no_type_is_refused_before_anything_is_written(home: Home) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        before = await journal(session)
        with pytest.raises(ResultTypeError, match="give a type, or a JSON schema"):
            session.turn("Hi").output(3)
        assert await journal(session) == before


async def test_the_tools_to_end_a_turn_are_there_in_turns_that_are_to_come_to_a_value(home: Home) -> None:
    async with home.runtime("Hi.", tool_call("finish", n=1), "Bye.", tools=[add]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hello").run())
        await soon(session.turn("A number").output(SCHEMA).run())
        result = await soon(session.turn("Bye").run())
        assert (result.outcome, result.output) == (MessageOutcome(), None)
        names = [[tool.name for tool in request.tools] for request in requests(runtime)]
        assert names == [["add"], ["add", "finish", "give_up"], ["add"]]


async def test_in_another_turn_there_is_no_such_tool(home: Home) -> None:
    async with home.runtime([tool_call("finish", n=1), tool_call("give_up", reason="x")], "All right.") as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Hello").run())
        assert (result.text, result.outcome) == ("All right.", MessageOutcome())
        assert [call.is_error for call in result.tool_calls] == [True, True]
        assert all("this turn ends with a message" in str(call.result) for call in result.tool_calls)


def test_values_have_their_type_without_await_as_well() -> None:
    with SyncRuntime("memory:", provider=ScriptedProvider([tool_call("finish", x=1, y=2)])) as runtime:
        assert runtime.session("s").open().turn("Where?").output(Point).run().output == Point(1, 2)


# --- repairs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "wrong", "words", "right"),
    [
        (Town, {"name": "Ely", "people": "many"}, "people", {"name": "Ely", "people": 3}),
        (Town, {"people": -1}, "name", {"name": "Ely", "people": 3}),
        (Span, {"low": 3, "high": 2}, "low 3 is above high 2", {"low": 1, "high": 2}),
        (list[int], {"result": [1, "two"]}, "integer", {"result": [1, 2]}),
        (list[int], {"list": [1]}, "the argument 'result'", {"result": [1, 2]}),
        (SCHEMA, {"m": 3}, "n", {"n": 3}),
    ],
)
async def test_a_value_that_does_not_fit_is_told_to_the_model_which_mends_it(
    home: Home, wanted: Any, wrong: dict[str, Json], words: str, right: dict[str, Json]
) -> None:
    async with home.runtime(tool_call("finish", **wrong), tool_call("finish", **right)) as runtime:
        result = await turned(runtime, wanted)
        assert isinstance(result.outcome, ValueOutcome)
        (error,) = told(requests(runtime)[1])
        assert "the result was not accepted" in str(error)
        assert words in str(error)


async def test_arguments_that_are_no_json_are_told_as_well(home: Home) -> None:
    from holdfast.testing.provider import ScriptedToolCall

    async with home.runtime(ScriptedToolCall("finish", '{"n": '), tool_call("finish", n=1)) as runtime:
        assert (await turned(runtime, SCHEMA)).value == {"n": 1}
        assert "not accepted" in str(told(requests(runtime)[1])[0])


async def test_words_instead_of_a_value_are_answered_with_a_reminder_that_is_not_the_users(home: Home) -> None:
    async with home.runtime("It is 3.", tool_call("finish", n=3)) as runtime:
        result = await turned(runtime, SCHEMA)
        assert result.value == {"n": 3}
        roles = [(message.role, message.text) for message in result.messages]
        assert roles[:3] == [("user", "As a value, please"), ("assistant", "It is 3."), ("signal", REMINDER)]
        sent = requests(runtime)[1].messages[-1]
        assert (sent.role, sent.text) == ("user", f"<runtime>\n{REMINDER}\n</runtime>")


@pytest.mark.parametrize("wrong", ["In words.", tool_call("finish", n="x"), reply("")])
async def test_it_is_asked_again_only_so_often(home: Home, wrong: ScriptStep) -> None:
    async with home.runtime(*[wrong] * 3, "Next.", limits={"repairs": 2}) as runtime:
        result = await turned(runtime, SCHEMA)
        assert (stopped(result).reason, stopped(result).limit) == ("incomplete", "repairs")
        assert len(requests(runtime)) == 3
        assert (result.value, result.output) == (None, None)
        session = await runtime.session("s").open()
        assert (await soon(session.turn("And?").run())).text == "Next."


async def test_words_and_wrong_values_are_counted_together_and_other_work_is_not(home: Home) -> None:
    script: list[ScriptStep] = ["In words.", tool_call("add", a=1, b=2), tool_call("finish", n="x"), "Words again."]
    async with home.runtime(*script, tools=[add], limits={"repairs": 2}) as runtime:
        assert stopped(await turned(runtime, SCHEMA)).limit == "repairs"
        assert len(requests(runtime)) == 4


async def test_a_model_that_gives_up_ends_the_turn_with_its_reason(home: Home) -> None:
    async with home.runtime(tool_call("give_up"), tool_call("give_up", reason="there is no such town")) as runtime:
        result = await turned(runtime, Town)
        assert stopped(result) == StoppedOutcome("submitted_error", "there is no such town", tool="give_up")
        assert "give the reason why" in str(told(requests(runtime)[1])[0])


async def test_a_reply_that_is_cut_off_stops_the_turn(home: Home) -> None:
    async with home.runtime(reply("It is", stop="length")) as runtime:
        assert stopped(await turned(runtime, SCHEMA)).reason == "incomplete"


async def test_the_other_limits_of_a_turn_hold(home: Home) -> None:
    async with home.runtime("Words.", "Words.", tool_call("finish", n=1), limits={"iterations": 2}) as runtime:
        assert stopped(await turned(runtime, SCHEMA)).limit == "iterations"
        assert (await turned(runtime, SCHEMA, "other")).value == {"n": 1}


async def test_rules_about_tools_do_not_keep_a_model_from_ending_its_turn(home: Home) -> None:
    async with home.runtime(tool_call("finish", n=1)) as runtime:
        session = await runtime.session("s").approval(Approval(default="deny")).open()
        assert (await soon(session.turn("A number").output(SCHEMA).run())).value == {"n": 1}


# --- beside other calls --------------------------------------------------------------------------------


async def test_the_first_value_that_fits_counts_and_the_others_are_told_so(home: Home) -> None:
    calls: Any = [tool_call("finish", n="x"), tool_call("finish", n=1), tool_call("finish", n=2)]
    async with home.runtime(calls) as runtime:
        result = await turned(runtime, SCHEMA)
        assert (result.value, len(requests(runtime))) == ({"n": 1}, 1)
        assert [call.is_error for call in result.tool_calls] == [True, False, True]
        assert "a result was submitted before" in str(result.tool_calls[2].result)


async def test_of_a_value_and_giving_up_the_first_counts(home: Home) -> None:
    up, value = tool_call("give_up", reason="no idea"), tool_call("finish", n=1)
    async with home.runtime([up, value], [value, up]) as runtime:
        assert stopped(await turned(runtime, SCHEMA)).detail == "no idea"
        assert (await turned(runtime, SCHEMA, "other")).value == {"n": 1}


async def test_what_is_called_in_the_same_reply_is_done_before_the_turn_ends(home: Home) -> None:
    async with home.runtime([tool_call("finish", n=3), tool_call("add", a=1, b=2)], tools=[add]) as runtime:
        result = await turned(runtime, SCHEMA)
        assert result.value == {"n": 3}
        assert [(call.name, call.result) for call in result.tool_calls] == [("finish", "accepted"), ("add", 3)]


async def test_a_wrong_value_beside_other_calls_is_mended_with_their_results_known(home: Home) -> None:
    script: list[ScriptStep] = [[tool_call("add", a=1, b=2), tool_call("finish", n="?")], tool_call("finish", n=3)]
    async with home.runtime(*script, tools=[add]) as runtime:
        assert (await turned(runtime, SCHEMA)).value == {"n": 3}
        assert told(requests(runtime)[1])[0] == 3


async def test_a_tool_of_the_host_may_end_the_turn_with_a_value_of_its_own(home: Home) -> None:
    from holdfast.agent.tools import Finish

    async def look() -> Finish:
        return Finish("elsewhere")

    async with home.runtime(tool_call("look"), tools=[look]) as runtime:
        result = await turned(runtime, SCHEMA)
        assert result.outcome == ToolValueOutcome("look", "elsewhere")
        assert (result.value, result.output) == ("elsewhere", None)


# --- across processes ----------------------------------------------------------------------------------


async def test_a_turn_that_is_over_is_found_again_with_its_value(shared_home: Home) -> None:
    async with shared_home.runtime(tool_call("finish", low=1, high=2)) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Which?").id("t-1").output(Span).run())
    async with shared_home.runtime() as other:
        session = await other.session("s").open()
        again = await soon(session.turn("Which?").id("t-1").output(Span).run())
        assert (again.output, again.receipt.replayed) == (Span(1, 2), True)
        with pytest.raises(TurnConflictError):
            await soon(session.turn("Which?").id("t-1").output(Point).run())
        with pytest.raises(TurnConflictError):
            await soon(session.turn("Which?").id("t-1").run())


async def waits_for_a_tool(session: AgentSession) -> bool:
    asked = (await session.conversation(fresh=True)).asked
    return any(isinstance(query, ToolQuery) for query in asked.values())


async def test_whoever_joins_a_turn_with_its_type_has_it_checked_by_it(shared_home: Home) -> None:
    """The turn waits for somebody outside when its process is gone; another goes on, and knows the type as well."""
    async with shared_home.runtime(tool_call("ask")) as runtime:
        runtime.tools.declare("ask", "Asks somebody.", OBJECT)
        session = await runtime.session("s").open()
        begun = asyncio.create_task(session.turn("Which?").id("t-1").output(Span).run())
        await until(lambda: waits_for_a_tool(session))
        begun.cancel()
    wrong, right = tool_call("finish", low=3, high=2), tool_call("finish", low=1, high=2)
    async with shared_home.runtime(wrong, right) as other:
        other.tools.declare("ask", "Asks somebody.", OBJECT)
        session = await other.session("s").open()
        joined = asyncio.create_task(session.turn("Which?").id("t-1").output(Span).run())
        await until(lambda: ("s", "t-1") in other.mount.result_types)
        (query,) = (await session.conversation(fresh=True)).asked
        await soon(session.answer(query, "the small ones"))
        assert (await soon(joined)).output == Span(1, 2)
        assert "low 3 is above high 2" in str(told(requests(other)[1])[-1])


async def test_a_value_that_only_the_schema_was_known_for_is_refused_by_the_type_when_it_is_read(home: Home) -> None:
    schema = ResultType.of(Span).schema
    async with home.runtime(tool_call("finish", low=3, high=2)) as runtime:
        session = await runtime.session("s").open()
        turn = session.turn("Which?").id("t-1")
        assert (await soon(turn.output(schema).run())).value == {"low": 3, "high": 2}
        with pytest.raises(ResultInvalidError, match="low 3 is above high 2"):
            await soon(session.turn("Which?").id("t-1").output(Span).run())


async def test_types_of_turns_that_nobody_waited_for_are_not_kept_for_ever(home: Home) -> None:
    async with home.runtime() as runtime:
        place = runtime.mount
        for number in range(RESULT_TYPES + 5):
            place.expect("s", f"t-{number}", ResultType.of(Span))
        assert len(place.result_types) == RESULT_TYPES
        assert ("s", "t-4") not in place.result_types
