"""Cells that come as calls of a tool are the same cells: only the provider sees a difference."""

from __future__ import annotations

import random

import pytest

from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.providers.provider import ModelReply
from holdfast.agent.rlm.emission import NOT_RUN, RUN_CODE, as_sent, fenced, in_fences
from holdfast.agent.rlm.fence import find_cell
from holdfast.core.errors import InvalidValueError
from holdfast.testing.provider import reply, tool_call
from tests.agent.rlm.helpers import rlm


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_cells_come_as_calls_and_go_back_as_calls_with_their_results() -> None:
    replies = [
        reply("Look.", tool_call("run_code", code="x = add(1, 2)\nprint(x)")),
        tool_call("run_code", code="x + 1"),
        "It is 4.",
    ]
    async with rlm(*replies, tools=[add], build=lambda b: b.rlm(emission="tool")) as agent:
        result = await agent.turn()
        assert result.text == "It is 4."
        assert [request.tools for request in agent.requests] == [[RUN_CODE]] * 3
        assert "call run_code" in agent.requests[0].system
        assert "```python" not in agent.requests[0].system
        call, came, second, more = agent.requests[2].messages[-4:]
        assert call.content[0] == TextBlock("Look.")
        assert isinstance(call.content[1], ToolUseBlock)
        assert call.content[1].input == {"code": "x = add(1, 2)\nprint(x)"}
        assert came.content == [ToolResultBlock(call.content[1].id, (await agent.told())[0])]
        assert "[OUTPUT]\n3" in came.content[0].content  # type: ignore[union-attr]
        assert isinstance(second.content[0], ToolUseBlock)
        assert second.content[0].id != call.content[1].id
        assert more.role == "tool"


async def test_the_journal_has_the_cell_as_text_so_that_everything_else_is_the_same() -> None:
    async with rlm(tool_call("run_code", code="x = 1"), "ok", build=lambda b: b.rlm(emission="tool")) as agent:
        await agent.turn()
        conversation = await agent.runtime.mount.conversations.get("s")
        assert conversation.messages[1].text == "```python\nx = 1\n```"
        assert (await agent.bound())[0].bindings.set["x"].value == 1


async def test_a_fence_is_understood_all_the_same_and_another_call_is_not() -> None:
    replies = ["```python\nx = 1\n```", tool_call("add", a=1, b=2), "ok"]
    async with rlm(*replies, tools=[add], build=lambda b: b.rlm(emission="tool")) as agent:
        await agent.turn()
        told = await agent.told()
        assert "new: x" in told[0]
        assert "no native tool calls" in told[1]
        last = agent.requests[2].messages
        calls = [block for message in last for block in message.content if isinstance(block, ToolUseBlock)]
        assert [call.name for call in calls] == ["run_code"]
        assert '[call of add with {"a":1,"b":2}]' in last[-2].text


async def test_the_emission_is_recorded_and_can_be_changed() -> None:
    async with rlm("ok", "ok", build=lambda b: b.rlm(emission="tool")) as agent:
        await agent.turn()
        again = await agent.runtime.session("s").open()
        assert again.policy.emission == "tool"
        other = await agent.runtime.session("s").rlm(emission="fence").open()
        assert other.policy.emission == "fence"
        with pytest.raises(InvalidValueError, match="'fence' or 'tool', not 'xml'"):
            agent.runtime.session("s").rlm(emission="xml")  # type: ignore[arg-type]


def test_any_code_comes_out_of_its_fence_as_it_went_in() -> None:
    chance = random.Random(5)
    parts = ["```", "````", "'''", '"""', "\n", "\n", "x = 1", "    y", " ", "`", "#", "\\"]
    tried = 0
    for _ in range(3_000):
        code = "".join(chance.choice(parts) for _ in range(chance.randrange(1, 14))).strip("\n ")
        found = find_cell(fenced(code))
        if found.is_closed:  # otherwise it ends inside a string, which is an error in any case
            tried += 1
            assert found.code.strip() == code.strip() or code[:1] in " \t"
    assert tried > 1_000


def test_only_the_first_call_counts_and_a_cell_that_nothing_followed_has_a_result() -> None:
    content: list[ContentBlock] = [
        ToolUseBlock("a", "run_code", {"code": "x = 1"}),
        ToolUseBlock("b", "run_code", {"code": "x = 2"}),
    ]
    made = in_fences(ModelReply(content=content))
    assert made.content == [TextBlock("```python\nx = 1\n```")]
    odd = ModelReply(content=[ToolUseBlock("a", "run_code", {"text": "x"})])
    assert in_fences(odd) == odd
    messages = [
        AgentMessage("user", [TextBlock("go")]),
        AgentMessage("assistant", made.content),
        AgentMessage("user", [TextBlock("wait")]),
    ]
    _, call, result, user = as_sent(messages, "tool")
    assert isinstance(call.content[0], ToolUseBlock)
    assert result.content == [ToolResultBlock(call.content[0].id, NOT_RUN)]
    assert user.text == "wait"
    assert as_sent(messages, "fence") == messages


async def test_out_of_iterations_an_answer_is_made_of_what_is_there_if_that_is_wanted() -> None:
    cells = ["```python\nx = 1\n```", "```python\nx = 2\n```", "So far: 2."]
    async with rlm(*cells, spec={"limits": {"iterations": 2, "on_limit": "answer"}}) as agent:
        result = await agent.turn()
        assert result.text == "So far: 2."
        assert "Nothing more can be run in this turn" in agent.requests[2].messages[-1].text


async def test_a_cell_in_the_last_reply_is_not_run() -> None:
    cells = ["```python\nx = 1\n```", "```python\nx = 2\n```"]
    async with rlm(*cells, spec={"limits": {"iterations": 1, "on_limit": "answer"}}) as agent:
        result = await agent.turn()
        assert result.outcome.limit == "iterations"  # type: ignore[union-attr]
        assert (await agent.table()).variables["x"].preview == "1"
