"""Sessions for tests: made by the core's own decisions, written through a store, and remembered as they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.decide import (
    CancelMessage,
    FeedMessage,
    GivenAnswer,
    Message,
    decide_cancel,
    decide_complete,
    decide_fail,
    decide_feed,
    decide_pause,
    decide_start,
)
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.queries import HumanQuery, Query, TimerQuery, Value
from holdfast.core.records import (
    AdoptedRecord,
    Entry,
    ExpiredRecord,
    Imported,
    LoggedRecord,
    Parent,
    Program,
    Record,
    StartedRecord,
)
from holdfast.core.state import Session, State
from holdfast.core.summary import Summary, summarize
from holdfast.core.values import Json
from holdfast.store.commits import Commit, CommitReceipt, Lease
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionRow

START = 1_000_000
"""When the first entry of a scenario is written (unix ms). Every next one comes `TICK` later."""

TICK = 10


class ScriptedSession:
    """A session and its writer: what was committed so far, and the commits that may come next.

    `commit` builds a commit without making it; `append` makes it and, once the store has agreed, takes it over into
    `entries`. So `entries` always is what the store should hold.
    """

    def __init__(self, store: Store, session_id: str, owner: str = "alice") -> None:
        self.store = store
        self.id = session_id
        self.owner = owner
        self.epoch: int | None = None
        self.entries: list[Entry] = []
        self.now = START

    @property
    def position(self) -> int:
        return len(self.entries)

    @property
    def session(self) -> Session:
        return Session.fold(self.id, self.entries)

    @property
    def summary(self) -> Summary:
        return summarize(self.session)

    def commit(self, *records: Record, **changes: Any) -> Commit:
        """The commit that appends these records; `changes` replace its other fields."""
        entries = [Entry(self.position + i, self.now + i * TICK, record) for i, record in enumerate(records, 1)]
        return msgspec.structs.replace(
            Commit(
                session_id=self.id,
                expected=self.position,
                entries=entries,
                summary=summarize(Session.fold(self.id, [*self.entries, *entries])),
                owner=self.owner,
                epoch=self.epoch,
            ),
            **changes,
        )

    async def append(self, *records: Record, **changes: Any) -> CommitReceipt:
        """Commit these records."""
        return await self.make(self.commit(*records, **changes))

    async def make(self, commit: Commit) -> CommitReceipt:
        """Make a commit that `commit` built, and remember it if the store agrees."""
        receipt = await self.store.append(commit)
        self.entries += commit.entries
        self.epoch = receipt.epoch
        self.now += TICK * len(commit.entries)
        return receipt

    def lease(self) -> Lease:
        """The lease that the last commit left with its writer."""
        return Lease(self.id, self.owner, self.epoch or 0, 0)

    # --- what happens to the session -------------------------------------------------------------

    async def log(self, *lines: str, **changes: Any) -> CommitReceipt:
        return await self.append(*(LoggedRecord(message=line) for line in lines), **changes)

    async def ask(self, *queries: Query, **changes: Any) -> CommitReceipt:
        return await self.append(decide_pause(self.session, queries, self.now).record, **changes)

    async def answer(self, query_id: str, value: Json, **changes: Any) -> CommitReceipt:
        feed = FeedMessage([GivenAnswer(Value(value=value), query_id)])
        return await self.append(*decide_feed(self.session, feed).records, **changes)

    async def complete(self, result: Json = None, **changes: Any) -> CommitReceipt:
        return await self.append(decide_complete(self.session, result), **changes)

    async def end(self, state: State) -> CommitReceipt:
        """Bring a running session to one of its four ends."""
        match state:
            case State.COMPLETED:
                return await self.complete("done")
            case State.FAILED:
                return await self.append(decide_fail(self.session, "it broke"))
            case State.CANCELLED:
                return await self.append(*decide_cancel(self.session, CancelMessage("enough")).records)
            case State.EXPIRED:
                await self.ask(HumanQuery(prompt="anyone?"))
                return await self.append(ExpiredRecord(reason="nobody answered"))
            case _:
                raise ValueError(f"{state} is not an end")


async def begin(
    store: Store,
    session_id: str = "s-1",
    *,
    ctx: Json = None,
    program: str = "task",
    service: str = DEFAULT_SERVICE,
    parent: str | None = None,
    owner: str = "alice",
    at: int = START,
    hold_ms: int = 600_000,
    imported: Imported | None = None,
    title: str = "",
    labels: Sequence[str] = (),
) -> ScriptedSession:
    """Create a session that has just started, held by `owner` for longer than a test takes."""
    scenario = ScriptedSession(store, session_id, owner)
    scenario.now = at - TICK
    started = decide_start(
        Program("native", program),
        service=service,
        ctx=ctx,
        parent=None if parent is None else Parent(parent, "q-0"),
        title=title,
        labels=labels,
    )
    await scenario.append(msgspec.structs.replace(started, imported=imported), hold_ms=hold_ms)
    return scenario


async def claim(store: Store, session_id: str, owner: str, hold_ms: int = 600_000) -> Lease:
    """Become the owner of a session by a commit that writes nothing else."""
    row = await store.session(session_id)
    commit = Commit(
        session_id=session_id,
        expected=row.position,
        entries=[],
        summary=row.summary,
        owner=owner,
        hold_ms=hold_ms,
    )
    receipt = await store.append(commit)
    return Lease(session_id, owner, receipt.epoch, (await store.session(session_id)).lease_until or 0)


def line(text: str = "a line") -> LoggedRecord:
    """The smallest record that is legal in any living session."""
    return LoggedRecord(message=text)


def feed(value: Json = "yes", query_id: str | None = None) -> FeedMessage:
    """A message that answers a query."""
    return FeedMessage([GivenAnswer(Value(value=value), query_id)])


def timer(delay_ms: int) -> TimerQuery:
    """A query that makes its session due `delay_ms` after it was asked."""
    return TimerQuery(delay_ms=delay_ms)


# --- looking at a store ---------------------------------------------------------------------------


async def all_rows(store: Store, where: SessionFilter | None = None, *, limit: int = 1_000) -> list[SessionRow]:
    """Every session that matches, gathered page by page."""
    rows: list[SessionRow] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(where, after=cursor, limit=limit)
        again = {row.session_id for row in rows} & {row.session_id for row in page.rows}
        assert not again, f"shown twice while paging: {again}"
        assert page.rows or page.next is None, "an empty page that says there is more"
        rows += page.rows
        if page.next is None:
            return rows
        cursor = page.next


async def ids_of(store: Store, where: SessionFilter | None = None) -> list[str]:
    """The ids of every session that matches, in the order of the listing."""
    return [row.session_id for row in await all_rows(store, where)]


async def entries_of(store: Store, session_id: str) -> list[Entry]:
    """The whole journal."""
    return [entry async for entry in store.journal(session_id)]


async def exported_entries(store: Store, session_id: str) -> list[Entry]:
    """All entries of a session as an export of it had them, before it was imported."""
    entries = await entries_of(store, session_id)
    started = entries[0].record
    if isinstance(started, StartedRecord):
        entries[0] = msgspec.structs.replace(entries[0], record=msgspec.structs.replace(started, imported=None))
    return entries


async def adopt(store: Store, session_id: str) -> None:
    """Let an imported session run."""
    session = ScriptedSession(store, session_id, "operator")
    session.entries = await entries_of(store, session_id)
    session.now = session.entries[-1].at
    await session.append(AdoptedRecord(), hold_ms=0)


async def messages_of(store: Store, session_id: str) -> list[Message]:
    """The messages that wait, in order."""
    return [item.message for item in await store.mailbox(session_id)]


async def picture(store: Store, namespaces: Sequence[str] = ("notes",)) -> dict[Any, Any]:
    """Everything a reader can see in a store, to be compared before and after a call that should change nothing."""
    rows = await all_rows(store)
    seen: dict[Any, Any] = {"sessions": rows, "due": await store.due(2**62)}
    for row in rows:
        seen["journal", row.session_id] = await entries_of(store, row.session_id)
        seen["mailbox", row.session_id] = await store.mailbox(row.session_id)
        seen["snapshot", row.session_id] = await store.snapshot(row.session_id)
        seen["checkpoint", row.session_id] = await store.checkpoint(row.session_id)
    for namespace in namespaces:
        for key in await store.list_state(namespace):
            seen["state", namespace, key] = await store.get_state(namespace, key)
    return seen
