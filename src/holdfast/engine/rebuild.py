"""Rebuilding a program: run again on its journal, and compared with it at every step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.core.records import CompletedRecord, Entry, FailedRecord, PausedRecord, Record, RefusedRecord
from holdfast.core.replay import OUTCOMES, Tracker, Waking
from holdfast.core.state import Session
from holdfast.core.values import fingerprint, preview
from holdfast.programs.contract import Asked, Instance, Raised, Replayer, Returned, Step
from holdfast.programs.errors import DivergenceError

_TOGETHER = 100
"""Steps replayed together: while they are taken, the journal is read on."""


def fold(session_id: str, entries: Sequence[Entry]) -> tuple[Tracker, Waking | None]:
    """The session that a journal tells of, and the waking that has not come to an outcome yet."""
    tracker = Tracker(session_id)
    waking: Waking | None = None
    for entry in entries:
        if isinstance(entry.record, OUTCOMES):
            waking = None
        waking = tracker.apply(entry) or waking
    return tracker, waking


async def rebuild(
    session_id: str, entries: Sequence[Entry], create: Callable[[Session], Instance]
) -> tuple[Tracker, Waking | None, Instance]:
    """As `fold`, with the program as it was after its last recorded outcome, in one pass.

    `DivergenceError` if it does something else than then.
    """
    tracker = Tracker(session_id)
    unfinished: Waking | None = None
    instance: Instance | None = None
    replayer: Replayer | None = None
    step: Step | None = None
    briefs: list[Any] = []
    replays: list[asyncio.Future[list[Step]]] = []
    outcomes: list[Entry] = []
    last_outcome = max((entry.position for entry in entries if isinstance(entry.record, OUTCOMES)), default=0)
    for entry in entries:
        if isinstance(entry.record, OUTCOMES):
            if step is not None:
                _compare(tracker.session, entry, step)
            outcomes.append(entry)
            step = unfinished = None
        waking = tracker.apply(entry)
        unfinished = waking or unfinished
        if instance is None:
            instance = create(tracker.session)
            replayer = instance if isinstance(instance, Replayer) else None
        if waking is not None and entry.position < last_outcome:
            if replayer is not None:
                briefs.append(replayer.brief(waking))
                if len(briefs) == _TOGETHER:
                    replays.append(asyncio.ensure_future(replayer.replay(briefs)))
                    briefs = []
                continue
            stepped = resume(instance, waking)
            step = await stepped if isinstance(stepped, Awaitable) else stepped
    if instance is None:
        raise ValueError(f"session '{session_id}' has no journal")
    if replayer is not None:
        if briefs:
            replays.append(asyncio.ensure_future(replayer.replay(briefs)))
        done = await asyncio.gather(*replays)
        for entry, step in zip(outcomes, itertools.chain.from_iterable(done), strict=False):
            _compare(tracker.session, entry, step)
    return tracker, unfinished, instance


def resume(instance: Instance, waking: Waking) -> Step | Awaitable[Step]:
    """Wake a program as its journal says."""
    if waking.refusal is not None:
        return instance.refuse(waking.at, waking.refusal)
    return instance.resume(waking.at, waking.answers)


def _compare(session: Session, entry: Entry, step: Step) -> None:
    record = entry.record
    match record, step:
        case PausedRecord(), Asked():
            withdrawn = {asked for asked in step.withdrawn if asked in session.pending}
            if _same(record.queries, step.queries) and set(record.withdrawn) == withdrawn:
                return
        case RefusedRecord(), Asked():
            if record.queries == len(step.queries):
                return
        case CompletedRecord(), Returned():
            if _same(record.result, step.result):
                return
        case FailedRecord(), Raised():
            return
        case _:
            pass
    where = step.where if isinstance(step, Asked) else ""
    raise DivergenceError(session.id, entry.position, _told(record), _told(step), where)


def _same(recorded: object, now: object) -> bool:
    return recorded == now or fingerprint(recorded) == fingerprint(now)


def _told(what: Record | Step) -> str:
    match what:
        case PausedRecord(queries=queries) | Asked(queries=queries):
            return "; ".join(f"{query.id} {preview(query)}" for query in queries) or "nothing new"
        case CompletedRecord(result=result) | Returned(result=result):
            return f"the result {preview(result)}"
        case FailedRecord(error=error) | Raised(error=error):
            return f"the error {error}"
        case _:
            return preview(what)
