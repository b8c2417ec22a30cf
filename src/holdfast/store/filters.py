"""Listing sessions: what a filter means, and the cursor that a page ends with."""

from __future__ import annotations

from holdfast.core.errors import InvalidIdError, InvalidValueError
from holdfast.core.labels import contains_text
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.core.values import check_number, check_value
from holdfast.store.session_rows import SessionFilter


def is_of_living_children(where: SessionFilter) -> bool:
    """Whether a filter is for sessions of any parent that have not ended, which have indexes of their own."""
    return where.children is True and where.parent is None and set(where.states) == {State.RUNNING, State.PAUSED}


def matches(where: SessionFilter, session_id: str, summary: Summary) -> bool:
    """Whether a session meets all conditions of a filter that its summary decides: all but `has_mail`."""
    return (
        (not where.states or summary.state in where.states)
        and (where.program is None or summary.program == where.program)
        and (where.parent is None or summary.parent == where.parent)
        and (where.children is None or where.children == (summary.parent is not None))
        and (not where.services or summary.service in where.services)
        and (where.id_prefix is None or session_id.startswith(where.id_prefix))
        and (where.waiting_for is None or where.waiting_for in summary.waiting_for.split(","))
        and (where.updated_before is None or summary.updated_at < where.updated_before)
        and (where.updated_after is None or summary.updated_at > where.updated_after)
        and (not where.asking or summary.asks > 0)
        and (where.forked_from is None or summary.forked_from == where.forked_from)
        and all(label in summary.labels for label in where.labels)
        and not any(label in summary.labels for label in where.without_labels)
        and (
            not where.text
            or contains_text(where.text, (session_id, summary.title, summary.program, ",".join(summary.labels)))
        )
    )


def check_filter(where: SessionFilter) -> None:
    """Raise `InvalidValueError` for a filter that cannot be compared with anything stored."""
    what = "session filter"
    named = [where.program, where.parent, *where.services, where.id_prefix, where.waiting_for]
    check_value([*named, *where.labels, *where.without_labels, where.text, where.forked_from], what)
    for moment in (where.updated_before, where.updated_after):
        if moment is not None:
            check_number(moment, what)
    if not all(isinstance(state, State) for state in where.states):
        raise InvalidValueError(what, f"states must be some of {', '.join(State)}")


def prefix_end(prefix: str) -> str | None:
    """What comes first after all texts with a prefix, by code point; None if nothing does."""
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1])
        if code < 0x10FFFF:
            return prefix[: length - 1] + chr(0xE000 if code == 0xD7FF else code + 1)  # those in between are no text
    return None


def cursor_of(num: int) -> str:
    """The cursor of a page whose last session was the store's num-th."""
    return f"c{num}"


def parse_cursor(cursor: str | None) -> int | None:
    """The number in a cursor; `InvalidIdError` for anything that is not one."""
    if cursor is None:
        return None
    digits = cursor[1:]
    if cursor[:1] != "c" or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        shown = ascii(cursor[:ERROR_PREVIEW_CHARS])
        raise InvalidIdError("listing cursor", shown, "pass on the one that came with the page before")
    return int(digits)
