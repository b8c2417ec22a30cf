"""The benchmarks of agents: turns in memory and on SQLite, with tools, with much state; reopening; and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target, texts
from bench.engine import _child
from bench.floor import SqliteFloor, warm_up
from holdfast.agent.builder import AgentState
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.messages import AgentMessage, TextBlock
from holdfast.core.queries import Usage
from holdfast.testing.provider import Reply, ScriptedProvider, Step, ToolCall

TURNS = 12
"""Turns of one run, as in lash's harness."""

SEEDED = 36
"""Messages that a session begins with there: 18 pairs of a sentence each."""

TOOLS = 6
"""Calls of tools in one turn of `agent-tools`."""

STATE = (300, 3_584)
"""Messages and bytes of each, in `agent-state`."""

REOPENED = 500
"""Turns of the chat that is reopened."""

RUNS = 5

USAGE = Usage(prompt_tokens=100, completion_tokens=20)


def echo(text: str) -> str:
    """Says the text again."""
    return text


def _plain(number: int) -> Step:
    return Reply(parts=[f"The answer to question {number} is short."], usage=USAGE)


def _provider(steps: int, *, tools: int = 0) -> ScriptedProvider:
    script: list[Step] = []
    for number in range(steps):
        if tools:
            calls = [ToolCall("echo", {"text": f"part {part} of {number}"}) for part in range(tools)]
            script.append(Reply(parts=list(calls), usage=USAGE))
        script.append(_plain(number))
    return ScriptedProvider(script)


def _seed(session_id: str, messages: int, size: int = 0) -> AgentState:
    said = texts(size) if size else ["A sentence that somebody said at some time before."]
    roles = ("user", "assistant")
    return AgentState(
        session_id=session_id,
        messages=[
            AgentMessage(roles[number % 2], [TextBlock(said[number % len(said)])])  # type: ignore[arg-type]
            for number in range(messages)
        ],
    )


async def _run(url: str, name: str, *, tools: int = 0, seeded: int = SEEDED, size: int = 0) -> list[float]:
    """Milliseconds of each turn of one run."""
    async with Runtime(url, provider=_provider(TURNS, tools=tools), tools=[echo]) as runtime:
        session = await runtime.session(name).open_with_state(_seed(name, seeded, size))
        return [await _turn(session, number) for number in range(TURNS)]


async def _turn(session: AgentSession, number: int) -> float:
    began = time.perf_counter()
    result = await session.turn(f"Question {number}: what is it?").run()
    assert result.is_success, result.outcome
    return (time.perf_counter() - began) * 1000


async def _rounds(plan: Plan, name: str, run: Callable[[str], Awaitable[list[float]]]) -> list[Round]:
    await run("warm-up")
    rounds = []
    for number in range(1, RUNS + 1):
        turns = await run(f"run-{number}")
        rounds.append(Round(statistics.median(turns)))
        plan.say(f"{name}: run {number}/{RUNS}: {rounds[-1].value:.2f} ms a turn")
    return rounds


async def agent_memory(plan: Plan) -> list[Figure]:
    """Plain turns, turns with tools, and turns on much state, in memory."""
    plain = await _rounds(plan, "agent-memory", lambda name: _run("memory:", name))
    tools = await _rounds(plan, "agent-memory, tools", lambda name: _run("memory:", name, tools=TOOLS))
    count, size = STATE
    state = await _rounds(plan, "agent-memory, state", lambda name: _run("memory:", name, seeded=count, size=size))
    return [
        Figure("agent-memory: a plain turn", "ms", plain, targets=[Target("value", "<=", 3)]),
        Figure(f"agent-memory: a turn with {TOOLS} tools", "ms", tools),
        Figure(f"agent-memory: a plain turn on {count} × {size / 1024:.1f} KiB", "ms", state),
    ]


