"""Why a session does not move: whom it waits for, what is missing, who could serve it, and since when."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from holdfast.core.kinds import KindFold
from holdfast.core.needs import Need, explain_missing, is_for_host, missing, step_needs, upkeep_needs
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import ChildQuery, Query, TimerQuery, ToolQuery
from holdfast.core.state import IMPORTED, PAUSED, Session
from holdfast.engine.process_rows import ProcessRow
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError
from holdfast.store.permits import PermitWait


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
    limits: list[str] = []
    """The limits of the fleet that calls of it wait for; it has its owner meanwhile."""


async def messages_left(store: Store, session_id: str) -> int:
    """How many messages nobody has taken yet, as far as they are counted."""
    try:
        return len(await store.mailbox(session_id))
    except CorruptSessionError:
        return 1


def wait_of(session: Session, processes: Sequence[ProcessRow], now: int, mail: int = 0) -> Wait | None:
    """Why a session that nobody owns does not move; None if it has ended. `mail` is what is left in its mailbox.

    A message needs a process that runs the program. What the session waits for after that, the message decides.
    """
    if session.started is None or session.is_terminal:
        return None
    if session.state is IMPORTED:
        adopt = f"was imported and waits until somebody adopts it: `holdfast adopt {session.id}`"
        return Wait(why=adopt, since=session.metrics.last_activity_at)
    here = [row for row in processes if row.is_here(now)]
    pending = list(session.pending.values())
    asked = [each.query for each in pending if _is_for_host(session, each.query, here)]
    is_moved_by_process = not pending or bool(session.kind_fold.waiting_needs()) or len(asked) < len(pending)
    needs = step_needs(session)
    if mail:
        pending, asked, is_moved_by_process, needs = [], [], True, upkeep_needs(session)
    able = [row.name for row in here if not missing(session, needs, row.offers)]
    why = [_asking(asked)] if asked else []
    why += [f"has {mail} {'message' if mail == 1 else 'messages'} in its mailbox"] if mail else []
    why += [_sleeping(each, now) for each in pending if isinstance(each.query, TimerQuery)]
    why += [f"waits for its child {each.query.program}" for each in pending if isinstance(each.query, ChildQuery)]
    lacking: list[Need] = []
    if not able:
        lacking = [need for need in needs if not any(row.offers.meets(session, need) for row in here)] or needs
        then = "" if is_moved_by_process or not why else "then "
        why.append(then + explain_missing(lacking) + ("" if here else "; no process is at work on this store"))
    elif not why or mail:
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


def wait_for_limits(in_line: Sequence[PermitWait]) -> Wait:
    """Why calls of a session do not begin though their session has an owner."""
    limits = list(dict.fromkeys(wait.counter for wait in in_line))
    asked = ", ".join(wait.ticket.rpartition("/")[2] for wait in in_line)
    named = ", ".join(f"`{limit}`" for limit in limits)
    why = f"{asked} {'waits' if len(in_line) == 1 else 'wait'} for the limit {named} of the fleet"
    return Wait(why=why, since=min(wait.since for wait in in_line), limits=limits)


class WaitTable:
    """Why sessions do not move, for whoever goes through a store: what waits alike is explained once."""

    def __init__(self, processes: Sequence[ProcessRow], now: int) -> None:
        self._processes = processes
        self._now = now
        self._known: dict[Hashable, Wait | None] = {}

    def wait_of(self, session: Session, mail: int = 0) -> Wait | None:
        """As the function of that name."""
        alike = None if mail else _alike(session)
        if alike is None:
            return wait_of(session, self._processes, self._now, mail)
        if alike not in self._known:
            self._known[alike] = wait_of(session, self._processes, self._now)
        wait = self._known[alike]
        return None if wait is None else msgspec.structs.replace(wait, since=session.metrics.last_activity_at)


def _alike(session: Session) -> Hashable | None:
    """Equal for sessions that wait for the same reason; None if only the session itself knows its reasons.

    Those are programs that bring a fold of their own, sessions that sleep, and those with many queries.
    """
    started, state = session.started, session.state
    if started is None or state is not PAUSED or type(session.kind_fold) is not KindFold:
        return None
    if len(session.pending) > _FEW or "timer" in session.pending.groups:
        return None
    asked = [started.program.kind, started.program.name, started.service, session.llm]
    for pending in session.pending.values():
        query = pending.query
        asked += query.id, query.kind, getattr(query, "name", "")
    return tuple(asked)


_FEW = 8
"""Queries of a session that are compared with those of others."""


def _is_for_host(session: Session, query: Query, here: Sequence[ProcessRow]) -> bool:
    """Whether no process that is here answers a query by itself."""
    if isinstance(query, (TimerQuery, ChildQuery)) or (query.is_question and not is_for_host(session, query)):
        return False
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
