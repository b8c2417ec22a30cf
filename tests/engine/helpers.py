"""What the tests of the engine share: sessions driven with a limit on every wait, and journals written by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.decide import decide_start
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import HumanQuery, LlmQuery, Query
from holdfast.core.records import Entry, Program, Record, StartedRecord, attempted_in
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import Store
from holdfast.store.commits import Commit
from holdfast.store.environment import SystemClock

T = TypeVar("T")


class LaterClock(SystemClock):
    """A clock of some days from now."""

    def __init__(self, days: int) -> None:
        super().__init__()
        self._ahead_ms = days * 24 * 3600 * 1000

    def now(self) -> int:
        return super().now() + self._ahead_ms


def ponder(seconds: float) -> None:
    """Compute for a while."""
    time.sleep(seconds)


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/sessions.db"


def quiet(url: str | Store, **options: Any) -> Holdfast:
    """An engine that only does what it is told: no timers, no adoption, no cleaning."""
    return open_holdfast(url, upkeep=Upkeep(on=False), **options)


def asked(event: Event) -> list[Query]:
    """The queries that an event offers."""
    assert isinstance(event, PausedEvent), event
    return event.queries


def prompts(event: Event) -> dict[str, str]:
    """The prompts that an event offers, by query id."""
    return {query.id: query.prompt for query in asked(event) if isinstance(query, (LlmQuery, HumanQuery))}


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def error(event: Event) -> FailedEvent:
    assert isinstance(event, FailedEvent), event
    return event


async def records(store: Store, session_id: str) -> list[Record]:
    return [entry.record async for entry in store.journal(session_id)]


async def of_type(store: Store, session_id: str, kind: type[T]) -> list[T]:
    return [record for record in await records(store, session_id) if isinstance(record, kind)]


async def attempts_at(store: Store, session_id: str) -> list[str]:
    """The queries of the attempts that are in a journal."""
    return [asked for record in await records(store, session_id) for asked in attempted_in(record)]


async def write(
    store: Store,
    session_id: str,
    program: Program | StartedRecord,
    following: Sequence[Record] = (),
    *,
    at: int | None = None,
    owner: str = "gone",
    hold_ms: int = 0,
) -> Session:
    """A session as a process that is gone has left it."""
    started = program if isinstance(program, StartedRecord) else decide_start(program)
    at = time.time_ns() // 1_000_000 if at is None else at
    entries = [Entry(position, at, record) for position, record in enumerate([started, *following], 1)]
    session = Session.fold(session_id, entries)
    commit = Commit(
        session_id=session_id, expected=0, entries=entries, summary=summarize(session), owner=owner, hold_ms=hold_ms
    )
    await store.append(commit)
    return session


async def append_by_hand(store: Store, session_id: str, *records: Record) -> None:
    """The last commit of a process that died before it could tell anybody."""
    session = await store.load(session_id)
    expected = session.position
    entries = [Entry(position, 1, record) for position, record in enumerate(records, expected + 1)]
    for entry in entries:
        session.apply(entry)
    await store.append(
        Commit(
            session_id=session_id,
            expected=expected,
            entries=entries,
            summary=summarize(session),
            owner="gone",
            hold_ms=0,
        )
    )
