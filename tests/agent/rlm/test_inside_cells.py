"""Inside a cell, approval, budgets, subagents and forks are what they are everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.runtime import Runtime
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.core.queries import Value
from holdfast.testing.provider import ScriptedProvider
from tests.agent.rlm.helpers import cell, rlm


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def waiting(runtime: Runtime, kind: str, session_id: str = "s", but: str = "") -> Any:
    """The query of a kind that a session waits for, as soon as it does; another one than `but`."""
    while True:
        session = await runtime.mount.holdfast.session(session_id)
        for asked in session.pending.values():
            if asked.query.kind == kind and asked.query.id != but:
                return asked.query
        await asyncio.sleep(0.01)


class TaskModel:
    """A model whose replies depend on whom it plays: the parent by a script, and subagents by their task."""

    id = "scripted"
    model = "m-1"

    def __init__(self, *parent: str, child: Any) -> None:
        self._parent = ScriptedProvider(parent)
        self._child = child
        self.requests = self._parent.requests
        self.tasks: list[str] = []
        self.systems: list[str] = []

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        return self._helped(request) if "HELPER" in request.system else self._parent.stream(request)

    async def _helped(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        self.systems.append(request.system)
        self.tasks.append(request.messages[0].text)
        yield ModelReply(content=[TextBlock(self._child(request))])


HELPER = AgentDefinition(name="helper", description="helps", instructions="HELPER", mode="rlm")


async def test_subagents_are_called_in_a_cell_and_give_their_values_in_the_order_of_calls() -> None:
    code = (
        "a = agent('helper', 'one', seed={'n': 5})\nprint(a, [r['value'] for r in agent_batch('helper', ['x', 'y'])])"
    )
    model = TaskModel(
        cell(code),
        "ok",
        child=lambda request: cell(
            "finish(n * 2)" if "one" in request.messages[0].text else f"finish('{request.messages[0].text[0]}!')"
        ),
    )
    async with Runtime("memory:", provider=model, agents=[HELPER]) as runtime:
        session = await runtime.session("s").rlm().open()
        result = await session.turn("go").run()
        told = [message.text for message in result.messages if message.role == "signal"]
        assert "10 ['x!', 'y!']" in told[0]
        assert len(model.tasks) == 3
        assert all("finish(value) in a cell, with the result" in system for system in model.systems)


async def test_a_subagent_that_fails_is_an_exception_in_the_cell_and_a_status_in_a_batch() -> None:
    code = "try:\n    agent('helper', 'one')\nexcept RuntimeError as e:\n    print('caught', e)\n"
    code += "print(agent_batch('helper', ['x']))"
    model = TaskModel(cell(code), cell("agent('nobody', 'x')"), "ok", child=lambda _: cell("fail('no')"))
    async with Runtime("memory:", provider=model, agents=[HELPER]) as runtime:
        session = await runtime.session("s").rlm().open()
        result = await session.turn("go").run()
        told = [message.text for message in result.messages if message.role == "signal"]
        assert "caught failed: no" in told[0]
        assert "'status': 'failed'" in told[0]
        assert "there is no subagent 'nobody'; there are helper" in told[1]


async def test_at_the_depth_limit_the_function_is_absent_and_the_prompt_says_so() -> None:
    model = TaskModel(cell("agent('helper', 'x')"), "ok", child=lambda _: "")
    async with Runtime("memory:", provider=model, agents=[HELPER], spec={"delegation": {"depth": 0}}) as runtime:
        session = await runtime.session("s").rlm().open()
        result = await session.turn("go").run()
        told = [message.text for message in result.messages if message.role == "signal"]
        assert "there are no subagents here" in told[0]
        assert "There are no subagents here" in model.requests[0].system
        assert "agent_batch(" not in model.requests[0].system
        assert model.tasks == []


async def test_an_approval_inside_a_cell_waits_and_the_cell_goes_on() -> None:
    def confirmed(builder: Any) -> Any:
        return builder.approval(Approval(rules=[Rule("add", "confirm")]))

    code = "total = 0\nfor n in range(3):\n    total = add(total, n + 1)\nprint('total', total)"
    async with rlm(cell(code), "ok", tools=[add], build=confirmed) as agent:
        working = asyncio.create_task(agent.turn())
        asked = ""
        for decision in ("approve", "always"):
            query = await waiting(agent.runtime, "human", but=asked)
            asked = query.id
            await agent.runtime.mount.answer("s", query.id, Value(value={"decision": decision}))
        await working
        assert "total 6" in (await agent.told())[0]


async def test_a_denied_call_raises_in_the_cell() -> None:
    def denied(builder: Any) -> Any:
        return builder.approval(Approval(rules=[Rule("add", "deny")]))

    code = "try:\n    add(1, 2)\nexcept RuntimeError as error:\n    print('caught', error)"
    async with rlm(cell(code), "ok", tools=[add], build=denied) as agent:
        await agent.turn()
        assert "caught add: not approved" in (await agent.told())[0]


async def test_a_turn_that_is_stopped_in_a_cell_ends_and_leaves_the_variables_of_before() -> None:
    async def endless() -> None:
        """Wait."""
        await asyncio.Event().wait()

    async with rlm(cell("x = 1"), cell("x = 2\nendless()"), "again", tools=[endless]) as agent:
        working = asyncio.create_task(agent.turn())
        await waiting(agent.runtime, "tool")
        await agent.session.cancel(reason="enough")
        result = await working
        assert isinstance(result.outcome, StoppedOutcome)
        assert (await agent.table()).variables["x"].preview == "1"
        assert (await agent.turn()).text == "again"


async def test_a_fork_before_a_cell_leaves_the_variables_of_the_original_unchanged() -> None:
    async with rlm(cell("x = [1]"), "a", cell("x.append(2)"), "b", cell("x.append(9)\nprint(x)"), "c") as agent:
        await agent.turn("one")
        entries = await agent.runtime.mount.store.entries("s")
        await agent.runtime.mount.holdfast.fork("s", entries[-1].position, id="f")
        await agent.turn("two")
        other = await agent.runtime.session("f").open()
        result = await other.turn("two").run()
        assert "[1, 9]" in result.messages[-2].text
        assert (await agent.table()).variables["x"].preview == "[1, 2]"
