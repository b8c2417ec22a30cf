"""Forks: which record a fork is made after, and the new session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from holdfast.core.errors import HoldfastError, InvalidValueError, SessionExistsError
from holdfast.core.events import Event
from holdfast.core.fork_points import ForkPoint, ForkPoints
from holdfast.core.ids import check_id, new_session_id
from holdfast.core.kinds import load_kinds, registered_kinds
from holdfast.core.records import AdoptedRecord, Entry, Fork, Imported, Program, StartedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.engine import Engine
from holdfast.engine.errors import ForkPointError
from holdfast.programs.kinds import find_language
from holdfast.programs.language import StepLimits
from holdfast.store.commits import Commit
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError, ForkPositionError
from holdfast.store.limits import READ_LIMIT


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where to fork: after a position, before a query, or at a place of the program kind; at the end by default."""

    at: int | None = None
    before: str | None = None
    named: tuple[str, str] | None = None
    """A word of the program kind, as `turn` or `node` of agents, and the id of the place."""
    limits: StepLimits | None = None
    """Other limits for the steps of the fork's program. Then the default place is before the end, so that a session
    which a limit has stopped goes on."""

    @classmethod
    def chosen(
        cls, at: int | None, before: str | None, places: Mapping[str, str | None], limits: StepLimits | None = None
    ) -> ForkRequest:
        """The one place that was given; `InvalidValueError` if there are several, or a word that no kind has."""
        load_kinds()
        known = ["at", "before", *(word for kind in registered_kinds() for word in kind.fork_places)]
        given = {"at": at, "before": before, **places}
        given = {word: value for word, value in given.items() if value is not None}
        if unknown := [word for word in given if word not in known]:
            raise InvalidValueError("place of a fork", f"no such place: {unknown[0]} (there are: {', '.join(known)})")
        if len(given) > 1:
            shown = ", ".join(f"{word}={value!r}" for word, value in given.items())
            raise InvalidValueError("place of a fork", f"choose one of {', '.join(known)}; got {shown}")
        named = next(((word, str(value)) for word, value in given.items() if word not in ("at", "before")), None)
        return cls(at=at, before=before, named=named, limits=limits)


async def fork_points(store: Store, session_id: str) -> list[ForkPoint]:
    """Every place to fork a session at, the earliest first; of a damaged one, those before the damage."""
    found = ForkPoints(session_id)
    async for entry in _sound_entries(store, session_id):
        found.apply(entry)
    return sorted(found.points, key=lambda point: point.position)


async def make_fork(engine: Engine, session_id: str, place: ForkRequest, new_id: str | None) -> Event:
    """A new session that shares the records of another up to a place, and continues from there."""
    store = engine.owner.store
    entries = await _shared(store, session_id, place)
    target = check_id(new_id, "session id") if new_id else new_session_id(engine.owner.random.randbytes)
    first = entries[0].record
    assert isinstance(first, StartedRecord)
    origin = first.forked_from.origin if first.forked_from else session_id
    imported = first.imported and await _unadopted(store, session_id, first.imported, len(entries))
    fork = Fork(session_id, len(entries), origin)
    program = first.program if place.limits is None else _limited(first.program, place.limits)
    started = msgspec.structs.replace(first, program=program, forked_from=fork, parent=None, imported=imported)
    own = Entry(1, entries[0].at, started)
    summary = summarize(Session.fold(target, [own, *entries[1:]]))
    commit = Commit(session_id=target, expected=0, entries=[own], summary=summary, owner=engine.owner.name, hold_ms=0)
    try:
        await store.fork(session_id, len(entries), commit)
    except SessionExistsError:
        return await _fork_again(engine, target, fork, is_at_end=place == ForkRequest())
    try:
        return await engine.resume(target)
    except HoldfastError:
        await store.delete(target, engine.owner.now())  # a fork that cannot go on is of no use to anybody
        engine.drop(target)
        raise


def _limited(program: Program, limits: StepLimits) -> Program:
    language = find_language(program.kind)
    if language is None:
        raise InvalidValueError("limits", f"programs of the kind '{program.kind}' have none")
    return language.with_limits(program, limits)


async def _fork_again(engine: Engine, target: str, fork: Fork, *, is_at_end: bool) -> Event:
    """What a fork says that was made before, of the same session and at the same place. One that was asked for at the
    end is the same wherever that was. Raises `SessionExistsError` if there is another session with that id."""
    first = (await engine.owner.store.read(target, 0, 1))[0].record
    assert isinstance(first, StartedRecord)
    made = first.forked_from
    if made is None or made.session_id != fork.session_id:
        raise SessionExistsError(target, f"it is no fork of '{fork.session_id}'")
    if made.position != fork.position and not is_at_end:
        raise SessionExistsError(target, f"it was forked at {made.position}, and not at {fork.position}")
    return msgspec.structs.replace(await engine.event(target), replayed=True)


async def _unadopted(store: Store, session_id: str, imported: Imported, shared: int) -> Imported | None:
    """Where a fork of an imported session comes from: nowhere but here, once that session was adopted."""
    async for entry in store.journal(session_id, imported.position):
        if isinstance(entry.record, AdoptedRecord):
            return None
    return msgspec.structs.replace(imported, position=min(shared, imported.position))


async def _shared(store: Store, session_id: str, place: ForkRequest) -> list[Entry]:
    """The entries that a fork shares."""
    reach = await store.position(session_id)
    found = ForkPoints(session_id)
    entries: list[Entry] = []
    if place.before is None and place.named is None:
        last = reach if place.at is None else place.at
        if not 1 <= last <= reach:
            raise ForkPositionError(session_id, last, reach)
        while len(entries) < last:  # and no further: what comes after may be damaged
            entries += await store.read(session_id, len(entries), min(READ_LIMIT, last - len(entries)))
        for entry in entries:
            found.apply(entry)
        return entries[: found.before_end if place.limits is not None and place.at is None else found.sound]
    async for entry in _sound_entries(store, session_id):
        entries.append(entry)
        found.apply(entry)
    kind, wanted = place.named or ("pause", place.before or "")
    position = found.position(kind, wanted)
    if position is None:
        raise ForkPointError(session_id, "query" if kind == "pause" else kind, wanted, found.near(kind, wanted))
    return entries[:position]


async def _sound_entries(store: Store, session_id: str) -> AsyncIterator[Entry]:
    """The entries of a journal up to the first that cannot be read. Raises only if that is the first of all."""
    position, step = 0, READ_LIMIT
    while True:
        try:
            page = await store.read(session_id, position, step)
        except CorruptSessionError:
            if step == 1:
                if not position:
                    raise
                return
            step = 1  # the ones before it, one by one
            continue
        for entry in page:
            yield entry
        position += len(page)
        if len(page) < step:
            return
