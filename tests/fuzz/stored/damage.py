"""Sessions with every kind of row, and changes made to the rows of one of them behind the store's back.

What is the same in all stores. `sqlite_damage` and `postgres_damage` make the changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import HumanQuery, LlmQuery, TimerQuery
from holdfast.core.records import LoggedRecord, StatRecord
from holdfast.core.summary import Summary, summarize
from holdfast.store import Store
from holdfast.store.commits import Checkpoint, Segment, Snapshot
from holdfast.store.export import export_lines
from holdfast.testing.laws.forks import fork_of, forked
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, feed
from tests.fuzz.fuzzer import assert_is_declared
from tests.fuzz.generation import ODD_TEXTS, Draw
from tests.store.sqlite.helpers import LARGE

HURT = "hurt"
HEALTHY = ("first", "last")
COPY = "a-copy"
"""A fork of the hurt session, most of whose records are in the journal of that."""

_OF_SESSION = "session = (SELECT num FROM sessions WHERE id = 'hurt')"
WHERE = {
    "sessions": "id = 'hurt'",
    "journal": _OF_SESSION,
    "mailbox": _OF_SESSION,
    "snapshots": _OF_SESSION,
    "checkpoints": _OF_SESSION,
    "segments": _OF_SESSION,
    "blob_refs": _OF_SESSION,
    "blobs": f"id IN (SELECT blob FROM blob_refs WHERE {_OF_SESSION}) AND id NOT IN (SELECT blob FROM blob_refs"
    " WHERE session IN (SELECT num FROM sessions WHERE id IN ('first', 'last')))",
    "state": "key = 'hurt'",
    "shares": _OF_SESSION,
}
"""The rows of each table that are the hurt session's alone."""

COLUMNS = 17
"""Of the widest table, `sessions`: those of the others are counted round."""

CACHES = ("snapshots", "checkpoints", "segments")
"""Tables without which nothing is lost."""

ODD_CELLS: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2, 5, 7, 2**63 - 1, -(2**63), 0.5, 1e300, float("inf")),
    *(b"", b"\x00", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 5_000, b"\x28\xb5\x2f\xfd\x00"),
    *(text for text in ODD_TEXTS if text.isprintable() and "\ud800" not in text and "\udfff" not in text),
    *("[]", "[{}]", "{}", "null", "[0]", '["x"]', "[1e999]", '[{"type": "logged"}]', '[{"$blob": 7}]', '"later"'),
)


@dataclass(frozen=True)
class Change:
    """One change of a cell: of which row and column, counted round, and to what."""

    table: str
    row: int
    column: int
    value: Any
    """The new value; for `bytes` a place in the present one, and what stands there now."""
    action: str
    """`set`, `bytes`, `drop`, or `swap`: the value of another row."""
    other: int


async def sample(store: Store) -> None:
    """Sessions with all kinds of rows. One is to be hurt: a fork of the first, of which another one is a fork."""
    for session_id in (HEALTHY[0], HURT, HEALTHY[1]):
        if session_id == HURT:
            first = ScriptedSession(store, HEALTHY[0])
            first.entries = await entries_of(store, first.id)
            session = await fork_of(first, HURT, 3, hold_ms=0)
            session.epoch = None
        else:
            session = await begin(store, session_id, ctx={"text": f"{session_id} {LARGE}"}, hold_ms=0)
            asked = LlmQuery(prompt="why?", options={"t": 0.1}), HumanQuery(prompt="ok?", timeout_ms=1_000)
            await session.ask(*asked)
            await session.answer("q-0", {"long": f"{session_id} {LARGE}", "odd": {"$blob": "x"}})
        await session.append(LoggedRecord(message="one"), StatRecord(key="long", value=f"{LARGE} {session_id}"))
        await session.append(
            LoggedRecord(message="two"),
            checkpoint=Checkpoint(session.position, b"folded"),
            segment=Segment(0, session.position, b"said"),
            snapshot=Snapshot(session.position, b"paused"),
        )
        await session.answer("q-1", "yes")
        await session.ask(TimerQuery(delay_ms=10_000), hold_ms=0)
        if session_id == HURT:
            copy = await fork_of(session, COPY, session.position - 2, hold_ms=0)
            copy.epoch = None
            await copy.log("a copy")
        for number in (1, 2):
            await store.send(session_id, f"m-{number}", feed(f"{session_id} {number}"), number)
        await store.put_state("notes", session_id, {"text": session_id, "n": [1, None]})


