"""Why a session does not move: whom it waits for, what is missing, who could serve it, and since when."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.needs import Need, explain_missing, missing, query_needs, step_needs
from holdfast.core.queries import ChildQuery, Query, TimerQuery, ToolQuery
from holdfast.core.state import PendingQuery, Session
from holdfast.engine.presence import ProcessRow


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session waits for that nobody works on just now."""

    why: str
    """In words: what it waits for, and if that is a process, what is missing everywhere."""
    since: int
    """When something last happened in the session (unix ms)."""
    answers: list[str] = []
    """The queries that a person or host answers."""
    missing: list[str] = []
    """What no process that is here offers."""
    served_by: list[str] = []
    """The processes that are here and have all that its next step needs."""
    is_stuck: bool = False
    """Whether nobody here will move it: it waits for a process, and none that is here can serve it."""
    is_between_turns: bool = False
    """Whether it is a conversation that waits for its next input, and nothing is queued."""


def wait_of(session: Session, processes: Sequence[ProcessRow], now: int) -> Wait | None:
    """Why a session that nobody owns does not move; None if it has ended."""
    if session.started is None or session.is_terminal:
        return None
    here = [row for row in processes if row.is_here(now)]
    pending = list(session.pending.values())
    asked = [each.query for each in pending if _is_for_host(session, each.query, here)]
    is_moved_by_process = not pending or bool(session.kind_fold.waiting_needs()) or len(asked) < len(pending)
    needs = step_needs(session)
    able = [row.name for row in here if not missing(session, needs, row.offers)]
    why = [_asking(asked)] if asked else []
    why += [_sleeping(each, now) for each in pending if isinstance(each.query, TimerQuery)]
    why += [f"waits for its child {each.query.program}" for each in pending if isinstance(each.query, ChildQuery)]
    lacking: list[Need] = []
    if not able:
        lacking = [need for need in needs if not any(row.offers.meets(session, need) for row in here)] or needs
        then = "" if is_moved_by_process or not why else "then "
        why.append(then + explain_missing(lacking) + ("" if here else "; no process is at work on this store"))
    elif not why:
        why.append(f"will be taken up by {_any_of(able)}")
    return Wait(
        why="; ".join(why),
        since=session.metrics.last_activity_at,
        answers=[query.id for query in asked],
        missing=[str(need) for need in lacking],
        served_by=able,
        is_stuck=is_moved_by_process and not able,
        is_between_turns=not is_moved_by_process and all(query.kind == "input" for query in asked),
    )


def _is_for_host(session: Session, query: Query, here: Sequence[ProcessRow]) -> bool:
    """Whether no process answers a query by itself."""
    if isinstance(query, (TimerQuery, ChildQuery)):
        return False
    needs = query_needs(session, query)
    if needs:
        return any(need.kind == "host" for need in needs)
    if isinstance(query, ToolQuery):
        return not any(query.name in row.offers.tools for row in here)
    return not any(row.offers.answers_people for row in here) if query.kind == "human" else True


def _asking(asked: Sequence[Query]) -> str:
    if len(asked) == 1 and asked[0].kind == "input":
        return "waits for the next input"
    named = [f"{query.id} ({_kind(query)})" for query in asked]
    return f"waits for an answer to {', '.join(named)}"


def _kind(query: Query) -> str:
    return f"tool {query.name}" if isinstance(query, ToolQuery) else query.kind


def _sleeping(pending: PendingQuery, now: int) -> str:
    due = pending.due_at
    if due is None:
        return "sleeps"
    return f"sleeps for {max(0, due - now) / 1000:.0f} s" if due > now else "was to be woken by a timer"


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} or {len(names) - 1} more"
