"""`Triggers`: declare events, register what starts because of them or of the clock, and emit."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.processes.machine import process_fold
from holdfast.agent.processes.processes import Processes, derived_process_id
from holdfast.agent.processes.terms import EventWork
from holdfast.agent.schema_check import check_schema, problems_by_schema
from holdfast.agent.triggers.clock import next_time
from holdfast.agent.triggers.errors import (
    EmitConflictError,
    InvalidPayloadError,
    RevisionConflictError,
    TriggerExistsError,
    TriggerMovingError,
    TriggerNotFoundError,
    UnknownEventTypeError,
)
from holdfast.agent.triggers.history import RunReport, TriggerHistory
from holdfast.agent.triggers.machine import (
    KIND,
    ChangeTriggerMessage,
    RemoveTriggerMessage,
    RunTriggerMessage,
    TriggerFold,
    trigger_fold,
)
from holdfast.agent.triggers.terms import (
    CronSource,
    EventSource,
    IntervalSource,
    OnceSource,
    Source,
    Target,
    TriggerTerms,
    check_trigger,
    program_name,
)
from holdfast.core.decide import KindMessage, decide_start
from holdfast.core.errors import InvalidValueError, SessionDeletedError, SessionExistsError
from holdfast.core.ids import check_id, new_item_id
from holdfast.core.records import Program
from holdfast.core.state import Session, State
from holdfast.core.values import Json, fingerprint
from holdfast.engine.holdfast import Holdfast
from holdfast.store.errors import StateConflictError
from holdfast.store.session_rows import SessionFilter

EVENT_TYPES = "holdfast.events"
"""The namespace of declared event types."""

HISTORY = 20
"""Runs that are shown of a trigger, unless more are asked for."""

MOVING_S = 0.05
"""Seconds before a change is tried again that came while a schedule was handed over to its successor."""

MOVING_TRIES = 600
"""How often: for half a minute. Handing over takes two commits, and waits for a worker if its own has died."""

_ALIVE = [State.RUNNING, State.PAUSED]


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """A declared type of events."""

    type: str
    payload: dict[str, Json]
    """The JSON schema of its payloads."""
    description: str = ""
    revision: int = 0


class EmitReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that an event is durable, and the processes that it starts, by trigger."""

    occurrence: str
    """The process that delivers the event."""
    processes: dict[str, str]
    replayed: bool = False


