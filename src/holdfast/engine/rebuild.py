"""Rebuilding a program: run again on its journal, and compared with it at every step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from holdfast.core.records import (
    AnsweredRecord,
    CompletedRecord,
    Entry,
    FailedRecord,
    KindRecord,
    LoggedRecord,
    PatchedRecord,
    PausedRecord,
    Program,
    Record,
    RefusedRecord,
    StartedRecord,
)
from holdfast.core.replay import OUTCOMES, LazyReplayFold, ReplayFold, Waking
from holdfast.core.state import Session
from holdfast.core.values import fingerprint, preview
from holdfast.programs.contract import (
    AskStep,
    Fold,
    Instance,
    RaiseStep,
    ReplayableInstance,
    ReturnStep,
    Step,
    VersionedInstance,
    is_following,
    is_replayable,
    is_versioned,
)
from holdfast.programs.errors import DivergenceError, InstanceLostError, SnapshotUnusableError

_TOGETHER = 100
"""Steps replayed together: while they are taken, the journal is read on."""


IN_ROW = 200
"""Entries folded or replayed before the other tasks have their turn: a few milliseconds, unless the program is slow.
Counted and not timed, so that a simulation takes the same turns each time."""


async def fold(session_id: str, entries: Sequence[Entry]) -> tuple[ReplayFold, Waking | None]:
    """The session of a journal, and the waking that has no outcome yet."""
    tracker = ReplayFold(session_id)
    return tracker, await read_through(tracker, entries)


async def read_through(tracker: ReplayFold | LazyReplayFold, entries: Sequence[Entry]) -> Waking | None:
    """As `read_on` from the start, for a journal that may be long: the other tasks have their turn in between."""
    waking = None
    for start in range(0, len(entries), IN_ROW):
        if start:
            await asyncio.sleep(0)
        waking = read_on(tracker, waking, entries[start : start + IN_ROW])
    return waking


def read_on(tracker: ReplayFold | LazyReplayFold, waking: Waking | None, entries: Sequence[Entry]) -> Waking | None:
    """Fold what comes next into a session; returns the waking that has no outcome then."""
    for entry in entries:
        if type(entry.record) in OUTCOMES:
            waking = None
        waking = tracker.apply(entry) or waking
    return waking


def last_outcome(entries: Sequence[Entry]) -> int:
    """The position of the program's last outcome; 0 if it has none yet."""
    return next((entry.position for entry in reversed(entries) if type(entry.record) in OUTCOMES), 0)


class ReplayOrigin(NamedTuple):
    """A session and its program while it waited, from which a replay can begin."""

    fold: LazyReplayFold
    instance: Instance


