"""The property of forks: forked anywhere and told the same, a session takes the same way to its end."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import TextBlock, ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import InputQuery, ReplyQuery
from holdfast.agent.machine.turn import RecordedReply
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.agent.machine.turn_limits import Limits
from holdfast.core.fork_points import ForkPoint
from holdfast.core.queries import Failure, Query, ToolQuery, Value
from holdfast.core.records import Program, Record, StartedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import quiet
from tests.examples import examples

_numbers = itertools.count()
_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Holdfast]:
    if url != "sqlite:":
        async with quiet(url) as hf:
            yield hf
        return
    with tempfile.TemporaryDirectory() as folder:
        async with quiet(f"sqlite:///{folder}/s.db") as hf:
            yield hf


async def trace(hf: Holdfast, session_id: str) -> list[Record]:
    """What happened, but for the id under which, and when."""
    records = [entry.record async for entry in hf.store.journal(session_id)]
    assert isinstance(records[0], StartedRecord)
    return [msgspec.structs.replace(records[0], forked_from=None), *records[1:]]


Answering = Callable[[Conversation, Query], Any]
"""What a query is answered with; None ends the run."""


async def run_on(hf: Holdfast, session_id: str, answering: Answering) -> list[Record]:
    """Answer whatever is asked, the first query first, until there is nothing left to say."""
    while True:
        session = await hf.store.load(session_id)
        if session.is_terminal:
            break
        conversation = Conversation(session_id)
        async for entry in hf.store.journal(session_id):
            conversation.apply(entry)
        asked = next(iter(session.pending.values())).query
        answer = answering(conversation, asked)
        if answer is None:
            break
        await hf.feed(session_id, {asked.id: answer})
    return await trace(hf, session_id)


async def assert_forks_agree(hf: Holdfast, source: str, answering: Answering, share: st.DataObject | None) -> None:
    """Fork at every place that was drawn: after each record, and at each point by its name."""
    whole = await run_on(hf, source, answering)
    points = await hf.fork_points(source)
    reach = len(whole)
    if share is None:
        positions, named = list(range(1, reach + 1)), points
    else:
        positions = share.draw(st.lists(st.integers(1, reach), min_size=1, max_size=3, unique=True))
        named = share.draw(st.lists(st.sampled_from(points), max_size=3))
    for at in positions:
        event = await hf.fork(source, at, id=f"{source}-at-{next(_numbers)}", wait=0)
        assert await run_on(hf, event.session_id, answering) == whole, at
    for point in named:
        event = await hf.fork(source, **place_of(point), id=f"{source}-p-{next(_numbers)}", wait=0)
        assert await run_on(hf, event.session_id, answering) == whole, point


def place_of(point: ForkPoint) -> dict[str, Any]:
    match point.kind:
        case "start":
            return {"at": 1}
        case "pause":
            return {"before": point.id}
        case kind:
            return {kind: point.id}


# --- strategies ------------------------------------------------------------------------------------


@holdfast.strategy(name="forks-drawn")
async def drawn(ctx: Context) -> Any:
    """Does what it is told: asks one or several things, alone or side by side, and notes what it does."""
    said: list[Any] = []
    for number, act in enumerate(ctx["acts"]):
        match act:
            case "log":
                ctx.log(f"{number}: {len(said)} answers")
            case "stat":
                ctx.stats.record("answers", len(said))
            case "ask":
                said.append(await ctx.llm(f"{number}? {said}"))
            case "batch":
                said.append(await ctx.llm_batch([f"{number}.{part}?" for part in range(3)]))
            case "gather":
                said += await asyncio.gather(ctx.llm(f"{number} left?"), ctx.ask(f"{number} right?"))
            case "fail":
                try:
                    await ctx.llm(f"{number} fails?")
                except holdfast.QueryFailedError as error:
                    said.append(str(error))
            case "draw":
                said.append(ctx.uuid())
    return said


ACTS = st.lists(st.sampled_from(["log", "stat", "ask", "ask", "batch", "gather", "fail", "draw"]), max_size=6)


def told(conversation: Conversation, query: Query) -> Any:
    text = getattr(query, "prompt", "")
    return Failure("no", "no") if "fails" in text else Value(value=f"{query.id}: {text[::-1]}")


async def check_strategy(url: str, acts: list[str], share: st.DataObject | None) -> None:
    async with opened(url) as hf:
        source = f"s{next(_numbers)}"
        await hf.start("forks-drawn", ctx={"acts": acts}, id=source)
        await assert_forks_agree(hf, source, told, share)


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
@given(acts=ACTS, share=st.data())
@settings(max_examples=examples(13), deadline=None, suppress_health_check=_SLOW)
def test_a_strategy_forked_anywhere_and_told_the_same_takes_the_same_way(
    url: str, acts: list[str], share: st.DataObject
) -> None:
    asyncio.run(check_strategy(url, acts, share))


def test_a_strategy_forked_at_every_place_on_postgresql_takes_the_same_way(server: str) -> None:
    acts = ["log", "ask", "stat", "log", "batch", "gather", "fail"]
    asyncio.run(check_strategy(fresh_database(server), acts, None))


# --- agents ----------------------------------------------------------------------------------------

SCRIPTS = st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3)
"""For each turn: how many tools each reply calls, before the one that says something."""


def agent_answers(script: list[list[int]]) -> Answering:
    def answer(conversation: Conversation, query: Query) -> Any:
        match query:
            case InputQuery():
                number = len(conversation.turns)
                if number == len(script):
                    return None
                given = TurnInput(turn=f"t-{number}", content=[TextBlock(f"do {number}")])
                return Value(value=msgspec.to_builtins(given))
            case ReplyQuery(iteration=iteration):
                calls = script[len(conversation.turns) - 1]
                text = [TextBlock(f"reply {iteration} on {len(conversation.window)}")]
                if iteration > len(calls):
                    return Value(value=msgspec.to_builtins(RecordedReply(content=[*text])))
                uses = [ToolUseBlock(f"c-{iteration}-{n}", "look", {"n": n}) for n in range(calls[iteration - 1])]
                return Value(value=msgspec.to_builtins(RecordedReply(content=[*text, *uses], stop="tool_use")))
            case ToolQuery(arguments={"n": 2}):
                return Failure("it broke", "broke")
            case ToolQuery(arguments=arguments):
                return Value(value={"seen": arguments})
            case _:
                raise AssertionError(query)

    return answer


async def check_agent(url: str, script: list[list[int]], share: st.DataObject | None) -> None:
    policy = msgspec.to_builtins(Policy(provider="by-hand", model="m", limits=Limits(iterations=3)))
    async with opened(url) as hf:
        source = f"s{next(_numbers)}"
        await hf.start(Program(kind="agent", name="a"), ctx={"policy": policy}, id=source, wait=0)
        await assert_forks_agree(hf, source, agent_answers(script), share)


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
@given(script=SCRIPTS, share=st.data())
@settings(max_examples=examples(10), deadline=None, suppress_health_check=_SLOW)
def test_an_agent_forked_anywhere_and_told_the_same_takes_the_same_way(
    url: str, script: list[list[int]], share: st.DataObject
) -> None:
    asyncio.run(check_agent(url, script, share))


def test_an_agent_forked_at_every_place_on_postgresql_takes_the_same_way(server: str) -> None:
    asyncio.run(check_agent(fresh_database(server), [[2, 1], [], [3]], None))
