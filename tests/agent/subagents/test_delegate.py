"""A model gives tasks to subagents: what they are shown, what comes back, and what it cost."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.delegation import SubagentResult, subagent_result
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.results import TokenUsage
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Failure, Value
from holdfast.core.records import AnsweredRecord
from holdfast.core.state import State
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptStep, fault, reply, tool_call
from tests.agent.helpers import Home, add
from tests.agent.subagents.helpers import agent, cast, child_of, delegating, echo, entries, results, saying


async def test_a_subagent_works_a_task_and_its_text_is_the_result_of_the_call(home: Home) -> None:
    model = cast({"echo": echo}, delegating({"agent": "echo", "task": "say it"}))
    async with home.runtime(provider=model, agents=[agent("echo")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "say it"
        child = await child_of(session, "q-2")
        assert child.state is State.COMPLETED
        assert child.started is not None
        assert child.started.parent is not None
        assert (child.started.parent.session_id, child.started.parent.query_id) == ("chat", "q-2")


async def test_the_child_is_shown_instructions_task_and_seed_and_nothing_else(home: Home) -> None:
    call = {"agent": "echo", "task": "look at x", "seed": {"x": [1, 2]}}
    model = cast({"echo": echo}, delegating(call))
    async with home.runtime(
        provider=model, agents=[agent("echo")], instructions="Be the parent.", tools=[add]
    ) as runtime:
        session = await runtime.session("chat").open()
        await session.turn("a secret of the parent").run(wait=HANG_S)
    (seen,) = [request for request in model.requests if request.system == "echo"]
    assert len(seen.messages) == 1
    assert seen.messages[0].text.startswith("look at x")
    assert '"x"' in seen.messages[0].text
    assert "secret" not in seen.messages[0].text


async def test_several_tasks_of_one_reply_are_worked_together_and_come_back_in_order(home: Home) -> None:
    model = cast({"echo": echo}, delegating(*({"agent": "echo", "task": f"t{n}"} for n in range(5))))
    async with home.runtime(provider=model, agents=[agent("echo")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "t0 | t1 | t2 | t3 | t4"


async def test_a_result_of_a_type_is_a_checked_value(home: Home) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def counts(request: ModelRequest) -> ScriptStep:
        return tool_call("finish", n="many") if not results(request) else tool_call("finish", n=3)

    model = cast({"counter": counts}, delegating({"agent": "counter", "task": "count"}))
    async with home.runtime(provider=model, agents=[agent("counter", result=schema)]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "{'n': 3}"


@pytest.mark.parametrize(
    ("role", "status", "told"),
    [
        (lambda request: fault("invalid_request", "no such model"), "failed", "no such model"),
        (lambda request: tool_call("add", a=1, b=1), "budget", "limit of model calls"),
        (lambda request: tool_call("give_up", reason="it is impossible"), "failed", "it is impossible"),
    ],
    ids=["failed", "budget", "gave up"],
)
async def test_a_subagent_that_fails_is_a_result_that_its_parent_can_look_at(
    home: Home, role: object, status: str, told: str
) -> None:
    model = cast({"worker": role}, delegating({"agent": "worker", "task": "try"}))  # type: ignore[dict-item]
    worker = agent("worker", iterations=2, result={"type": "object"} if told.startswith("it is") else None)
    async with home.runtime(provider=model, agents=[worker], tools=[add]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        (call,) = result.tool_calls
        assert call.is_error
        assert call.result["status"] == status
        assert told in call.result["error"]
        assert call.result["session"] == "chat.q-2"
        assert (await child_of(session, "q-2")).state is State.FAILED
        assert result.is_success  # the parent goes on


async def test_a_subagent_that_takes_too_long_is_cancelled(home: Home) -> None:
    model = cast(
        {"slow": lambda request: reply("late", delay_s=HANG_S)},
        delegating({"agent": "slow", "task": "sleep", "timeout_s": 0.2}),
    )
    async with home.runtime(provider=model, agents=[agent("slow")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.tool_calls[0].result["status"] == "timeout"
        with session.mount.engine.watch("chat.q-2") as changes:
            while not (await child_of(session, "q-2")).is_terminal:
                await changes.changed()
        assert (await child_of(session, "q-2")).state is State.CANCELLED


async def test_a_name_that_the_model_made_up_is_told_to_it(home: Home) -> None:
    model = cast({}, delegating({"agent": "nobody", "task": "x"}, {"agent": "echo"}, {"agent": "echo", "task": " "}))
    async with home.runtime(provider=model, agents=[agent("echo")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        unknown, missing, empty = (call.result for call in result.tool_calls)
        assert unknown["code"] == "unknown_agent"
        assert "task" in missing["error"]
        assert "empty" in empty["error"]


async def test_a_turn_starts_so_many_subagents_and_no_more(home: Home) -> None:
    model = cast({"echo": echo}, delegating(*({"agent": "echo", "task": f"t{n}"} for n in range(4))))
    async with home.runtime(provider=model, agents=[agent("echo")], delegation={"children": 3}) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert [call.is_error for call in result.tool_calls] == [False, False, False, True]
        assert result.tool_calls[3].result["code"] == "too_many_subagents"


async def test_depth_ends_with_a_subagent_that_has_no_tool_to_delegate(home: Home) -> None:
    def below(request: ModelRequest) -> ScriptStep:
        if not any(tool.name == "delegate" for tool in request.tools):
            return "the bottom"
        return delegating({"agent": "deeper", "task": "further"})(request)

    model = cast({"deeper": below}, delegating({"agent": "deeper", "task": "down"}))
    async with home.runtime(provider=model, agents=[agent("deeper")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "the bottom"
        bottom = await child_of(session, "q-2.q-2.q-2")
        assert bottom.state is State.COMPLETED
    offered = [any(tool.name == "delegate" for tool in request.tools) for request in model.requests]
    assert offered.count(False) == 1  # three levels: two that can delegate, and the third that cannot


async def test_five_levels_are_the_most_that_a_host_may_allow(home: Home) -> None:
    async with home.runtime("hi", agents=[agent("leaf")]) as runtime:
        await runtime.session("deep").spec(delegation={"depth": 5}).open()
        with pytest.raises(InvalidValueError, match="depth must lie between 0 and 5, got 6"):
            await runtime.session("deeper").spec(delegation={"depth": 6}).open()


async def test_usage_rolls_up_under_subagent_and_by_model(home: Home) -> None:
    def middle(request: ModelRequest) -> ScriptStep:
        return delegating({"agent": "leaf", "task": "x"})(request)

    model = cast({"middle": middle, "leaf": saying("ok")}, delegating({"agent": "middle", "task": "y"}))
    agents = [agent("middle", model="m-2"), agent("leaf", model="m-3")]
    async with home.runtime(provider=model, agents=agents) as runtime:
        session = await runtime.session("chat").open()
        report = (await session.turn("go").run(wait=HANG_S)).report
        assert report.by_source["turn"] == TokenUsage(input=20, output=10, calls=2)
        assert report.by_source["subagent"] == TokenUsage(input=27, output=13, calls=3)
        assert report.by_model["m-1"] == TokenUsage(input=20, output=10, calls=2)
        assert report.by_model["m-2"] == TokenUsage(input=20, output=10, calls=2)
        assert report.by_model["m-3"] == TokenUsage(input=7, output=3, calls=1)
        assert report.unsettled == 0
        known = (await session.mount.holdfast.session("chat")).metrics
        assert known.total_tokens == report.total.total
        assert known.llm_calls == 5


async def test_a_long_result_is_cut_and_the_rest_can_be_read(home: Home) -> None:
    text = "\n".join(f"line {number}" for number in range(1_000))

    def parent(request: ModelRequest) -> ScriptStep:
        match results(request):
            case []:
                return tool_call("delegate", agent="writer", task="write")
            case [cut]:
                assert "read_output, id 'q-2'" in str(cut)
                return tool_call("read_output", id="q-2", from_line=500, lines=2)
            case found:
                return str(found[-1])

    async with home.runtime(provider=cast({"writer": saying(text)}, parent), agents=[agent("writer")]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert "line 499\nline 500" in result.text
        answered = [e.record for e in await entries(session, "chat") if isinstance(e.record, AnsweredRecord)]
        (whole,) = [r.answer for r in answered if r.query_id == "q-2"]
        assert subagent_result(whole).text == text


async def test_a_subagent_has_those_of_its_parents_tools_that_its_definition_names(home: Home) -> None:
    async def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    model = cast(
        {"adder": echo, "all": echo}, delegating({"agent": "adder", "task": "1"}, {"agent": "all", "task": "2"})
    )
    agents = [agent("adder", tools=["add", "mult*"]), agent("all", deny=["delegate"])]
    async with home.runtime(provider=model, agents=agents, tools=[add, multiply]) as runtime:
        session = await runtime.session("chat").spec(deny=["multiply"]).open()
        await session.turn("go").run(wait=HANG_S)
    tools = {request.system: {tool.name for tool in request.tools} for request in model.requests}
    assert tools["adder"] == {"add", "read_output"}  # its parent may not multiply
    assert tools["all"] == {"add", "read_output"}


async def test_what_a_host_answers_in_place_of_a_subagent_is_its_result(home: Home) -> None:
    assert subagent_result(Value(value="by hand")) == SubagentResult(status="ok", text="by hand")
    assert subagent_result(Value(value=[1])).content == [1]
    assert subagent_result(Failure("too late", "timeout")).status == "timeout"
    assert subagent_result(Failure("gone", "child_failed")).status == "failed"