async def rebuild(
    session_id: str,
    entries: Sequence[Entry],
    create: Callable[[Fold], Instance],
    origin: ReplayOrigin | None = None,
) -> tuple[LazyReplayFold, Waking | None, Instance]:
    """As `fold`, with the program as it was after its last recorded outcome, and folded as far as that has looked.

    `entries` are the whole journal, or all that follows after an `origin`. `DivergenceError` if the program does
    anything other than what was recorded.
    """
    tracker, instance = origin if origin is not None else (LazyReplayFold(ReplayFold(session_id)), None)
    unfinished: Waking | None = None
    replayer: ReplayableInstance | None = None
    step: Step | None = None
    requests: list[Any] = []
    replays: list[asyncio.Future[list[Step]]] = []
    outcomes: list[Entry] = []
    answered: dict[str, int] | None = None
    versioned: VersionedInstance | None = None
    patches: dict[int, set[str]] = {}
    following = instance if instance is not None and is_following(instance) else None
    notes = notes_by_step(entries) if following is not None else {}
    last, outcome = last_outcome(entries), 0
    for entry in entries:
        record, position = entry.record, entry.position
        if position % IN_ROW == 0:
            await asyncio.sleep(0)
        if type(record) is not AnsweredRecord and type(record) in OUTCOMES:
            if step is not None and not _asks_the_same(record, step):
                answered = answered or _answer_positions(entries)
                _compare(tracker, entry, step, answered, versioned)
            if replayer is not None:
                outcomes.append(entry)
            outcome, step, unfinished = position, None, None
        waking = tracker.apply(entry)
        if instance is None:
            instance = create(tracker)
            replayer = instance if is_replayable(instance) else None
            if is_versioned(instance):
                versioned, patches = instance, patches_by_step(entries)
                versioned.recorded_patches = ()
            if is_following(instance):
                following, notes = instance, notes_by_step(entries)
        if waking is None:
            continue
        unfinished = waking
        if position < last:
            if replayer is not None:
                requests.append(replayer.step_request(waking))
                if len(requests) == _TOGETHER:
                    replays.append(asyncio.ensure_future(replayer.replay(requests)))
                    requests = []
                continue
            if patches and versioned is not None:
                versioned.recorded_patches = patches.get(outcome, ())
            if following is not None:
                following.recorded_notes = notes.get(outcome, ())
            stepped = (
                instance.resume(waking.at, waking.answers)
                if waking.refusal is None
                else instance.refuse(waking.at, waking.refusal)
            )
            step = stepped if type(stepped) is AskStep or not isinstance(stepped, Awaitable) else await stepped
    if instance is None:
        raise ValueError(f"session '{session_id}' has no journal")
    if versioned is not None:
        versioned.recorded_patches = None
    if following is not None:
        following.recorded_notes = None
    if replayer is not None:
        if requests:
            replays.append(asyncio.ensure_future(replayer.replay(requests)))
        done = await asyncio.gather(*replays)
        for entry, step in zip(outcomes, itertools.chain.from_iterable(done), strict=False):
            if not _asks_the_same(entry.record, step):
                answered = answered or _answer_positions(entries)
                _compare(tracker, entry, step, answered, versioned)
    return tracker, unfinished, instance


class Programs(Protocol):
    """Where programs come from."""

    def create(self, fold: Fold) -> Instance: ...
    def has_snapshots(self, program: Program) -> bool: ...
    def waits_with_snapshot(self, session: Session) -> bool: ...
    async def restore(self, fold: Fold, outcome: int) -> Instance: ...


class Revival:
    """How the program of one session comes back: from its snapshot, where there is one that fits; else by replay."""

    def __init__(self, session_id: str, programs: Programs) -> None:
        self._session_id = session_id
        self._programs = programs
        self.why = ""
        """Why the program was run again although it has snapshots, until the journal says so."""

    async def revive(
        self, entries: Sequence[Entry], origin: ReplayOrigin | None = None
    ) -> tuple[LazyReplayFold, Waking | None, Instance]:
        """As `rebuild`; by the snapshot, where there is one that fits."""
        if origin is not None:
            return await rebuild(self._session_id, entries, self._programs.create, origin)
        outcome = last_outcome(entries)
        if outcome and not self.why and self._has_snapshots(entries[0]):
            tracker = LazyReplayFold(ReplayFold(self._session_id))
            waking = await read_through(tracker, entries)
            instance = await self.restored(tracker, outcome)
            if instance is not None:
                return tracker, waking, instance
        return await rebuild(self._session_id, entries, self._programs.create)

    async def restored(self, fold: Fold, outcome: int) -> Instance | None:
        """The program from the snapshot of its last outcome; None if there is none that fits, or should be."""
        if self.why or not self._programs.waits_with_snapshot(fold.session):
            return None
        try:
            return await self._programs.restore(fold, outcome)
        except SnapshotUnusableError as error:
            self.why = error.why
            return None

    def _has_snapshots(self, first: Entry) -> bool:
        return isinstance(first.record, StartedRecord) and self._programs.has_snapshots(first.record.program)

    def lost(self, error: InstanceLostError) -> None:
        """A program is lost; perhaps because of its snapshot, which is then not tried again."""
        if isinstance(error, SnapshotUnusableError):
            self.why = error.why

    def said(self) -> list[Record]:
        """The note about it for the journal, once."""
        why, self.why = self.why, ""
        return [LoggedRecord(message=f"the program was rebuilt by replay: {why}", source="holdfast")] if why else []