class TriggerView(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as readers see it."""

    id: str
    """Its session."""
    terms: TriggerTerms
    revision: int
    """Changes fence on it."""
    service: str
    next: int | None = None
    """When a schedule is due next (unix ms)."""
    last: str | None = None
    """The process of its latest run."""
    queued: int = 0
    failed: str = ""
    """Why its latest look at the clock failed, if it did."""
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.terms.name

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {"name": self.name, "enabled": self.terms.enabled, **shown}


class Triggers:
    """The triggers and schedules of one store."""

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        self._holdfast = holdfast
        self._processes = processes
        self._runs = TriggerHistory(holdfast, processes)

    # --- event types --------------------------------------------------------------------------------

    async def declare(
        self,
        type: str,
        payload: Mapping[str, Json] | None = None,
        *,
        description: str = "",
        revision: int | None = None,
        service: str | None = None,
    ) -> EventType:
        """Declare a type of events, with the JSON schema of its payloads; without one, anything goes.

        A declaration that says the same again changes nothing. With a `revision`, another one replaces only that.
        """
        schema = dict(payload) if payload is not None else {}
        if schema:
            check_schema(schema)
        key = self._type_key(type, service)
        store, value = self._holdfast.store, {"payload": schema, "description": description}
        known = await store.get_state(EVENT_TYPES, key)
        version = known.version if known is not None else 0
        if known is not None and known.value == value:
            return EventType(type=type, payload=schema, description=description, revision=version)
        if revision is not None and revision != version:
            raise RevisionConflictError(type, revision, version)
        try:
            made = await store.put_state(EVENT_TYPES, key, value, expected=version)
        except StateConflictError:
            found = await store.get_state(EVENT_TYPES, key)
            raise RevisionConflictError(type, version, found.version if found is not None else 0) from None
        return EventType(type=type, payload=schema, description=description, revision=made)

    async def event_types(self, *, service: str | None = None) -> list[EventType]:
        """The declared types of a service."""
        store, prefix, after, found = self._holdfast.store, self._type_key("", service), "", []
        while page := await store.list_state(EVENT_TYPES, prefix=prefix, after=after):
            after = page[-1]
            for key in page:
                if (item := await store.get_state(EVENT_TYPES, key)) is not None:
                    name = key.removeprefix(prefix)
                    found.append(msgspec.convert({"type": name, **item.value, "revision": item.version}, EventType))
        return found

    # --- triggers -----------------------------------------------------------------------------------

    async def register(
        self, name: str, source: Source, target: Target, *, service: str | None = None, **terms: Any
    ) -> TriggerView:
        """Register a trigger: from now on, its source starts its target. The same again is the same trigger.

        `overlap`, `missed` and `missed_limit` are for schedules; `wake` names a session that is woken after each run.
        """
        service = service or self._service
        try:
            made = check_trigger(TriggerTerms(name=name, source=source, target=target, **terms))
        except TypeError as error:
            raise InvalidValueError("trigger", str(error)) from None
        if isinstance(source, EventSource):
            await self._event_type(source.type, service)
        elif isinstance(source, OnceSource) and source.at <= self._holdfast.now():
            return await self._registered_before(made, service)
        ctx = msgspec.to_builtins(made)
        started = decide_start(Program(kind=KIND, name=made.program), service=service, ctx=ctx)
        number = 1
        while True:
            trigger_id = _trigger_id(service, name, number)
            try:
                await self._holdfast.engine.begin(trigger_id, started)
                return await self._view(trigger_id)
            except SessionDeletedError:
                number += 1
            except SessionExistsError:
                session = await self._holdfast.session(trigger_id)
                if not session.is_terminal:
                    return self._same(session, made, service)
                number += 1

    async def _registered_before(self, terms: TriggerTerms, service: str) -> TriggerView:
        """The schedule whose only time has passed, if it was registered in time; it may have ended since."""
        try:
            session = await self._holdfast.session(await self._find(terms.name, service, ended=True))
            return self._same(session, terms, service)
        except (TriggerNotFoundError, TriggerExistsError):
            raise InvalidValueError("schedule", "its time has passed already") from None

    def _same(self, session: Session, terms: TriggerTerms, service: str) -> TriggerView:
        known = trigger_fold(session).terms
        if known is None or fingerprint(_identity(known)) != fingerprint(_identity(terms)):
            raise TriggerExistsError(terms.name, service)
        return _view_of(session)

    async def list(
        self, *, service: str | None = None, session: str | None = None, clock: bool | None = None
    ) -> list[TriggerView]:
        """The triggers of a service, the newest first; with `clock`, only schedules, or only the others."""
        where = SessionFilter(id_prefix=f"{KIND}:{service or self._service}:", states=_ALIVE, parent=session)
        rows = [row for row in await self._holdfast.store.all_sessions(where) if row.summary.program_kind == KIND]
        found = [await self._holdfast.session(row.session_id) for row in rows]
        views = [_view_of(session) for session in found if not trigger_fold(session).state.is_moving]
        return [each for each in views if clock is None or each.terms.is_clock is clock]

    async def show(self, name: str, *, service: str | None = None) -> TriggerView:
        """A trigger by its name. Raises `TriggerNotFoundError`."""
        return await self._view(await self._find(name, service or self._service))

    async def update(
        self,
        name: str,
        *,
        revision: int | None = None,
        by: str | None = None,
        service: str | None = None,
        **changes: Any,
    ) -> TriggerView:
        """Change what a trigger is registered with; what is not named stays.

        With a `revision`, only if nobody else has changed it since: otherwise `RevisionConflictError`.
        """

        def change(terms: TriggerTerms) -> KindMessage:
            try:
                return ChangeTriggerMessage(check_trigger(msgspec.structs.replace(terms, **changes)), revision, by)
            except TypeError as error:
                raise InvalidValueError("trigger", str(error)) from None

        return await self._send(name, service, change)

    async def enable(self, name: str, *, revision: int | None = None, **of: Any) -> TriggerView:
        """Let a trigger start things again. What came while it was disabled is not made up for."""
        return await self.update(name, revision=revision, enabled=True, **of)

    async def disable(self, name: str, *, revision: int | None = None, **of: Any) -> TriggerView:
        """Let a trigger start nothing until it is enabled again."""
        return await self.update(name, revision=revision, enabled=False, **of)

    async def remove(
        self, name: str, *, revision: int | None = None, by: str | None = None, service: str | None = None
    ) -> TriggerView:
        """Remove a trigger. What it has started goes on; its name can be used again."""
        return await self._send(name, service, lambda _: RemoveTriggerMessage(revision, by))

    async def run(
        self, name: str, *, key: str | None = None, by: str | None = None, service: str | None = None
    ) -> TriggerView:
        """Ask for a run now. The same `key` again is the same run."""
        made = key or new_item_id(self._holdfast.engine.owner.random.randbytes)
        return await self._send(name, service, lambda _: RunTriggerMessage(made, by))

    async def history(self, name: str, *, limit: int = HISTORY, service: str | None = None) -> Sequence[RunReport]:
        """The latest runs of a trigger, and those that were left out, the newest first."""
        trigger_id = await self._find(name, service or self._service, ended=True)
        return await self._runs.latest(trigger_id, limit)

    # --- schedules ----------------------------------------------------------------------------------

    async def schedule(
        self,
        name: str,
        target: Target,
        *,
        cron: str | None = None,
        zone: str = "UTC",
        every: float | None = None,
        at: float | None = None,
        **terms: Any,
    ) -> TriggerView:
        """Register a schedule: a trigger whose source is the clock.

        Its times are those of a `cron` expression in a time `zone`, or come `every` so many seconds, or there is one
        (`at`, unix seconds).
        """
        if sum(each is not None for each in (cron, every, at)) != 1:
            raise InvalidValueError("schedule", "give one of cron, every and at")
        source: Source
        if cron is not None:
            source = CronSource(cron=cron, zone=zone)
        elif every is not None:
            source = IntervalSource(every_ms=round(every * 1000), since=self._holdfast.now())
        else:
            assert at is not None
            source = OnceSource(at=round(at * 1000))
        return await self.register(name, source, target, **terms)

    # --- events -------------------------------------------------------------------------------------

    async def emit(
        self,
        type: str,
        key: str = "",
        payload: Json = None,
        *,
        idempotency_key: str | None = None,
        service: str | None = None,
        by: str | None = None,
    ) -> EmitReceipt:
        """Emit an event: each trigger that it concerns starts its target, once.

        The event is durable, with the triggers that it concerns, when this returns. The same `idempotency_key` with the
        same content again is the same event; with other content, `EmitConflictError`.
        """
        service = service or self._service
        declared = await self._event_type(type, service)
        if declared.payload and (problems := list(problems_by_schema(payload, declared.payload))):
            raise InvalidPayloadError(type, problems)
        unique = idempotency_key or new_item_id(self._holdfast.engine.owner.random.randbytes)
        check_id(unique, "idempotency key")
        occurrence = _occurrence_id(service, type, unique)
        work = EventWork(type=type, key=key, payload=payload, triggers=[*await self._concerned(type, key, service)])
        origin: dict[str, Json] = {"idempotency_key": unique, **({"by": by} if by else {})}
        try:
            started = await self._processes.start(
                work, recovery="rerunnable", id=occurrence, service=service, origin=origin
            )
            return _receipt(occurrence, work, replayed=started.replayed)
        except SessionDeletedError:
            return EmitReceipt(occurrence=occurrence, processes={}, replayed=True)  # done, and pruned since
        except SessionExistsError:
            terms = process_fold(await self._holdfast.session(occurrence)).terms
            before = terms.work if terms is not None else None
            if not isinstance(before, EventWork) or (before.key, fingerprint(before.payload)) != (
                key,
                fingerprint(payload),
            ):
                raise EmitConflictError(type, unique) from None
            return _receipt(occurrence, before, replayed=True)

    async def _concerned(self, event_type: str, key: str, service: str) -> Sequence[str]:
        """The sessions of the enabled triggers of an event, in the order in which they were registered."""
        where = SessionFilter(program=program_name(event_type), states=_ALIVE, services=[service])
        found = []
        for row in await self._holdfast.store.all_sessions(where):
            terms = trigger_fold(await self._holdfast.session(row.session_id)).terms
            if terms is None or not terms.enabled or not isinstance(terms.source, EventSource):
                continue
            if terms.source.key in (None, key):
                found.append(row.session_id)
        return found[::-1]

    # --- inside -------------------------------------------------------------------------------------

    @property
    def _service(self) -> str:
        return self._holdfast.engine.owner.offers.services[0]

    def _type_key(self, event_type: str, service: str | None) -> str:
        if event_type:
            check_id(event_type, "event type")
        return f"{check_id(service or self._service, 'service')}:{event_type}"

    async def _event_type(self, event_type: str, service: str) -> EventType:
        item = await self._holdfast.store.get_state(EVENT_TYPES, self._type_key(event_type, service))
        if item is None:
            declared = [each.type for each in await self.event_types(service=service)]
            raise UnknownEventTypeError(event_type, declared)
        return msgspec.convert({"type": event_type, **item.value, "revision": item.version}, EventType)

    async def _find(self, name: str, service: str, *, ended: bool = False) -> str:
        check_id(name, "name of a trigger")
        where = SessionFilter(id_prefix=_trigger_id(service, name, 1), states=[] if ended else _ALIVE)
        rows = await self._holdfast.store.all_sessions(where)
        own = [row for row in rows if _name_in(row.session_id, service) == name and row.summary.program_kind == KIND]
        if not own:
            raise TriggerNotFoundError(name, service)
        return own[0].session_id  # the newest

    async def _view(self, trigger_id: str) -> TriggerView:
        return _view_of(await self._holdfast.session(trigger_id))

    async def _send(
        self, name: str, service: str | None, message: Callable[[TriggerTerms], KindMessage]
    ) -> TriggerView:
        """Send a trigger what follows from its terms; to its successor, if it is just being handed over to that."""
        tries = MOVING_TRIES
        while True:
            trigger_id = await self._find(name, service or self._service)
            terms = trigger_fold(await self._holdfast.session(trigger_id)).terms
            assert terms is not None
            try:
                await self._holdfast.send(trigger_id, message(terms))
                return await self._view(trigger_id)
            except TriggerMovingError:
                if not (tries := tries - 1):
                    raise
                await asyncio.sleep(MOVING_S)


def started_process_id(trigger_id: str, key: str) -> str:
    """The process that a trigger starts because of an occurrence, a time, or a request."""
    return derived_process_id(trigger_id, key)


def _receipt(occurrence: str, work: EventWork, *, replayed: bool) -> EmitReceipt:
    processes = {each: started_process_id(each, occurrence) for each in work.triggers}
    return EmitReceipt(occurrence=occurrence, processes=processes, replayed=replayed)


def _occurrence_id(service: str, event_type: str, key: str) -> str:
    digest = hashlib.sha256("\0".join((service, event_type, key)).encode()).hexdigest()
    return f"o-{digest[:26]}"


def _trigger_id(service: str, name: str, number: int) -> str:
    return f"{KIND}:{service}:{name}" + (f"={number}" if number > 1 else "")


def following_trigger_id(trigger_id: str) -> str:
    """The session after another one of the same name."""
    name, _, number = trigger_id.rpartition("=")
    return f"{name}={int(number) + 1}" if number.isdecimal() else f"{trigger_id}=2"


def _name_in(trigger_id: str, service: str) -> str:
    return trigger_id.removeprefix(f"{KIND}:{service}:").partition("=")[0]


def _identity(terms: TriggerTerms) -> Json:
    """What makes two registrations the same: an interval counts from whenever it was registered first."""
    shown: dict[str, Json] = msgspec.to_builtins(terms)
    if isinstance(terms.source, IntervalSource):
        shown["source"] = {**shown["source"], "since": 0}
    return {**shown, "enabled": True}


def _next_of(session: Session, terms: TriggerTerms) -> int | None:
    """When a schedule is due next: as its last look at the clock found; before the first one, as it will find."""
    state = trigger_fold(session).state
    if state.next is not None or state.failed or isinstance(terms.source, EventSource):
        return state.next
    return next_time(terms.source, state.cursor or session.metrics.started_at)


def _view_of(session: Session) -> TriggerView:
    fold: TriggerFold = trigger_fold(session)
    state, started = fold.state, session.started
    if state.terms is None or started is None:
        raise InvalidValueError("trigger", f"the terms of '{session.id}' cannot be read")
    return TriggerView(
        id=session.id,
        terms=state.terms,
        revision=state.revision,
        service=started.service,
        next=_next_of(session, state.terms) if state.terms.enabled and not session.is_terminal else None,
        last=state.last,
        queued=len(state.queued),
        failed=state.failed,
        is_over=session.is_terminal,
    )
