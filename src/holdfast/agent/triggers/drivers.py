"""The effects of triggers: looking at the clock, starting what is due, handing over, and delivering events."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.agent.processes.drivers import BackgroundDriver
from holdfast.agent.processes.machine import DELIVER_TOOL, EMIT_TOOL
from holdfast.agent.processes.processes import Processes
from holdfast.agent.triggers.clock import plan
from holdfast.agent.triggers.machine import (
    HANDOVER_TOOL,
    INHERITANCE,
    MAX_QUEUED,
    REQUEST,
    TICK_TOOL,
    WAIT_TOOL,
    Tick,
    TriggerRun,
    trigger_fold,
)
from holdfast.agent.triggers.terms import EventSource, TriggerTerms, work_for
from holdfast.agent.triggers.triggers import Triggers, following_trigger_id, started_process_id
from holdfast.core.decide import decide_start
from holdfast.core.errors import HoldfastError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Driver
from holdfast.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from holdfast.engine.holdfast import Holdfast


class _Starter:
    """Starts what a trigger starts, once for each key."""

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        self._holdfast = holdfast
        self._processes = processes

    async def start(self, process: str, trigger: Session, event: dict[str, Json]) -> str:
        """The process of a run, started unless it was before."""
        terms, started = trigger_fold(trigger).terms, trigger.started
        assert terms is not None
        assert started is not None
        # It may have been started before, under other terms; be over, and pruned since.
        with contextlib.suppress(SessionExistsError, SessionDeletedError):
            await self._processes.start(
                work_for(terms.target, event),
                recovery=terms.recovery,
                owner=trigger.id,
                owner_end="abandon",
                wake=terms.wake,
                label=terms.name,
                id=process,
                service=started.service,
                llm=terms.llm,
                origin={"trigger": terms.name, **event},
            )
        return process

    async def was_started(self, process: str) -> bool:
        try:
            await self._holdfast.store.position(process)
        except SessionDeletedError:
            return True
        except SessionNotFoundError:
            return False
        return True

    async def is_at_work(self, process: str | None) -> bool:
        if process is None:
            return False
        try:
            return not (await self._processes.show(process)).handle.is_over
        except SessionNotFoundError:
            return False

    async def cancel(self, process: str, why: str) -> None:
        await self._processes.cancel(process, why, by="trigger")


class TickDriver(BackgroundDriver):
    """Finds out which runs of a trigger are due, starts them, and says when to look again.

    Run again after a crash, it finds the runs that it had started.
    """

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        super().__init__(TICK_TOOL, holdfast)
        self._starter = _Starter(holdfast, processes)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        session = await self._holdfast.session(attempt.session_id)
        fold = trigger_fold(session)
        state, terms, now = fold.state, fold.terms, self._holdfast.now()
        assert terms is not None
        first = fold.first_session(session.id)
        cursor, due, missed, following = state.cursor or session.metrics.started_at, list[str](), 0, None
        if not isinstance(terms.source, EventSource) and terms.enabled:
            found = plan(terms.source, cursor, now, terms.missed, terms.missed_limit)
            cursor, missed, following = found.cursor, found.missed, found.next
            due = [str(at) for at in found.due]
        requests = list(state.requests)
        runs, queued, last = list[TriggerRun](), list[str](), state.last
        for key in [*state.queued, *due, *requests]:
            process = started_process_id(first, key)
            if not await self._starter.was_started(process):
                if await self._starter.is_at_work(last):
                    assert last is not None
                    if terms.overlap == "queue":
                        queued.append(key)
                        continue
                    if terms.overlap == "skip":
                        runs.append(TriggerRun(key, process, "skipped", f"the run before, {last}, was not over"))
                        continue
                    await self._starter.cancel(last, f"the next run of '{terms.name}' is due")
                event = _clock_event(terms, key)
                try:
                    await self._starter.start(process, session, event)
                except StoreUnavailableError:
                    raise
                except HoldfastError as error:
                    runs.append(TriggerRun(key, process, "failed", str(error)))
                    continue
            runs.append(TriggerRun(key, process))
            last = process
        left_out = queued[MAX_QUEUED:]
        runs += [TriggerRun(key, started_process_id(first, key), "dropped", "too many are queued") for key in left_out]
        tick = Tick(
            cursor=cursor,
            next=following,
            runs=runs,
            missed=missed,
            queued=queued[:MAX_QUEUED],
            last=last,
            requests=requests,
        )
        return msgspec.to_builtins(tick)


class HandoverDriver(BackgroundDriver):
    """Begins the successor of a schedule, and deletes the session before the one that hands over.

    Run again, it finds the successor that it had begun.
    """

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__(HANDOVER_TOOL, holdfast)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        session = await self._holdfast.session(attempt.session_id)
        fold, started = trigger_fold(session), session.started
        assert fold.terms is not None
        assert started is not None
        ctx = {**msgspec.to_builtins(fold.terms), INHERITANCE: msgspec.to_builtins(fold.inheritance(session))}
        successor = session.id
        while True:
            successor = following_trigger_id(successor)
            try:
                await self._holdfast.engine.begin(
                    successor, decide_start(started.program, service=started.service, ctx=ctx)
                )
                break
            except SessionDeletedError:
                continue
            except SessionExistsError:
                known = trigger_fold(await self._holdfast.session(successor)).inherited
                if known is not None and known.before == session.id:
                    break
        if fold.inherited is not None:
            await self._delete(fold.inherited.before)
        return successor

    async def _delete(self, trigger_id: str) -> None:
        """Delete a session that was handed over long ago, unless it has not noticed that yet."""
        with contextlib.suppress(SessionNotFoundError):
            if (await self._holdfast.session(trigger_id)).is_terminal:
                await self._holdfast.delete(trigger_id)


class WaitDriver(BackgroundDriver):
    """Waits until a process is over."""

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        super().__init__(WAIT_TOOL, holdfast)
        self._processes = processes

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        try:
            return (await self._processes.wait(query.arguments["process"])).status
        except SessionNotFoundError:
            return "gone"


class EmitDriver(BackgroundDriver):
    """Emits an event, under a key that follows from the process that does."""

    def __init__(self, holdfast: Holdfast, triggers: Triggers) -> None:
        super().__init__(EMIT_TOOL, holdfast)
        self._triggers = triggers

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        given, started = query.arguments, (await self._holdfast.session(attempt.session_id)).started
        assert started is not None
        receipt = await self._triggers.emit(
            given["type"],
            given.get("key", ""),
            given.get("payload"),
            idempotency_key=attempt.session_id,
            service=started.service,
            by=attempt.session_id,
        )
        return msgspec.to_builtins(receipt)


class DeliverDriver(BackgroundDriver):
    """Starts what an event starts: one process for each trigger that it concerned when it was emitted."""

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        super().__init__(DELIVER_TOOL, holdfast)
        self._starter = _Starter(holdfast, processes)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        given, occurrence = query.arguments, attempt.session_id
        event = {"type": given["type"], "key": given.get("key", ""), "payload": given.get("payload")}
        delivered: dict[str, Json] = {}
        for trigger_id in given.get("triggers", []):
            try:
                session = await self._holdfast.session(trigger_id)
                process = started_process_id(trigger_id, occurrence)
                delivered[trigger_id] = await self._starter.start(process, session, {**event, "occurrence": occurrence})
            except StoreUnavailableError:
                raise
            except HoldfastError as error:
                delivered[trigger_id] = {"error": str(error)}
        return delivered


def _clock_event(terms: TriggerTerms, key: str) -> dict[str, Json]:
    """What a run of a schedule is told: its time, as people and as computers read it."""
    if key.startswith(REQUEST):
        return {"type": "request", "key": terms.name, "payload": None, "request": key.removeprefix(REQUEST)}
    time = datetime.fromtimestamp(int(key) / 1000, UTC).isoformat().replace("+00:00", "Z")
    return {"type": "schedule", "key": terms.name, "payload": None, "time": time, "at": int(key)}


def trigger_drivers(holdfast: Holdfast, processes: Processes, triggers: Triggers) -> dict[str, Driver]:
    """The drivers of everything that triggers and events ask, by the names of the queries."""
    return {
        TICK_TOOL: TickDriver(holdfast, processes),
        HANDOVER_TOOL: HandoverDriver(holdfast),
        WAIT_TOOL: WaitDriver(holdfast, processes),
        EMIT_TOOL: EmitDriver(holdfast, triggers),
        DELIVER_TOOL: DeliverDriver(holdfast, processes),
    }
