"""`TriggerHistory`: the runs of triggers, read from the journals of schedules and from what events have started."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.agent.processes.processes import Processes
from holdfast.agent.triggers.machine import Tick, TickQuery, TriggerRun, trigger_fold
from holdfast.core.errors import SessionNotFoundError
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, PausedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.store.session_rows import SessionFilter


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a trigger, or one that was not started."""

    at: int
    """When that was decided (unix ms)."""
    key: str
    process: str
    did: str
    why: str = ""
    status: str = ""
    """The status of its process, if there is one."""


class TriggerHistory:
    """Reads the runs of the triggers of one store."""

    def __init__(self, holdfast: Holdfast, processes: Processes) -> None:
        self._holdfast = holdfast
        self._processes = processes

    async def latest(self, trigger_id: str, limit: int) -> Sequence[RunReport]:
        """The latest runs of a trigger, and those that were left out, the newest first."""
        terms = trigger_fold(await self._holdfast.session(trigger_id)).terms
        if terms is not None and not terms.is_clock:
            return await self._started_by_events(trigger_id, limit)
        runs: list[RunReport] = []
        following: str | None = trigger_id
        while following is not None and len(runs) < limit:
            try:
                inherited = trigger_fold(await self._holdfast.session(following)).inherited
                runs = [*await self._runs_in(following), *runs]
            except SessionNotFoundError:
                break  # it was continued long ago, and deleted since
            following = inherited.before if inherited is not None else None
        latest = runs[-limit:][::-1] if limit > 0 else []
        return [msgspec.structs.replace(run, status=await self._status(run.process)) for run in latest]

    async def _runs_in(self, trigger_id: str) -> list[RunReport]:
        """The runs in the journal of one session, the oldest first."""
        ticks: set[str] = set()
        runs: list[RunReport] = []
        async for entry in self._holdfast.store.journal(trigger_id):
            match entry.record:
                case PausedRecord(queries=queries):
                    ticks.update(query.id for query in queries if isinstance(query, TickQuery))
                case AnsweredRecord(query_id=asked, answer=Value(value=value)) if asked in ticks:
                    runs += [_report(entry.at, run) for run in msgspec.convert(value, Tick).runs]
        return runs

    async def _started_by_events(self, trigger_id: str, limit: int) -> Sequence[RunReport]:
        page = await self._holdfast.store.sessions(SessionFilter(parent=trigger_id), limit=limit)
        reports = []
        for row in page.rows:
            report = await self._processes.show(row.session_id)
            key = str(report.terms.origin.get("occurrence", ""))
            at = report.handle.started_at
            reports.append(RunReport(at=at, key=key, process=report.id, did="started", status=report.status))
        return reports

    async def _status(self, process: str) -> str:
        try:
            return (await self._processes.show(process)).status
        except SessionNotFoundError:
            return ""


def _report(at: int, run: TriggerRun) -> RunReport:
    return RunReport(at=at, key=run.key, process=run.process, did=run.did, why=run.why)
