"""The benchmarks of watching: from a commit to its watcher, memory of subscriptions, and what they cost the owner."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from bench import Figure, Plan, Round, Target, UnavailableError, latencies
from bench.engine import _child, _resident
from holdfast.agent.observed_events import TurnEndedEvent
from holdfast.agent.observer import Observer, Observers
from holdfast.agent.runtime import Runtime
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, ScriptedStream

TURNS = 100
"""Turns that are watched: some 500 commits."""

SUBSCRIPTIONS = 10_000

PIECES = 100
"""Pieces of text in a turn whose owner is watched."""

WATCHERS = (0, 100, 1_000)

ROUNDS = 5


def _provider(pieces: int = 3) -> ScriptedProvider:
    return ScriptedProvider(
        [ScriptedReply(parts=[ScriptedStream([f"piece {number} " for number in range(pieces)])])], loop=True
    )


# --- latency ---------------------------------------------------------------------------------------


async def _seen_at(observer: Observer, cursor: str | None, last: str) -> dict[int, float]:
    """When each position was first seen, until a turn is over."""
    seen_at: dict[int, float] = {}
    async with contextlib.aclosing(observer.subscribe_from(cursor)) as events:
        async for seen in events:
            position = getattr(seen.event, "position", None)
            if position is not None:
                seen_at.setdefault(position, time.perf_counter())
            if isinstance(seen.event, TurnEndedEvent) and seen.event.turn == last:
                break
    return seen_at


async def _owned(url: str, watched: Callable[[Runtime, str], Any]) -> list[float]:
    """Milliseconds from each commit of a session's owner to its watcher."""
    committed: dict[int, float] = {}

    def note(session_id: str, entries: Any) -> None:
        committed.update((entry.position, time.perf_counter()) for entry in entries)

    async with Runtime(url, provider=_provider(), model="m") as runtime:
        session = await runtime.session("chat").open()
        runtime.mount.holdfast.on_commit(note)
        async with watched(runtime, f"t-{TURNS - 1}") as seen:
            for number in range(TURNS):
                await session.turn(f"Question {number}").id(f"t-{number}").run()
                await asyncio.sleep(0.001)  # a watcher that is behind would be measured with what it is behind by
            seen_at: dict[int, float] = await seen
    return sorted((at - committed[position]) * 1000 for position, at in seen_at.items() if position in committed)


@contextlib.asynccontextmanager
async def _watched_here(runtime: Runtime, last: str) -> AsyncIterator[Any]:
    observer = runtime.observe("chat")
    watching = asyncio.create_task(_seen_at(observer, (await observer.current()).cursor, last))
    await asyncio.sleep(0.05)
    yield watching


@contextlib.asynccontextmanager
async def _watched_elsewhere(runtime: Runtime, last: str) -> AsyncIterator[Any]:
    """The clock of `perf_counter` is the machine's, on Linux: processes can be compared by it."""
    program = f"from bench import observe; observe.watch_alone({runtime.mount.store.url!r}, {last!r})"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe)
    assert child.stdout is not None
    if await child.stdout.readline() != b"ready\n":
        raise AssertionError("the watcher did not begin")

    async def seen() -> dict[int, float]:
        assert child.stdout is not None
        seen = json.loads(await child.stdout.read())
        return {int(position): at for position, at in seen.items()}

    yield seen()
    await child.wait()


def watch_alone(url: str, last: str) -> None:
    """Run in a process of its own: watch, and print when each position was seen."""

    async def run() -> None:
        async with open_holdfast(url, upkeep=Upkeep(on=False)) as hf:
            observer = Observers(hf).observe("chat")
            cursor = (await observer.current()).cursor
            watching = asyncio.create_task(_seen_at(observer, cursor, last))
            await asyncio.sleep(0.1)
            print("ready", flush=True)
            print(json.dumps(await watching))

    asyncio.run(run())


SEEN = "commit to watcher"


async def here(plan: Plan) -> list[Figure]:
    """In the owner's process."""
    memory = await _owned("memory:", _watched_here)
    sqlite = await _owned(f"sqlite:///{plan.directory}/observe-here.db", _watched_here)
    return [*latencies(plan, SEEN, "observe-memory", memory), *latencies(plan, SEEN, "observe-sqlite", sqlite)]


