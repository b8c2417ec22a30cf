"""The ids under which a host sees and answers the queries of children: `q-3.q-0`, deeper down `q-3.q-1.q-0`."""

from __future__ import annotations

import re

import msgspec

from holdfast.core.errors import SessionNotFoundError
from holdfast.core.ids import child_session_id
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import ChildQuery, Query
from holdfast.core.state import Session
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError

_PATH = re.compile(r"q-[0-9]+(?:\.q-[0-9]+)*", re.ASCII)


def is_query_path(text: object) -> bool:
    """Whether this can be the id of a query, of the session itself or of a child of any depth."""
    return isinstance(text, str) and _PATH.fullmatch(text) is not None


def query_path(below: str, asked: str) -> str:
    """The id of a query of the child that is found under another id."""
    return f"{below}.{asked}" if below and asked else below or asked


def query_under(query: Query, path: str) -> Query:
    """A query with the id under which a host answers it."""
    return query if query.id == path else msgspec.structs.replace(query, id=path)


async def pending_below(store: Store, session: Session) -> dict[str, PendingQuery]:
    """What the children of a session wait for, of any depth, by the ids under which that is answered."""
    found: dict[str, PendingQuery] = {}
    for asked, pending in session.pending.items():
        if not isinstance(pending.query, ChildQuery):
            continue
        try:
            child = await store.load(child_session_id(session.id, asked))
        except (SessionNotFoundError, CorruptSessionError):
            continue  # not started yet; or its own status says what is wrong with it
        for below, inner in [*child.pending.items(), *(await pending_below(store, child)).items()]:
            path = query_path(asked, below)
            found[path] = PendingQuery(query_under(inner.query, path), inner.asked_at)
    return found
