"""The statements of the PostgreSQL store, and how their rows are read.

Statements rely on READ COMMITTED: an UPDATE that waited for another writer checks its condition again on the row as
that writer left it, so of several who append at one position a single one succeeds. Rows are always locked in the same
order (session, messages, blobs by id), so that no two calls wait for each other. A snapshot is changed only by who has
locked its session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.store.checkpoints import seal_checkpoint, seal_segment
from holdfast.store.codec import StoredEntry, encode_value, pack_blob
from holdfast.store.commits import Commit, StateWrite
from holdfast.store.contract import SessionFilter, SessionRow
from holdfast.store.errors import CorruptSessionError, StateConflictError
from holdfast.store.postgres.presence import GONE

NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
_SUMMARY = Summary.__struct_fields__  # the columns have the names of the fields
_GONE = GONE.format(lock="lease_lock")
ROW = (
    f"id, position, epoch, case when lease_until > {NOW} and not {_GONE} then owner end as owner, lease_until,"
    f" {', '.join(_SUMMARY)}"
)
FREE_TO = (
    f"({{table}}.owner is null or {{table}}.owner = {{owner}} or {{table}}.lease_until <= {NOW}"
    f" or {GONE.format(lock='{table}.lease_lock')})"
)
_FREE = FREE_TO.format(table="sessions", owner="$2")
FOUND = f"""
select num, position, epoch, case when not {_GONE} then owner end as owner, lease_until, {NOW} as now
  from holdfast.sessions where id = $1
"""
LOST = f"""
select id, owner, epoch, lease_until from holdfast.sessions
 where lease_lock = any($1::bigint[]) and lease_until > {NOW} and {_GONE} order by num limit $2
"""

REPAIR = f"""
update holdfast.sessions set ({", ".join(_SUMMARY)}) = row({", ".join(f"${i}" for i in range(2, 2 + len(_SUMMARY)))})
 where id = $1 returning num
"""
WAITING = "select number from holdfast.mailbox where session = $1 and number = any($2::bigint[]) and body is not null"
SEND = """
with s as (select num from holdfast.sessions where id = $1 for key share),
m as (insert into holdfast.mailbox (session, key, at, digest, body) select num, $2, $3, $4, $5 from s
      on conflict (session, key) do nothing returning number)
select s.num, m.number from s left join m on true
"""
ENDED = ", ".join(f"'{state}'" for state in State if state.is_terminal)
# An append that ends a session, and waited for one that gave it its first snapshot, does not see it and leaves it.
SNAPSHOT = f"""
select s.position as reach, p.position, p.data
  from holdfast.sessions s left join holdfast.snapshots p on p.session = s.num and s.state not in ({ENDED})
 where s.id = $1
"""
CHECKPOINT = """
select s.position as reach, c.position, c.checksum, c.state,
       array(select row(after, position, checksum, data) from holdfast.segments
              where session = s.num order by position) as segments
  from holdfast.sessions s left join holdfast.checkpoints c on c.session = s.num
 where s.id = $1
"""
MAILBOX = """
select m.* from holdfast.sessions s left join lateral (
    select number, key, at, body, digest from holdfast.mailbox
     where session = s.num and body is not null order by number limit $2) m on true
 where s.id = $1 order by m.number
"""


def _keep_blobs(first: int) -> str:
    """CTEs that store blobs (ids, packings, sizes, contents: parameters `first` and on) for the session in `s`.

    Each blob is locked until the commit: what exists is shared with others who keep it, the rest is inserted, or
    locked if somebody else did so meanwhile. So a blob that is about to lose its last keeper is either still there at
    our commit, or stored by us anew.
    """
    ids, packings, sizes, contents = (f"${first + i}" for i in range(4))
    return f""",
there as (select id from holdfast.blobs where id = any({ids}::text[]) and exists (select from s)
          order by id for key share),
b as (insert into holdfast.blobs (id, packing, size, data)
      select u.* from unnest({ids}::text[], {packings}::text[], {sizes}::bigint[], {contents}::bytea[]) as u (id)
       where exists (select from s) and u.id not in (select id from there)
      on conflict (id) do update set size = excluded.size where false),
