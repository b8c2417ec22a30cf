"""What listings of sessions are made of: which sessions, the row of each, and a page of rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.state import State
from holdfast.core.summary import Summary


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as listings show it."""

    session_id: str
    summary: Summary
    position: int
    epoch: int
    owner: str | None
    """Who holds the session; None when nobody does, or the lease has ended."""
    lease_until: int | None
    """Until when; None when nobody does."""


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which sessions to list; a condition left out does not restrict."""

    states: Sequence[State] = ()
    program: str | None = None
    parent: str | None = None
    children: bool | None = None
    """Only sessions that have a parent; with False, only those that have none."""
    services: Sequence[str] = ()
    """Only sessions of one of these services."""
    id_prefix: str | None = None
    waiting_for: str | None = None
    """A kind of query the session waits for."""
    has_mail: bool = False
    """Only sessions with messages that no commit has taken."""
    updated_before: int | None = None
    updated_after: int | None = None
    """Only sessions whose last entry is earlier, or later, than that."""
    labels: Sequence[str] = ()
    """Only sessions that have all of these labels."""
    without_labels: Sequence[str] = ()
    """Only sessions that have none of these labels."""
    text: str | None = None
    """Only sessions whose id, title, program or labels contain this, without regard to the case of ASCII letters."""
    asking: bool = False
    """Only sessions in which something waits for a person or a host."""
    forked_from: str | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """Some sessions, and the cursor of the next page (None on the last one)."""

    rows: list[SessionRow]
    next: str | None
    damaged: list[str] = []
    """Ids of sessions that belong on this page, but whose summary cannot be read: see `Store.repair`."""
