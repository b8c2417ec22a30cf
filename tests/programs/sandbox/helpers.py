"""Sessions of sandboxed Python for tests that try to break them: engines, a host that answers, what was noted."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.core.decide import decide_start
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import ChildQuery, Failure, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery
from holdfast.core.records import Entry, LoggedRecord, Program
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.programs.sandbox.source import python_code
from holdfast.store import Store
from holdfast.store.commits import Commit
from holdfast.testing.patience import HANG_S

SEED = 20_250_607

Answering = Callable[[Query], Any]


@asynccontextmanager
async def engine(url: str | Store = "memory:", *, minds: bool = False, **limits: Any) -> AsyncIterator[Holdfast]:
    """An engine that does only what it is told (unless it minds timers), with these limits of its sandbox."""
    upkeep = Upkeep() if minds else Upkeep(on=False)
    async with asyncio.timeout(HANG_S), open_holdfast(url, upkeep=upkeep) as hf:
        hf.add_kind(PythonKind(**limits))
        yield hf


def code(text: str, **options: Any) -> Program:
    """A strategy as it stands in a test, indented."""
    return python_code(textwrap.dedent(text).lstrip("\n"), **options)


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/sessions.db"


async def begin(store: Store, session_id: str, program: Program, ctx: Any = None, seed: int = SEED) -> None:
    """A session that has started with a known seed, and has not run yet."""
    entry = Entry(1, time.time_ns() // 1_000_000, decide_start(program, ctx=ctx, seed=seed))
    summary = summarize(Session.fold(session_id, [entry]))
    commit = Commit(session_id=session_id, expected=0, entries=[entry], summary=summary, owner="gone", hold_ms=0)
    await store.append(commit)


def told(query: Query) -> str:
    """What a query asks, in a line."""
    match query:
        case LlmQuery() | HumanQuery():
            return query.prompt
        case ToolQuery():
            return f"tool {query.name}"
        case TimerQuery():
            return f"timer {query.delay_ms}"
        case ChildQuery():
            return f"child {query.program}"
        case _:
            raise AssertionError(f"no strategy asks this: {query}")


def asked(event: Event) -> list[str]:
    """What an event puts to the host."""
    assert isinstance(event, PausedEvent), event
    return [told(query) for query in event.queries]


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def failed(event: Event) -> FailedEvent:
    assert isinstance(event, FailedEvent), event
    return event


def echo(query: Query) -> Any:
    return f"<{told(query)}>"


async def converse(
    hf: Holdfast, event: Event, answer: Answering = echo
) -> tuple[list[list[str]], CompletedEvent | FailedEvent]:
    """Answer until there is nothing more to answer: what was asked at each pause, and how it ended."""
    pauses = []
    while isinstance(event, PausedEvent):
        pauses.append(asked(event))
        event = await hf.feed(event.session_id, {query.id: answer(query) for query in event.queries})
    assert isinstance(event, CompletedEvent | FailedEvent), event
    return pauses, event


async def run(
    text: str, answer: Answering = echo, *, ctx: Any = None, budget: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """The result of a strategy, run to its end on an engine of its own."""
    async with engine() as hf:
        event = await hf.start(code(text, **options), ctx=ctx, budget=budget)
        return result((await converse(hf, event, answer))[1])


async def broken(text: str, answer: Answering = echo, *, ctx: Any = None, **options: Any) -> FailedEvent:
    """How a strategy fails, run to its end on an engine of its own."""
    async with engine() as hf:
        event = await hf.start(code(text, **options), ctx=ctx)
        return failed((await converse(hf, event, answer))[1])


async def logged(store: Store, session_id: str, source: str | None = None) -> list[str]:
    """The lines of a session's log, in order."""
    records = [entry.record async for entry in store.journal(session_id)]
    lines = [record for record in records if isinstance(record, LoggedRecord)]
    return [line.message for line in lines if source is None or line.source == source]


async def replays(store: Store, session_id: str) -> list[str]:
    """Why the program of a session was run again, each time it was."""
    before = "the program was rebuilt by replay: "
    return [line.removeprefix(before) for line in await logged(store, session_id, "holdfast") if before in line]


def outcome(event: Event) -> tuple[str, Any, str | None]:
    """How a session ended, without its figures."""
    return event.status, event.result, event.error


# --- a strategy that does everything -----------------------------------------------------------------------

MAIN = """
import asyncio
import random
import time

class Trail:
    def __init__(self):
        self.steps = []
    def add(self, what):
        self.steps.append(what)
        return len(self.steps)

trail = Trail()
seen = {}

def first(n):
    trail.add(llm(f"round {n} dice {random.randint(0, 10**6)} {sorted(seen)} {uuid()}"))
    seen[f"k{n * 7 % 5}"] = trail
    try:
        trail.add(llm_batch([f"batch {n}.{i} {id(trail) == id(seen[f'k{n * 7 % 5}'])}" for i in range(1 + n % 3)]))
    except RuntimeError as error:
        trail.add(str(error))

async def second(n):
    answers = await asyncio.gather(*[llm_async(f"gather {n}.{i} {random.random()}") for i in range(2)])
    state.set("round", {"number": n, "answers": len(answers)})
    trail.add([state.incr("total", len(answers)), state.get("round"), now() == time.time()])
    print("round", n, trail)

async def run(ctx):
    for n in range(ctx["rounds"]):
        first(n)
        stats.record("round", n)
        await second(n)
    return {"trail": trail.steps, "seen": sorted(seen), "stat": stats.get("round"), "last": llm("the end")}
"""

CTX = {"rounds": 4}


def answers(query: Query) -> Any:
    return Failure("nobody knows") if "batch 2.1" in echo(query) else echo(query)


# --- stores and processes ----------------------------------------------------------------------------------


def forget(folder: Path) -> None:
    """Delete all snapshots of a store that no process has open."""
    with sqlite3.connect(folder / "sessions.db") as db:
        db.execute("delete from snapshots")


def own_workers() -> set[int]:
    """The interpreters that this process has started, inside a jail or not."""
    return {pid for pid in _below(os.getpid()) if _program(pid) == "monty"}


def _below(pid: int) -> Sequence[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        found += [each for child in children for each in (child, *_below(child))]
    return found


def _program(pid: int) -> str:
    """The name of its file. Its own name would not do: the script that starts a worker in a jail has the worker's."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""