r as (insert into holdfast.blob_refs (blob, session)
      select u.id, s.num from s, unnest({ids}::text[]) as u (id) on conflict do nothing)"""


Change = Literal["keep", "put", "drop"]
"""What a commit does to the snapshot of its session."""


def snapshot_change(commit: Commit) -> Change:
    if commit.summary.state.is_terminal:
        return "drop"
    return "keep" if commit.snapshot is None else "put"


PUT_SNAPSHOTS = (
    "p as (insert into holdfast.snapshots (session, position, data) select {row} from {rows}"
    " on conflict (session) do update set position = excluded.position, data = excluded.data)"
)


@cache
def append_statement(new: bool, takes: bool, blobs: bool, snapshot: Change) -> str:
    """One statement that appends, or returns no row and changes nothing. Only what a commit needs is in it.

    Parameters: 1 id, 2 owner, 3 hold, 4 expected, 5 epoch, 6 lock; 7 and on the summary; then arrays of the entries'
    columns; then the numbers of messages; then arrays of the blobs' columns; then the snapshot's position and data.
    """
    held = "case when $3 > 0 then $2 end", f"case when $3 > 0 then {NOW} + $3::bigint end"
    entries = 7 + len(_SUMMARY)
    messages = entries + 4
    position = f"$4::bigint + cardinality(${entries}::bigint[])"
    values = ", ".join(f"${7 + i}" for i in range(len(_SUMMARY)))
    fence = f"id = $1 and position = $4 and case when $5::bigint is null then {_FREE} else epoch = $5 end"
    parts = []
    if new:
        parts.append(
            "s as (insert into holdfast.sessions"
            f" (id, owner, lease_until, lease_lock, position, epoch, {', '.join(_SUMMARY)})"
            f" values ($1, {', '.join(held)}, $6, {position}, coalesce($5::bigint, 1), {values})"
            " on conflict (id) do nothing returning num, epoch)"
        )
    else:
        where = fence
        if takes:
            parts.append(f"k as (select num from holdfast.sessions where {fence} for no key update)")
            parts.append(
                "m as (select number from holdfast.mailbox where session = (select num from k)"
                f" and number = any(${messages}::bigint[]) and body is not null order by number for update)"
            )
            where = f"num = (select num from k) and (select count(*) from m) = cardinality(${messages}::bigint[])"
        parts.append(
            f"s as (update holdfast.sessions set owner = {held[0]}, lease_until = {held[1]}, lease_lock = $6,"
            f" position = {position}, epoch = coalesce($5, epoch + 1), ({', '.join(_SUMMARY)}) = row({values})"
            f" where {where} returning num, epoch)"
        )
        if takes:
            parts.append(
                f"t as (update holdfast.mailbox set body = null, taken_at = {position}"
                " where number in (select number from m) and exists (select from s))"
            )
    columns = ", ".join(f"${entries + i}::{kind}[]" for i, kind in enumerate(("bigint", "bigint", "bigint", "text")))
    parts.append(
        "j as (insert into holdfast.journal (session, position, at, checksum, body)"
        f" select s.num, e.* from s, unnest({columns}) as e)"
    )
    after = messages + takes + 4 * blobs
    if snapshot == "put":
        parts.append(PUT_SNAPSHOTS.format(row=f"num, ${after}::bigint, ${after + 1}::bytea", rows="s"))
    elif snapshot == "drop":
        parts.append("p as (delete from holdfast.snapshots where session = (select num from s))")
    kept = _keep_blobs(messages + takes) if blobs else ""
    return f"with {', '.join(parts)}{kept} select epoch from s"


def append_arguments(
    commit: Commit, stored: Sequence[StoredEntry], takes: Sequence[int], blobs: dict[str, bytes], lock: int | None
) -> list[Any]:
    """The parameters of `append_statement`, in its order; `lock` is what shows that the holder lives, if it is to hold
    the session and anything does."""
    arguments = [commit.session_id, commit.owner, commit.hold_ms, commit.expected, commit.epoch, lock]
    arguments += summary_columns(commit.summary)
    arguments += [[getattr(entry, column) for entry in stored] for column in ("position", "at", "checksum", "body")]
    if takes:
        arguments.append(takes)
    if blobs:
        arguments += blob_columns(blobs)
    if commit.snapshot is not None and snapshot_change(commit) == "put":
        arguments += [commit.snapshot.position, commit.snapshot.data]
    return arguments


async def write_checkpoint(connection: Any, commit: Commit) -> None:
    """Keep the checkpoint and the segment of a commit, if it has any, in the transaction that writes the commit."""
    if commit.checkpoint is not None:
        _, *row = seal_checkpoint(commit.session_id, commit.checkpoint)
        await connection.execute(
            "insert into holdfast.checkpoints (session, position, checksum, state)"
            " select num, $2, $3, $4 from holdfast.sessions where id = $1 on conflict (session)"
            " do update set position = excluded.position, checksum = excluded.checksum, state = excluded.state",
            *(commit.session_id, *row),
        )
    if commit.segment is not None:
        await connection.execute(
            "delete from holdfast.segments where position > $2"
            " and session = (select num from holdfast.sessions where id = $1)",
            *(commit.session_id, commit.segment.after),
        )
        await connection.execute(
            "insert into holdfast.segments (session, after, position, checksum, data)"
            " select num, $2, $3, $4, $5 from holdfast.sessions where id = $1",
            *(commit.session_id, *seal_segment(commit.session_id, commit.segment)),
        )


def blob_columns(blobs: dict[str, bytes]) -> list[list[Any]]:
    """Ids, packings, sizes and packed contents, by id: the order in which everybody locks them."""
    rows = [(blob_id, *pack_blob(blobs[blob_id])) for blob_id in sorted(blobs)]
    return [
        [blob_id for blob_id, _, _ in rows],
        [packing for _, packing, _ in rows],
        [len(blobs[blob_id]) for blob_id, _, _ in rows],
        [packed for _, _, packed in rows],
    ]


# --- rows ------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Text as it is stored in a column of its own: PostgreSQL cannot hold the character NUL."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\0" if found[1] == "0" else found[1], text)


def summary_columns(summary: Summary) -> list[Any]:
    values: dict[str, Any] = msgspec.to_builtins(summary)
    return [escape(value) if isinstance(value, str) else value for value in values.values()]


def row_of(row: Any) -> SessionRow:
    values = {name: _unescape(row[name]) if isinstance(row[name], str) else row[name] for name in _SUMMARY}
    try:
        summary = msgspec.convert(values, Summary)
    except msgspec.ValidationError as error:
        raise CorruptSessionError(row["id"], "its summary", str(error)) from None
    return SessionRow(
        session_id=row["id"],
        summary=summary,
        position=row["position"],
        epoch=row["epoch"],
        owner=row["owner"],
        lease_until=None if row["owner"] is None else row["lease_until"],
    )


def conditions(where: SessionFilter, before: int | None) -> tuple[str, list[Any]]:
    """A filter as a condition with its parameters."""
    given = [
        (condition, escape(value) if isinstance(value, str) else value)
        for condition, value in (
            ("state = any(${}::text[])", list(where.states) or None),
            ("program = ${}", where.program),
            ("parent = ${}", where.parent),
            ("starts_with(id, ${})", where.id_prefix),
            ("${} = any(string_to_array(waiting_for, ','))", where.waiting_for),
            ("updated_at < ${}", where.updated_before),
            ("updated_at > ${}", where.updated_after),
            ("num < ${}", before),
        )
        if value is not None
    ]
    texts = [condition.format(number) for number, (condition, _) in enumerate(given, 1)]
    if where.children:
        texts.append("parent is not null")
    return " and ".join(["true", *texts]), [value for _, value in given]


# --- deleting and blobs ----------------------------------------------------------------------------


async def drop_unkept(connection: Any, blob_ids: list[str]) -> None:
    """Remove blobs that no session keeps. Locked first: the second statement sees what those we waited for did."""
    if blob_ids:
        await connection.execute(
            "select from holdfast.blobs where id = any($1::text[]) order by id for update", blob_ids
        )
        await connection.execute(
            "delete from holdfast.blobs b where id = any($1::text[])"
            " and not exists (select from holdfast.blob_refs r where r.blob = b.id)",
            blob_ids,
        )


# --- state -----------------------------------------------------------------------------------------

_STATE_INSERT = "insert into holdfast.state as s (namespace, key, version, value) values ($1, $2, 1, $3)"
_STATE_CHANGE = "set version = s.version + 1, value = $3"


def _state_statement(write: StateWrite) -> str:
    """The statement that makes a write; gives no row where the item is not at the version that is expected."""
    if write.delete:
        at = "" if write.expected is None else " and version = $3"
        return f"delete from holdfast.state where namespace = $1 and key = $2{at} returning version"
    match write.expected:
        case None:
            act = f"{_STATE_INSERT} on conflict (namespace, key) do update {_STATE_CHANGE}"
        case 0:
            act = f"{_STATE_INSERT} on conflict (namespace, key) do nothing"
        case _:
            act = f"update holdfast.state s {_STATE_CHANGE} where namespace = $1 and key = $2 and version = $4"
    return f"{act} returning version"


async def write_state(connection: Any, write: StateWrite) -> int:
    """Make a write, by a connection in a transaction or by a pool; gives the item's version: the new, or the last."""
    place = write.namespace, write.key
    arguments: list[Any] = [*place] if write.delete else [*place, encode_value(write.value)]
    if write.expected or (write.delete and write.expected == 0):
        arguments.append(write.expected)
    version = await connection.fetchval(_state_statement(write), *arguments)
    if version is None:
        found = await connection.fetchval(
            "select version from holdfast.state where namespace = $1 and key = $2", *place
        )
        if not write.delete or (write.expected is not None and write.expected != (found or 0)):
            raise StateConflictError(*place, write.expected or 0, found or 0)
    return version or 0
