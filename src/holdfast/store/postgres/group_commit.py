"""Group commit for PostgreSQL: appends that wait while others are written go to the server together.

An append that finds nobody else writing is sent at once. While some are on their way, those that arrive are collected,
and sent as one statement for all their sessions: one round trip and one flush of the log instead of many. A session
that is refused in a group is left out of it, and the reason is found out as for a single append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from holdfast.core.summary import Summary
from holdfast.store.codec import StoredEntry
from holdfast.store.commits import Commit
from holdfast.store.limits import GROUP_COMMIT_MAX
from holdfast.store.postgres.statements import (
    ENDED,
    FREE_TO,
    NOW,
    PUT_SNAPSHOTS,
    Change,
    snapshot_change,
    summary_columns,
)

GROUPS_AT_ONCE = 2
"""GroupWriter on their way at a time: the next one is collected while the last one is flushed."""

_KINDS = {"pending": "bigint", "due_at": "bigint", "created_at": "bigint", "updated_at": "bigint"}
_SUMMARY = Summary.__struct_fields__


class GroupedCommit(msgspec.Struct, frozen=True):
    """An append to an existing session that does nothing but append, and change the snapshot."""

    commit: Commit
    stored: Sequence[StoredEntry]
    lock: int | None
    """Shows that the holder lives, if it is to hold the session."""

    @property
    def change(self) -> Change:
        return snapshot_change(self.commit)


Send = Callable[[list[GroupedCommit]], Awaitable[dict[str, int]]]
"""Writes a group, and gives the epochs of the sessions that were not refused."""


class GroupWriter:
    """Collects appends into groups. Belongs to one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, tuple[GroupedCommit, asyncio.Future[int | None]]] = {}
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(self, grouped: GroupedCommit) -> int | None:
        """The epoch under which an append was written; None if it was refused."""
        session_id = grouped.commit.session_id
        if not self._under_way or session_id in self._waiting:
            self._under_way += 1
            try:
                return (await self._send([grouped])).get(session_id)
            finally:
                self._under_way -= 1
                self._flush()
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting[session_id] = grouped, future
        return await future

    async def drain(self) -> None:
        """Write everything that waits."""
        while self._waiting or self._tasks:
            self._flush()
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(0)  # a single append is on its way, and will flush the others

    def _flush(self) -> None:
        while self._waiting and self._under_way < GROUPS_AT_ONCE:
            group = [self._waiting.pop(session_id) for session_id in list(self._waiting)[:GROUP_COMMIT_MAX]]
            self._under_way += 1
            task = asyncio.create_task(self._run([(grouped, future) for grouped, future in group if not future.done()]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, group: list[tuple[GroupedCommit, asyncio.Future[int | None]]]) -> None:
        try:
            epochs = await self._send([grouped for grouped, _ in group]) if group else {}
            for grouped, future in group:
                if not future.done():
                    future.set_result(epochs.get(grouped.commit.session_id))
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        finally:
            self._under_way -= 1
            self._flush()


@cache
def group_statement(put: bool, drop: bool) -> str:
    """One statement that makes the appends of a group, without those that are refused.

    Parameters: arrays of the commits' columns; then of the entries'; then, with `put`, of the snapshots'. With `drop`
    the snapshots of sessions that have ended are removed.
    """
    columns = ["id", "owner", "hold", "expected", "epoch", "lock", "size", *_SUMMARY]
    kinds = ["text", "text", *["bigint"] * 5, *(_KINDS.get(name, "text") for name in _SUMMARY)]
    given = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
    first = len(columns) + 1
    entries = ", ".join(
        f"${first + number}::{kind}[]" for number, kind in enumerate(("text", "bigint", "bigint", "bigint", "text"))
    )
    snapshots = ""
    if put:
        given_snapshots = f"${first + 5}::text[], ${first + 6}::bigint[], ${first + 7}::bytea[]"
        rows = f"unnest({given_snapshots}) as g (id, position, data) join s on s.id = g.id"
        snapshots += f",\n{PUT_SNAPSHOTS.format(row='s.num, g.position, g.data', rows=rows)}"
    if drop:
        ended = f"select num from s where state in ({ENDED})"
        snapshots += f",\nd as (delete from holdfast.snapshots where session = any(array({ended})))"
    return f"""
with c as (select * from unnest({given}) as c ({", ".join(columns)})),
s as (update holdfast.sessions t
         set owner = case when c.hold > 0 then c.owner end,
             lease_until = case when c.hold > 0 then {NOW} + c.hold end, lease_lock = c.lock,
             position = c.expected + c.size, epoch = coalesce(c.epoch, t.epoch + 1),
             ({", ".join(_SUMMARY)}) = row({", ".join(f"c.{name}" for name in _SUMMARY)})
        from c where t.id = c.id and t.position = c.expected
         and case when c.epoch is null then {FREE_TO.format(table="t", owner="c.owner")} else t.epoch = c.epoch end
      returning t.id, t.num, t.epoch, t.state),
j as (insert into holdfast.journal (session, position, at, checksum, body)
      select s.num, e.position, e.at, e.checksum, e.body
        from unnest({entries}) as e (id, position, at, checksum, body) join s on s.id = e.id){snapshots}
select id, epoch from s
"""


def group_call(group: Sequence[GroupedCommit]) -> tuple[str, list[list[Any]]]:
    """The statement for a group, and its parameters: a list for each column."""
    commits = [
        [
            *(grouped.commit.session_id, grouped.commit.owner, grouped.commit.hold_ms, grouped.commit.expected),
            *(grouped.commit.epoch, grouped.lock, len(grouped.stored), *summary_columns(grouped.commit.summary)),
        ]
        for grouped in group
    ]
    entries = [
        [grouped.commit.session_id, entry.position, entry.at, entry.checksum, entry.body]
        for grouped in group
        for entry in grouped.stored
    ]
    snapshots = [
        [grouped.commit.session_id, grouped.commit.snapshot.position, grouped.commit.snapshot.data]
        for grouped in group
        if grouped.commit.snapshot is not None and grouped.change == "put"
    ]
    arguments = [
        *map(list, zip(*commits, strict=True)),
        *(map(list, zip(*entries, strict=True)) if entries else [[] for _ in range(5)]),
        *map(list, zip(*snapshots, strict=True)),
    ]
    return group_statement(bool(snapshots), any(grouped.change == "drop" for grouped in group)), arguments