_RECORD = attrgetter("record")


def patches_by_step(entries: Sequence[Entry]) -> dict[int, set[str]]:
    """The patches that the recorded steps took, by the position of the outcome before each step (0 for the first)."""
    patches: dict[int, set[str]] = {}
    if PatchedRecord not in set(map(type, map(_RECORD, entries))):  # as nearly always
        return patches
    outcome = 0
    for entry in entries:
        if type(entry.record) in OUTCOMES:
            outcome = entry.position
        elif type(entry.record) is PatchedRecord:
            patches.setdefault(outcome, set()).add(entry.record.name)
    return patches


def notes_by_step(entries: Sequence[Entry]) -> dict[int, list[KindRecord]]:
    """The records of their kind that the recorded steps left, by the position of the outcome before each step."""
    notes: dict[int, list[KindRecord]] = {}
    outcome = 0
    for entry in entries:
        if type(entry.record) in OUTCOMES:
            outcome = entry.position
        elif isinstance(entry.record, KindRecord):
            notes.setdefault(outcome, []).append(entry.record)
    return notes


def _answer_positions(entries: Sequence[Entry]) -> dict[str, int]:
    """Where the answer to each query is."""
    return {entry.record.query_id: entry.position for entry in entries if type(entry.record) is AnsweredRecord}


def _compare(
    fold: LazyReplayFold, entry: Entry, step: Step, answered: Mapping[str, int], code: VersionedInstance | None
) -> None:
    """Raise `DivergenceError` unless a step ended as recorded. `answered` says where each answer is."""
    record = entry.record
    match record, step:
        case PausedRecord(), AskStep():
            withdrawn = {asked for asked in step.withdrawn if _waited(fold.session, asked, entry, answered)}
            if _same(record.queries, step.queries) and set(record.withdrawn) == withdrawn:
                return
        case RefusedRecord(), AskStep():
            if record.queries == len(step.queries):
                return
        case CompletedRecord(), ReturnStep():
            if _same(record.result, step.result):
                return
        case FailedRecord(), RaiseStep():
            return
        case _:
            pass
    where = str(step.where) if isinstance(step, AskStep) else ""
    sides, started = (_description(record), _description(step)), fold.session.started
    if code is None or started is None:
        raise DivergenceError(fold.session_id, entry.position, *sides, where)
    raise DivergenceError(
        fold.session_id, entry.position, *sides, where, started.program.version, code.version, code.file
    )


def _asks_the_same(record: Record, step: Step) -> bool:
    """Whether a step asked what is recorded, word for word, and withdrew nothing: as nearly all do."""
    if type(record) is not PausedRecord or type(step) is not AskStep:
        return False
    return record.queries == step.queries and not record.withdrawn and not step.withdrawn


def _waited(session: Session, asked: str, entry: Entry, answered: Mapping[str, int]) -> bool:
    """Whether a query was waited for when the program went on at an entry; the session may know more by now."""
    if asked in answered:
        return answered[asked] > entry.position
    gone = entry.record.withdrawn if isinstance(entry.record, PausedRecord) else []
    return asked in session.pending or asked in gone


def _same(recorded: object, now: object) -> bool:
    return recorded == now or fingerprint(recorded) == fingerprint(now)


def _description(what: Record | Step) -> str:
    match what:
        case PausedRecord(queries=queries) | AskStep(queries=queries):
            return "; ".join(f"{query.id} {preview(query)}" for query in queries) or "nothing new"
        case CompletedRecord(result=result) | ReturnStep(result=result):
            return f"the result {preview(result)}"
        case FailedRecord(error=error) | RaiseStep(error=error):
            return f"the error {error}"
        case _:
            return preview(what)
