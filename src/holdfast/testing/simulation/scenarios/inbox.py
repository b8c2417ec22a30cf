"""The law of inboxes: what clients were told of their items can be true of one inbox, one change after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.agent.cancellation import CancelState
from holdfast.agent.errors import UnknownItemError
from holdfast.agent.queue import ItemStatus, outcome_of
from holdfast.core.errors import HoldfastError
from holdfast.core.state import Session
from holdfast.testing.simulation.evidence import Evidence, Problem


@dataclass(frozen=True)
class ItemCall:
    """A call about an item, and what its caller was told."""

    session_id: str
    item_id: str
    told: ItemStatus | CancelState | None
    """The status that was read, what a cancellation has done, or None if the item was accepted."""
    called_s: float
    returned_s: float


def inbox(run: Evidence, calls: list[ItemCall]) -> Iterator[Problem]:
    """An item is there once it was accepted, and was what its reader saw while the reader asked."""
    histories = _histories(run, {(call.session_id, call.item_id) for call in calls})
    for call in calls:
        changes = histories[call.session_id, call.item_id]
        ends = [at_s for at_s, _ in changes[1:]] + [float("inf")]
        seen = {
            status
            for (at_s, status), end_s in zip(changes, ends, strict=True)
            if at_s <= call.returned_s and end_s >= call.called_s
        }
        if not seen & _possible(call):
            text = f"{call.item_id} was said to be {call.told or 'accepted'} at {call.returned_s:.3f}, but was {seen}"
            yield Problem("inbox", call.session_id, text)


def _possible(call: ItemCall) -> set[str]:
    """What an item may have been while a call that was told this was under way."""
    match call.told:
        case None:
            return {"waiting", "running", "done", "cancelled"}
        case "withdrawn":
            return {"cancelled"}
        case "stopped":
            return {"done"}
        case "over":
            return {"done", "cancelled"}
        case "waiting" | "running" | "done" | "cancelled":
            return {call.told}
        case _:
            return {"unknown"}


def _histories(run: Evidence, items: set[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[float, str]]]:
    """What each item was from which moment on."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {item: [(0.0, "unknown")] for item in items}
    by_session = {session_id: sorted(each for other, each in items if other == session_id) for session_id, _ in items}
    folded = {session_id: Session(session_id) for session_id in by_session}
    for at_s, _, commit, _ in run.commits:
        session_id = commit.session_id
        if session_id not in folded or not commit.entries:
            continue
        for entry in commit.entries:
            try:
                folded[session_id].apply(entry)
            except HoldfastError:
                return found  # the law of replay says more
        for item_id in by_session[session_id]:
            status = _status(folded[session_id], item_id)
            if found[session_id, item_id][-1][1] != status:
                found[session_id, item_id].append((at_s, status))
    return found


def _status(session: Session, item_id: str) -> str:
    try:
        return outcome_of(session, item_id).status
    except UnknownItemError:
        return "unknown"
