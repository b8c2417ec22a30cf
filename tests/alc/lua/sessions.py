"""Lua sessions for tests that try to break them: engines with short limits, packages, and a host that answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.core.decide import decide_start
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import LlmQuery, Query
from holdfast.core.records import Entry, LoggedRecord, Program
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.sync import SyncHoldfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import Store
from holdfast.store.commits import Commit
from holdfast.testing.patience import HANG_S
from tests.forks.popen import command_of


@asynccontextmanager
async def engine(url: str | Store = "memory:", **limits: Any) -> AsyncIterator[Holdfast]:
    """An engine that does only what it is told, whose Lua programs have these limits."""
    async with asyncio.timeout(HANG_S), open_holdfast(url, upkeep=Upkeep(on=False)) as hf:
        hf.add_kind(LuaKind(**limits))
        yield hf


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, packages: Mapping[str, str]) -> Path:
    """Packages by name, found by `require`, and nothing else but them."""
    root = folder / "packages"
    for name, source in packages.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "init.lua").write_text(source, encoding="utf-8")
    monkeypatch.setenv("HOLDFAST_HOME", str(folder / "home"))
    monkeypatch.setenv("ALC_HOME", str(folder / "home"))
    monkeypatch.setenv("HOLDFAST_PACKAGES_PATH", str(root))
    monkeypatch.delenv("ALC_PACKAGES_PATH", raising=False)
    return root


async def begin(store: Store, session_id: str, program: Program, seed: int, ctx: Any = None) -> None:
    """A session that has started with a known seed, and has not run yet."""
    entry = Entry(1, time.time_ns() // 1_000_000, decide_start(program, ctx=ctx, seed=seed))
    summary = summarize(Session.fold(session_id, [entry]))
    commit = Commit(session_id=session_id, expected=0, entries=[entry], summary=summary, owner="gone", hold_ms=0)
    await store.append(commit)


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def failed(event: Event) -> FailedEvent:
    assert isinstance(event, FailedEvent), event
    return event


def asked(event: Event) -> list[str]:
    """The prompts that an event puts to the host."""
    assert isinstance(event, PausedEvent), event
    return [query.prompt for query in event.queries if isinstance(query, LlmQuery)]


def echo(query: Query) -> Any:
    assert isinstance(query, LlmQuery)
    return f"<{query.prompt}>"


async def converse(
    hf: Holdfast, event: Event, answer: Callable[[Query], Any] = echo
) -> tuple[list[list[str]], CompletedEvent | FailedEvent]:
    """Answer until there is nothing more to answer: what was asked at each pause, and how it ended."""
    pauses = []
    while isinstance(event, PausedEvent):
        pauses.append(asked(event))
        event = await hf.feed(event.session_id, {query.id: answer(query) for query in event.queries})
    assert isinstance(event, CompletedEvent | FailedEvent), event
    return pauses, event


class Run:
    """A session run to its end: the prompts of each pause, and how it ended."""

    def __init__(self, hf: SyncHoldfast, event: Event, answer: Callable[[Query], Any]) -> None:
        self.id = event.session_id
        self.pauses: list[list[str]] = []
        while isinstance(event, PausedEvent):
            self.pauses.append(asked(event))
            event = hf.feed(event.session_id, {query.id: answer(query) for query in event.queries})
        assert isinstance(event, CompletedEvent | FailedEvent), event
        self.event = event

    @property
    def result(self) -> Any:
        return result(self.event)

    @property
    def error(self) -> str:
        return failed(self.event).error

    def stat(self, name: str) -> Any:
        return self.event.stats["auto"][name]


def run(hf: SyncHoldfast, code: str, answer: Callable[[Query], Any] = echo, *, ctx: Any = None, **options: Any) -> Run:
    return Run(hf, hf.start(lua_code(code), ctx=ctx, **options), answer)


def logs(hf: SyncHoldfast, session_id: str) -> list[LoggedRecord]:
    return [entry.record for entry in hf.watch(session_id) if isinstance(entry.record, LoggedRecord)]


async def logged(store: Store, session_id: str) -> list[LoggedRecord]:
    return [entry.record async for entry in store.journal(session_id) if isinstance(entry.record, LoggedRecord)]


def children_of(pid: int) -> set[int]:
    """The processes that a process has started itself."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found |= {int(child) for child in task.read_text().split()}
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def own_workers() -> set[int]:
    """The Lua workers of this process."""
    return {pid for pid in children_of(os.getpid()) if "holdfast.alc.lua.worker" in command_of(pid)}
