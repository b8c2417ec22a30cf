"""Shared history: which records of a fork lie in the journals of the sessions that it comes from.

A fork has its first record to itself. What follows, up to where it was forked, stays in the journal of whoever wrote
it; the fork knows it as *shares*, each a run of positions and the session that wrote them. Those of a fork of a fork
name the writers themselves, not the fork in between: however long the chain, a read looks at no session but them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.store.codec import references
from holdfast.store.errors import CorruptSessionError, ForkPositionError


class Share(msgspec.Struct, frozen=True):
    """Positions of a fork whose records another session wrote, at the same positions."""

    first: int
    last: int
    source: int
    """The number of the session that wrote them. It may have been deleted since."""
    source_id: str
    """Its id: the records are sealed with it."""


def shares_in(session_id: str, rows: Iterable[Sequence[Any]]) -> list[Share]:
    """The shares of a session from their rows; `CorruptSessionError` if one was changed."""
    found = [tuple(row) for row in rows]
    if any([type(value) for value in row] != [int, int, int, str] for row in found):
        raise CorruptSessionError(session_id, "its shares", "a row was changed after it was written")
    return [Share(*row) for row in found]


def shares_of(source: int, source_id: str, own: Sequence[Share], at: int) -> list[Share]:
    """The shares of a fork at a position, from the source's number, its id, and its own shares if it is one."""
    shared = own[-1].last if own else 1
    inherited = [msgspec.structs.replace(each, last=min(each.last, at)) for each in own if each.first <= at]
    return [*inherited, Share(shared + 1, at, source, source_id)] if at > shared else inherited


def check_reach(source: str, at: int, reach: int) -> None:
    """Raise `ForkPositionError` unless the source has a record at the position."""
    if not 1 <= at <= reach:
        raise ForkPositionError(source, at, reach)


def kept_references(bodies: Iterable[bytes]) -> set[str]:
    """The blobs that stored records refer to. One that is damaged cannot be read, and needs none."""
    found: set[str] = set()
    for body in bodies:
        with contextlib.suppress(msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            found |= references(body)
    return found
