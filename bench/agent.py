"""The benchmarks of agents: turns in memory and on SQLite, with tools, with much state; reopening; and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target, texts
from bench.engine import _child
from bench.floor import SqliteFloor, warm_up
from holdfast.agent import live_events as live
from holdfast.agent.machine.approval import Rule
from holdfast.agent.machine.compaction import KEEP_TOKENS
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.machine.prompt import Contribution, layer_of
from holdfast.agent.plugins.approve import Approve
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState
from holdfast.agent.summary_prompt import summary_task
from holdfast.agent.tools import RemoteTool, Tool, ToolContext
from holdfast.core.queries import Usage
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, ScriptedToolCall, ScriptStep

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

CATALOG = 63
"""Tools of the session in `agent-catalog`: those of a few servers."""

UNCHANGED = 1_000
"""Turns of a session in which neither tools nor layers change."""

LONG_CHAT = (2_000, 400)
"""Messages of the chat that is summed up, and bytes of each: two hundred thousand tokens, a full window."""

RUNS = 5

USAGE = Usage(prompt_tokens=100, completion_tokens=20)

ASKS = Approve([Rule.confirm("echo")])


def echo(text: str) -> str:
    """Says the text again."""
    return text


def _plain(number: int) -> ScriptStep:
    return ScriptedReply(parts=[f"The answer to question {number} is short."], usage=USAGE)


def _provider(steps: int, *, tools: int = 0) -> ScriptedProvider:
    script: list[ScriptStep] = []
    for number in range(steps):
        if tools:
            calls = [ScriptedToolCall("echo", {"text": f"part {part} of {number}"}) for part in range(tools)]
            script.append(ScriptedReply(parts=list(calls), usage=USAGE))
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
            runtime.mount.holdfast.on_commit(lambda session_id, entries: commits.append(session_id))
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
    content = await chat(path, REOPENED)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rounds = []
    for number in range(1, RUNS + 1):
        took = _child("reopen_alone", str(path), module="agent")
        rounds.append(Round(took))
        plan.say(f"agent-reopen: round {number}/{RUNS}: {took:.1f} ms")
    figures = [Figure(f"agent-reopen: {REOPENED} turns", "ms", rounds, targets=[Target("value", "<=", 12)])]
    return [*figures, *await _bytes(plan), _small(path, content)]


async def chat(path: Path, turns: int) -> int:
    """Hold a chat of so many short turns, with the id `chat`; returns the bytes of what was said in it."""
    async with Runtime(f"sqlite:///{path}", provider=_provider(turns), tools=[]) as runtime:
        session = await runtime.session("chat").open()
        for number in range(turns):
            await _turn(session, number)
        return sum(len(message.text.encode()) for message in (await session.read_view()).messages)


@contextlib.asynccontextmanager
async def open_chat(path: Path, turns: int) -> AsyncIterator[None]:
    """With a store open, and the chat in it with its whole conversation."""
    async with Runtime(f"sqlite:///{path}", provider=_provider(1)) as runtime:
        session = await runtime.session("chat").open()
        assert len((await session.conversation()).turns) == turns
        yield


def _small(path: Path, content: int) -> Figure:
    ratio = path.stat().st_size / content
    return Figure(
        "agent-bytes: file / text, turns of 60 bytes", "×", [Round(ratio)], targets=[Target("value", "<=", 7)]
    )


def reopen_alone(path: str) -> float:
    """Run in a process of its own: milliseconds to open the store and the session."""
    import holdfast.store.sqlite.store  # noqa: F401 - imports are not part of what is measured

    async def run() -> float:
        began = time.perf_counter()
        async with open_chat(Path(path), REOPENED):
            return (time.perf_counter() - began) * 1000

    return asyncio.run(run())


async def _bytes(plan: Plan) -> list[Figure]:
    """What a chat with messages of 1 KB takes, beside what was said in it."""
    path = plan.directory / "agent-bytes.db"
    said = texts(1024)
    script: list[ScriptStep] = [ScriptedReply(parts=[said[number % len(said)]], usage=USAGE) for number in range(200)]
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


async def catalog(plan: Plan) -> list[Figure]:
    """What 63 tools cost in each of 1,000 turns of a session in which nothing about them changes."""
    provider = ScriptedProvider([_plain(0)], loop=True)
    async with Runtime("memory:", provider=provider, tools=_many_tools()) as runtime:
        session = await runtime.session("chat").open()
        resident = await session.loaded()
        took = []
        for number in range(UNCHANGED):
            await _turn(session, number)
            began = time.perf_counter()
            found = resident.catalog(session.policy)
            told = found.shown_specs(session.policy.catalog_tokens)
            took.append((time.perf_counter() - began) * 1000)
            assert told is provider.requests[0].tools
        builds = resident.builds
        resident.invalidate()
        began = time.perf_counter()
        resident.catalog(session.policy).shown_specs(session.policy.catalog_tokens)
        anew = (time.perf_counter() - began) * 1000
    tenth = UNCHANGED // 10
    growth = statistics.median(took[-tenth:]) / statistics.median(took[:tenth])
    plan.say(f"agent-catalog: {statistics.median(took):.4f} ms a turn, {builds} built, {anew:.2f} ms to build")
    each = [Round(value) for value in took]
    return [
        Figure(f"agent-catalog: {CATALOG} tools, in a turn", "ms", each, targets=[Target("value", "<=", 0.2)]),
        Figure(
            "agent-catalog: the last 100 turns / the first", "×", [Round(growth)], targets=[Target("value", "<=", 2)]
        ),
        Figure("agent-catalog: built in 1,000 turns", "", [Round(builds)], targets=[Target("value", "<=", 1)]),
        Figure(f"agent-catalog: {CATALOG} tools, built anew", "ms", [Round(anew)]),
    ]


async def prompt(plan: Plan) -> list[Figure]:
    """How often the system text of an unchanged session is taken from its cache, and what it costs."""
    core = layer_of(Contribution("intro", texts(400)[0]), *(Contribution("project", text) for text in texts(300)[:20]))
    async with Runtime("memory:", provider=ScriptedProvider([_plain(0)], loop=True), prompt=[core]) as runtime:
        session = await runtime.session("chat").open()
        resident = await session.loaded()
        for number in range(UNCHANGED):
            await _turn(session, number)
        cache = resident.prompts
        share = 100 * cache.hits / (cache.hits + cache.misses)
        plan.say(f"agent-prompt: {cache.hits} of {cache.hits + cache.misses} from the cache")
        tools = resident.catalog(session.policy)

        def timed() -> float:
            began = time.perf_counter()
            resident.prompt(session.policy, None, tools)
            return (time.perf_counter() - began) * 1000

        kept = [Round(timed()) for _ in range(100)]
        anew = []
        for _ in range(100):
            resident.invalidate()
            anew.append(Round(timed()))
    return [
        Figure(
            f"agent-prompt: from the cache in {UNCHANGED:,} turns",
            "%",
            [Round(share)],
            targets=[Target("value", ">=", 99)],
        ),
        Figure("agent-prompt: from the cache", "ms", kept),
        Figure("agent-prompt: rendered anew, 21 contributions", "ms", anew),
    ]


async def approval(plan: Plan) -> list[Figure]:
    """A turn with a tool that somebody approves, beside the same with nobody to ask; and how soon the tool runs."""
    figures = []
    for kind, url in (("memory", "memory:"), ("sqlite", f"sqlite:///{plan.directory / 'agent-approval.db'}")):
        rounds, back = [], []
        async with (
            Runtime(url, provider=_provider(1_000, tools=1), tools=[echo]) as free,
            Runtime(url, provider=_provider(1_000, tools=1), tools=[echo], plugins=[ASKS]) as asking,
        ):
            plain = await free.session(f"{kind}-plain").open()
            asked = await asking.session(f"{kind}-asked").open()
            for number in range(20):
                await _turn(plain, number)
                await _approved(asked, number)
            for number in range(1, plan.repeat + 1):
                before = statistics.median([await _turn(plain, each) for each in range(TURNS)])
                took = [await _approved(asked, each) for each in range(TURNS)]
                after = statistics.median([await _turn(plain, each) for each in range(TURNS)])
                rounds.append(Round(statistics.median(turn for turn, _ in took), before, after))
                back.append(Round(statistics.median(answered for _, answered in took)))
                plan.say(f"agent-approval, {kind}: round {number}/{plan.repeat}: {rounds[-1].value:.2f} ms a turn")
        figures += [
            Figure(f"agent-approval: a turn with an approval, {kind}", "ms", rounds, "the same without"),
            Figure(f"agent-approval: from the answer to the tool, {kind}", "ms", back),
        ]
    return figures


async def _approved(session: AgentSession, number: int) -> tuple[float, float]:
    """Milliseconds of a turn whose call is approved as soon as it is asked, and of them those until the tool ran."""
    began = time.perf_counter()
    answered, ran = began, 0.0

    async def approve(event: live.LiveEvent) -> None:
        nonlocal answered, ran
        if isinstance(event, live.WaitingEvent):
            answered = time.perf_counter()
            await session.answer(event.queries[0].id, "approve")
        elif isinstance(event, live.ToolStartedEvent):
            ran = time.perf_counter()

    result = await session.turn(f"Question {number}: what is it?").stream_to(approve)
    assert result.is_success, result.outcome
    assert ran > answered > began
    return (time.perf_counter() - began) * 1000, (ran - answered) * 1000


def _many_tools() -> list[Tool]:
    """As many tools as a session with a few servers of them has."""

    async def call(arguments: dict[str, object], ctx: ToolContext) -> str:
        return "done"

    said = texts(60)
    properties = {name: {"type": "string", "description": said[place]} for place, name in enumerate(("id", "of", "to"))}
    schema = {"type": "object", "properties": properties}
    return [RemoteTool(f"tool_{number}", said[number], schema, call, owner="the bench") for number in range(CATALOG)]


async def compaction(plan: Plan) -> list[Figure]:
    """A chat of 2,000 messages is summed up: what each part of that takes, and a turn before and after."""
    count, size = LONG_CHAT
    said = texts(size)
    model = ScriptedProvider(
        [lambda request: ScriptedReply(parts=[said[len(request.messages) % len(said)]])], loop=True
    )
    async with Runtime(f"sqlite:///{plan.directory / 'agent-compaction.db'}", provider=model) as runtime:
        session = await runtime.session("chat").open()
        for number in range(count // 2):
            if number % 250 == 0:
                plan.say(f"agent-compaction: {2 * number:,} of {count:,} messages")
            await session.turn(said[number % len(said)]).run()
        parts = await _parts_of_compaction(session)
        before = [Round(await _turn(session, number)) for number in range(TURNS)]
        began = time.perf_counter()
        result = await session.compact()
        took = (time.perf_counter() - began) * 1000
        assert result.is_success, result.outcome
        after = [Round(await _turn(session, number)) for number in range(TURNS)]
    plan.say(f"agent-compaction: {took:.1f} ms, the model left out")
    return [
        Figure("agent-compaction: 2,000 messages, all of it", "ms", [Round(took)], targets=[Target("value", "<=", 50)]),
        *parts,
        Figure("agent-compaction: a turn before", "ms", before),
        Figure("agent-compaction: a turn after", "ms", after),
    ]


async def _parts_of_compaction(session: AgentSession) -> list[Figure]:
    store = session.mount.store
    folds, tails, tasks, frames = [], [], [], []
    for _ in range(RUNS):
        clock = [time.perf_counter()]
        entries = [entry async for entry in store.journal(session.session_id)]
        clock.append(time.perf_counter())
        conversation = Conversation(session.session_id)
        for entry in entries:
            conversation.apply(entry)
        clock.append(time.perf_counter())
        conversation.tree.sum_up(KEEP_TOKENS)
        clock.append(time.perf_counter())
        summary_task(conversation.tree.summed)
        clock.append(time.perf_counter())
        conversation.tree.open("n", 0, conversation.tree.opened("summary", "manual", "Notes."))
        clock.append(time.perf_counter())
        assert conversation.window == conversation.tree.window_of("n")
        read, fold, tail, task, frame = ((later - earlier) * 1000 for earlier, later in itertools.pairwise(clock))
        folds.append(Round(fold, read, read))
        tails.append(Round(tail, read + fold, read + fold))
        tasks.append(Round(task))
        frames.append(Round(frame, read + fold, read + fold))
    whole = "to read and fold it all"
    return [
        Figure("agent-compaction: the journal folded from its start", "ms", folds, "to read it"),
        Figure("agent-compaction: what is kept is chosen", "ms", tails, whole, [Target("ratio", "<=", 0.1)]),
        Figure("agent-compaction: the task for the model is written", "ms", tasks),
        Figure("agent-compaction: the frame is opened", "ms", frames, whole, [Target("ratio", "<=", 0.1)]),
    ]


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "agent-memory": agent_memory,
    "agent-sqlite": agent_sqlite,
    "agent-reopen": agent_reopen,
    "agent-catalog": catalog,
    "agent-prompt": prompt,
    "agent-approval": approval,
    "agent-compaction": compaction,
}