async def agent_sqlite(plan: Plan) -> list[Figure]:
    """Plain turns on SQLite: how many commits, and how long beside so many raw ones."""
    path, floor_path = plan.directory / "agent.db", plan.directory / "agent-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        await warm_up(floor_path, floor.singles)
        async with Runtime(f"sqlite:///{path}", provider=_provider(2_000), tools=[echo]) as runtime:
            session = await runtime.session("chat").open_with_state(_seed("chat", SEEDED))
            commits: list[str] = []
            runtime.place.holdfast.on_commit(lambda session_id, entries: commits.append(session_id))
            for number in range(200):
                await _turn(session, number)
            rounds, per_turn = [], []
            for number in range(1, plan.repeat + 1):
                before = 1000 / await floor.singles(plan.seconds)
                commits.clear()
                took = statistics.median([await _turn(session, each) for each in range(TURNS)])
                count = len(commits) / TURNS
                after = 1000 / await floor.singles(plan.seconds)
                per_turn.append(Round(count))
                rounds.append(Round(took, before * count, after * count))
                plan.say(f"agent-sqlite: round {number}/{plan.repeat}: {took:.2f} ms, {count:.1f} commits")
    return [
        Figure("agent-sqlite: a plain turn", "ms", rounds, "its commits, raw", [Target("ratio", "<=", 2)]),
        Figure("agent-sqlite: commits of a plain turn", "", per_turn, targets=[Target("value", "<=", 3)]),
    ]


async def agent_reopen(plan: Plan) -> list[Figure]:
    """A new process opens a long chat; and what the chat takes on disk."""
    path = plan.directory / "agent-reopen.db"
    plan.say(f"agent-reopen: a chat of {REOPENED} turns")
    async with Runtime(f"sqlite:///{path}", provider=_provider(REOPENED), tools=[]) as runtime:
        session = await runtime.session("chat").open()
        for number in range(REOPENED):
            await _turn(session, number)
        content = sum(len(message.text.encode()) for message in (await session.read_view()).messages)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rounds = []
    for number in range(1, RUNS + 1):
        took = _child("reopen_alone", str(path), module="agent")
        rounds.append(Round(took))
        plan.say(f"agent-reopen: round {number}/{RUNS}: {took:.1f} ms")
    figures = [Figure(f"agent-reopen: {REOPENED} turns", "ms", rounds, targets=[Target("value", "<=", 20)])]
    return [*figures, *await _bytes(plan), _small(path, content)]


def _small(path: Path, content: int) -> Figure:
    return Figure("agent-bytes: file / text, turns of 60 bytes", "×", [Round(path.stat().st_size / content)])


def reopen_alone(path: str) -> float:
    """Run in a process of its own: milliseconds to open the store and the session."""
    import holdfast.store.sqlite  # noqa: F401 - imports are not part of what is measured

    async def run() -> float:
        began = time.perf_counter()
        async with Runtime(f"sqlite:///{path}", provider=_provider(1)) as runtime:
            await runtime.session("chat").open()
            return (time.perf_counter() - began) * 1000

    return asyncio.run(run())


async def _bytes(plan: Plan) -> list[Figure]:
    """What a chat with messages of 1 KB takes, beside what was said in it."""
    path = plan.directory / "agent-bytes.db"
    said = texts(1024)
    script: list[Step] = [Reply(parts=[said[number % len(said)]], usage=USAGE) for number in range(200)]
    async with Runtime(f"sqlite:///{path}", provider=ScriptedProvider(script)) as runtime:
        session = await runtime.session("chat").open()
        content = 0
        for number in range(200):
            given = said[-1 - number % len(said)]
            result = await session.turn(given).run()
            content += len(given.encode()) + len(result.text.encode())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ratio = path.stat().st_size / content
    name = "agent-bytes: file / text, messages of 1 KB"
    return [Figure(name, "×", [Round(ratio)], targets=[Target("value", "<=", 1.5)])]


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "agent-memory": agent_memory,
    "agent-sqlite": agent_sqlite,
    "agent-reopen": agent_reopen,
}