# --- what is read ----------------------------------------------------------------------------------------


async def exported(store: Store, session_id: str) -> list[bytes]:
    return [line async for line in export_lines(store, session_id)]


async def folded(store: Store, session_id: str) -> Summary:
    return summarize(await store.load(session_id))


READS: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "load": folded,
    "entries": entries_of,
    "session": lambda store, session: store.session(session),
    "position": lambda store, session: store.position(session),
    "mailbox": lambda store, session: store.mailbox(session),
    "snapshot": lambda store, session: store.snapshot(session),
    "checkpoint": lambda store, session: store.checkpoint(session),
    "state": lambda store, session: store.get_state("notes", session),
    "export": exported,
}

OF_ALL: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "sessions": lambda store: store.sessions(),
    "due": lambda store: store.due(2**62),
    "lost": lambda store: store.lost(),
    "keys": lambda store: store.list_state("notes"),
}


async def attempt(asking: Awaitable[Any]) -> Any:
    """What a call gives, or its error, which has to be a declared one."""
    try:
        return await asking
    except Exception as error:
        assert_is_declared(error)
        return error


async def seen(store: Store, session_id: str) -> dict[str, Any]:
    """Everything that can be read of a session."""
    return {name: await attempt(read(store, session_id)) for name, read in READS.items()}


async def check_reads(store: Store, healthy: dict[str, dict[str, Any]]) -> None:
    """What can be read of the hurt session is read, what cannot is named, and no other session is harmed."""
    for session_id in (HURT, COPY):
        for name, found in (await seen(store, session_id)).items():
            if isinstance(found, HoldfastError):
                assert session_id in str(found), (name, found)
    for ask in OF_ALL.values():
        assert not isinstance(await attempt(ask(store)), HoldfastError)
    for session_id in HEALTHY:
        assert await seen(store, session_id) == healthy[session_id]


async def check_writes(store: Store, healthy: dict[str, dict[str, Any]]) -> None:
    """What is sent to the hurt session, forked from it and deleted harms no other session."""
    await attempt(store.send(HURT, "m-new", feed("new"), 3))
    position = await attempt(store.position(HURT))
    position = position if isinstance(position, int) else 7
    source = ScriptedSession(store, HURT)
    source.entries = healthy[HEALTHY[0]]["entries"][:1]
    _, commit = forked(source, "another", 1)
    await attempt(store.fork(HURT, position, commit))
    for session_id in (HURT, COPY):
        await attempt(store.delete(session_id, at=1))
        for other in HEALTHY:
            assert await entries_of(store, other) == healthy[other]["entries"]


# --- how it is changed -----------------------------------------------------------------------------------


@st.composite
def changes(draw: Draw, tables: Sequence[str] = tuple(WHERE)) -> tuple[list[Change], bool]:
    """One or two changes, and whether rows of the journal are sealed again after them."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        table = draw(st.sampled_from([*tables, *[name for name in tables if name == "journal"] * 3]))
        action = draw(st.sampled_from(["set", "set", "set", "bytes", "bytes", "drop", "swap"]))
        value = draw(_BYTES if action == "bytes" else st.sampled_from(ODD_CELLS))
        row, column, other = draw(st.integers(0, 9)), draw(st.integers(0, COLUMNS - 1)), draw(st.integers(0, 9))
        found.append(Change(table, row, column, value, action, other))
    return found, draw(st.booleans())


_BYTES = st.tuples(st.integers(0, 2**16), st.sampled_from([b"", b"0", b'"', b"[", b"]", b",", b"{", b"\xff", b"null,"]))
"""Where some bytes of a cell are replaced, and by which."""