async def elsewhere(plan: Plan) -> list[Figure]:
    """In another process, on SQLite."""
    found = await _owned(f"sqlite:///{plan.directory}/observe-elsewhere.db", _watched_elsewhere)
    return latencies(plan, SEEN, "observe-sqlite, another process", found, 50)


async def postgres(plan: Plan) -> list[Figure]:
    """In another process, on PostgreSQL."""
    with _server(plan) as url:
        found = await _owned(url, _watched_elsewhere)
    return latencies(plan, SEEN, "observe-pg, another process", found, 50)


@contextlib.contextmanager
def _server(plan: Plan) -> Iterator[str]:
    try:
        from holdfast.testing.postgres_server import postgres_server
    except ImportError as error:
        raise UnavailableError(f"no PostgreSQL: {error}") from None
    with postgres_server(plan.directory, durable=True) as url:
        yield url


# --- memory ----------------------------------------------------------------------------------------


async def memory(plan: Plan) -> list[Figure]:
    """What a subscription takes, with the task that waits in it."""
    grown = [_child("memory_alone", str(each), module="observe") for each in (1, 100)]
    for each, took in zip((1, 100), grown, strict=True):
        plan.say(f"observe-subscriptions: {SUBSCRIPTIONS:,} subscriptions to {each} sessions: {took:,.0f} bytes each")
    name = f"observe-subscriptions: each of {SUBSCRIPTIONS:,}"
    return [
        Figure(f"{name}, to one session", "bytes", [Round(grown[0])], targets=[Target("value", "<=", 8_192)]),
        Figure(f"{name}, to 100 sessions", "bytes", [Round(grown[1])]),
    ]


def memory_alone(sessions: str) -> float:
    """Run in a process of its own: the bytes by which it grew for each subscription."""

    async def run() -> float:
        async with Runtime("memory:", provider=_provider(), model="m") as runtime:
            opened = [await runtime.session(f"chat-{number}").open() for number in range(int(sessions))]
            for session in opened:
                await session.turn("Hello").run()
            cursors = [(await session.observe().current()).cursor for session in opened]
            gc.collect()
            before = _resident()

            async def watch(number: int) -> None:
                async for _ in opened[number].observe().subscribe_from(cursors[number]):
                    pass

            tasks = [asyncio.create_task(watch(number % len(opened))) for number in range(SUBSCRIPTIONS)]
            await asyncio.sleep(1)
            gc.collect()
            grown = _resident() - before
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            return grown / SUBSCRIPTIONS

    return asyncio.run(run())


# --- the owner -------------------------------------------------------------------------------------


async def owner(plan: Plan) -> list[Figure]:
    """A turn of many pieces, watched by none and by many, all in one process: what they read is paid by it, too."""
    took: dict[int, list[float]] = {count: [] for count in WATCHERS}
    for number in range(ROUNDS + 1):
        for count in WATCHERS:
            once = await _turn_with(f"{plan.directory}/observe-owner-{count}-{number}.db", count)
            if number:
                took[count].append(once)
    alone = took[0]
    figures = [Figure(f"observe-owner: a turn of {PIECES} pieces, not watched", "ms", [Round(each) for each in alone])]
    for count in WATCHERS[1:]:
        rounds = [Round(mine, floor, floor) for mine, floor in zip(took[count], alone, strict=True)]
        plan.say(f"observe-owner: {count} watchers: {statistics.median(took[count]):.1f} ms")
        figures.append(Figure(f"observe-owner: watched by {count:,}", "ms", rounds, "not watched"))
    return figures


async def _turn_with(path: str, watchers: int) -> float:
    """Milliseconds of a turn with a millisecond between its pieces."""
    pieces = [f"piece {number} " for number in range(PIECES)]
    model = ScriptedProvider([ScriptedReply(parts=[ScriptedStream(pieces, every_s=0.001)])], loop=True)
    async with Runtime(f"sqlite:///{path}", provider=model, model="m") as runtime:
        session = await runtime.session("chat").open()
        observer = session.observe()
        cursor = (await observer.current()).cursor
        tasks = [asyncio.create_task(_seen_at(observer, cursor, "t-0")) for _ in range(watchers)]
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        await session.turn("Go").id("t-0").run()
        took = (time.perf_counter() - began) * 1000
        if tasks:
            await asyncio.wait(tasks)
        return took


BENCHMARKS = {
    "observe-here": here,
    "observe-elsewhere": elsewhere,
    "observe-pg": postgres,
    "observe-subscriptions": memory,
    "observe-owner": owner,
}
