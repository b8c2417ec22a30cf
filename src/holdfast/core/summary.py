"""The summary of a session: the projection that listings, timers and watchers are served from, without the journal."""

from __future__ import annotations

import msgspec

from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.limits import FAILURE_PREVIEW_CHARS
from holdfast.core.needs import count_asked, only_query_traits, row_needs
from holdfast.core.records import ExpiredRecord, FailedRecord
from holdfast.core.state import IMPORTED, PAUSED, Session, State


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    needs: str = ""
    """What a process has to have to move it on (`core.needs.row_needs`); empty if that is not up to processes."""
    asks: int = 0
    """How many of the pending queries wait for a person or a host (`core.needs.count_asked`)."""
    turns: int = 0
    """How many inputs an agent has worked on, or works on; 0 for other programs."""
    tokens: int = 0
    cost: float = 0.0
    """What was spent on models, for children too."""
    title: str = ""
    """What people call it: as they said, or the beginning of what it works on."""
    labels: tuple[str, ...] = ()
    forked_from: str | None = None
    failure: str = ""
    """The beginning of why it failed or expired; empty if it did not."""


def summarize(session: Session) -> Summary:
    """The summary of a session that has started."""
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    kind_fold, metrics, fork = session.kind_fold, session.metrics, started.forked_from
    own, pending, is_paused = kind_fold.waiting_for, session.pending, session.state is PAUSED
    groups = pending.groups
    if own is None and len(groups) == 1:  # as nearly all
        waiting_for = next(iter(groups.values())).kind
    else:
        kinds = {query.kind for query in groups.values()}
        waiting_for = ",".join(sorted(kinds if own is None else {*kinds, own}))
    if own is None and is_paused and len(pending) == 1:
        (only,) = pending.values()
        needs, asks = only_query_traits(session, only)
    else:
        needs, asks = row_needs(session, own), count_asked(session) if is_paused else 0
    return Summary(
        state=session.state,
        program_kind=started.program.kind,
        program=started.program.name,
        parent=started.parent.session_id if started.parent is not None else kind_fold.parent,
        service=started.service,
        created_at=metrics.started_at,
        updated_at=metrics.last_activity_at,
        pending=len(pending),
        waiting_for=waiting_for,
        due_at=session.next_due() if session.state is not IMPORTED else None,
        needs=needs,
        asks=asks,
        turns=kind_fold.turns,
        tokens=metrics.prompt_tokens.tokens + metrics.response_tokens.tokens,
        cost=metrics.cost,
        title=session.title or kind_fold.title,
        labels=session.labels,
        forked_from=fork.session_id if fork is not None else None,
        failure=_failure(session) if session.ended is not None else "",
    )


def _failure(session: Session) -> str:
    match session.ended:
        case FailedRecord(error=why) | ExpiredRecord(reason=why):
            return why[:FAILURE_PREVIEW_CHARS]
        case _:
            return ""
