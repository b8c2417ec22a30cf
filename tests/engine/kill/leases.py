"""Who holds the sessions of the kill tests, for how long, and which of them have ended."""

from __future__ import annotations

from holdfast.store import Store

LEASE_MS = 500
"""Milliseconds an owner holds a session: long enough for a machine under load, short enough to wait for."""


async def has_ended(store: Store, session: str) -> bool:
    return (await store.session(session)).summary.state.is_terminal


async def nobody_owns_any(store: Store) -> bool:
    return not any(row.owner for row in (await store.sessions()).rows)


async def is_owned(store: Store, session: str) -> bool:
    return (await store.session(session)).owner is not None
