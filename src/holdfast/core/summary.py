"""The summary of a session: the projection that listings, timers and watchers are served from, without the journal."""

from __future__ import annotations

import msgspec

from holdfast.agent.machine.inbox import INBOX
from holdfast.core.queries import kind_of
from holdfast.core.records import StartedRecord
from holdfast.core.state import Session, State


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps of a session beside its journal; always equal to `summarize` of that journal."""

    state: State
    program_kind: str
    program: str
    parent: str | None = None
    created_at: int
    updated_at: int
    pending: int = 0
    """How many queries wait for an answer."""
    waiting_for: str = ""
    """The kinds of those queries, sorted and joined by commas: `human,timer`; and `inbox`, where items wait there."""
    due_at: int | None = None
    """When the first timer fires, the first query lapses or the first item may be taken (unix ms)."""


def summarize(session: Session) -> Summary:
    """The summary of a session that has started."""
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    pending = session.pending.values()
    return Summary(
        state=session.state,
        program_kind=started.program.kind,
        program=started.program.name,
        parent=_parent(started),
        created_at=session.metrics.started_at,
        updated_at=session.metrics.last_activity_at,
        pending=len(session.pending),
        waiting_for=",".join(sorted({kind_of(p.query) for p in pending} | _inbox(session))),
        due_at=session.next_due(),
    )


def _inbox(session: Session) -> set[str]:
    return {INBOX} if session.turn is None and session.inbox.waiting else set()


def _parent(started: StartedRecord) -> str | None:
    """The session on whose behalf this one is: whose query it answers, or, of an agent, which has opened it."""
    if started.parent is not None:
        return started.parent.session_id
    of_agent = started.ctx.get("parent") if started.program.kind == "agent" and isinstance(started.ctx, dict) else None
    return of_agent if isinstance(of_agent, str) else None
