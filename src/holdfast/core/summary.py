"""The summary of a session: the projection that listings, timers and watchers are served from, without the journal."""

from __future__ import annotations

import msgspec

from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.state import Session, State


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps of a session beside its journal; always equal to `summarize` of that journal."""

    state: State
    program_kind: str
    program: str
    parent: str | None = None
    """The session that it belongs to: whose query it answers, or as its program kind says."""
    service: str = DEFAULT_SERVICE
    """The service that its work belongs to."""
    created_at: int
    updated_at: int
    pending: int = 0
    """How many queries wait for an answer."""
    waiting_for: str = ""
    """The kinds of those queries, sorted and joined by commas (`human,timer`), and what its program kind adds."""
    due_at: int | None = None
    """When the clock has to look at the session next (unix ms)."""


def summarize(session: Session) -> Summary:
    """The summary of a session that has started."""
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    own = session.kind_fold.waiting_for
    waiting_for = set() if own is None else {own}
    for pending in session.pending.values():
        waiting_for.add(pending.query.kind)
    return Summary(
        state=session.state,
        program_kind=started.program.kind,
        program=started.program.name,
        parent=started.parent.session_id if started.parent is not None else session.kind_fold.parent,
        service=started.service,
        created_at=session.metrics.started_at,
        updated_at=session.metrics.last_activity_at,
        pending=len(session.pending),
        waiting_for=",".join(sorted(waiting_for)),
        due_at=session.next_due(),
    )
