"""Runs as their journals tell of them: what was asked and answered, what it cost, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from holdfast.core.events import query_json
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, Value, is_own
from holdfast.core.records import AnsweredRecord, CompletedRecord, Entry, FailedRecord, PausedRecord, Program
from holdfast.core.state import Session
from holdfast.core.values import repaired
from holdfast.programs.kinds import language_names
from holdfast.serve.mcp.tools import Object
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionRow

HINT_BYTES = 100
"""Bytes of the first prompt that tell what a run was about."""


AD_HOC = "code"
"""The name of programs that are a text which a host has sent."""


def is_ad_hoc(program: Program) -> bool:
    """Whether a program is a text that a host has sent, and no strategy with a name of its own."""
    return program.name == AD_HOC and program.kind in language_names()


@dataclass
class AskedQuery:
    """A query that went outside, and what came back."""

    query: Query
    asked_at: int
    answer: Value | Failure | None = None
    answered_at: int | None = None

    def to_json(self) -> Object:
        shown: Object = {"query_id": self.query.id, **query_json(self.query), "response": None}
        match self.answer:
            case Value(value=value):
                shown["response"] = value
            case Failure(message=message):
                shown["error"] = message
            case None:
                pass
        return {**shown, "started_at": self.asked_at, "completed_at": self.answered_at}


@dataclass
class RunView:
    """A session and all it asked, as its journal tells."""

    session: Session
    exchanges: dict[str, AskedQuery] = field(default_factory=dict)

    @classmethod
    async def read(cls, store: Store, session_id: str) -> RunView:
        run = cls(Session(session_id))
        async for entry in store.journal(session_id):
            run.add(entry)
        return run

    def add(self, entry: Entry) -> None:
        self.session.apply(entry)
        match entry.record:
            case PausedRecord(queries=queries):
                for query in queries:
                    if not is_own(query):
                        self.exchanges[query.id] = AskedQuery(query, entry.at)
            case AnsweredRecord(query_id=asked) if asked in self.exchanges:
                self.exchanges[asked].answer = entry.record.answer
                self.exchanges[asked].answered_at = entry.at
            case _:
                pass

    @property
    def strategy(self) -> str | None:
        """The name of its program; None if that was a text that somebody sent."""
        program = self.session.started.program if self.session.started else None
        return None if program is None or is_ad_hoc(program) else program.name

    @property
    def stats(self) -> Object:
        """What it did and spent. The time of a run that has not ended counts up to its last sign of life."""
        session = self.session
        budget = session.started.budget if session.started else None
        return session.metrics.to_json(session.metrics.last_activity_at, budget)

    @property
    def hint(self) -> str | None:
        """What it was about: the first question, or its task."""
        asked = (each.query for each in self.exchanges.values())
        first = next((query.prompt for query in asked if isinstance(query, LlmQuery | HumanQuery)), None)
        ctx = self.session.started.ctx if self.session.started else None
        text = first if first is not None else ctx.get("task") if isinstance(ctx, dict) else None
        if not isinstance(text, str):
            return None
        whole = text.encode("utf-8", "replace")
        return repaired(text) if len(whole) <= HINT_BYTES else whole[:HINT_BYTES].decode("utf-8", "ignore") + "..."

    def outcome(self) -> Object:
        """Its state, or how it ended, and when."""
        session, metrics = self.session, self.session.metrics
        outcome: Object = {
            "status": str(session.state),
            "started_at": metrics.started_at,
            "last_activity_at": metrics.last_activity_at,
            "ended_at": metrics.ended_at,
        }
        match session.ended:
            case FailedRecord(error=error, kind=kind):
                outcome |= {"error": error, "error_kind": kind}
            case None | CompletedRecord():
                pass
            case ended:
                outcome["reason"] = ended.reason
        return outcome


async def rows_of(store: Store, where: SessionFilter) -> AsyncIterator[SessionRow | str]:
    """Every session that meets a filter, a page at a time; of a damaged one its id."""
    after: str | None = None
    while True:
        page = await store.sessions(where, after=after)
        for row in page.rows:
            yield row
        for damaged in page.damaged:
            yield damaged
        after = page.next
        if after is None:
            return
