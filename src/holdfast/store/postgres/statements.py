"""The statements of the PostgreSQL store but for the append, and how their rows are read.

Statements rely on READ COMMITTED: an UPDATE that waited for another writer checks its condition again on the row as
that writer left it, so of several who append at one position a single one succeeds. Rows are always locked in the same
order (session, messages, blobs by id), so that no two calls wait for each other. A snapshot is changed only by who has
locked its session.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.core.labels import lower_ascii
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.store.codec import encode_value
from holdfast.store.commits import StateWrite
from holdfast.store.errors import CorruptSessionError, StateConflictError
from holdfast.store.filters import is_of_living_children, prefix_end
from holdfast.store.postgres.presence import GONE
from holdfast.store.session_rows import SessionFilter, SessionRow

NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
_SUMMARY = Summary.__struct_fields__  # the columns have the names of the fields
_GONE = GONE.format(lock="lease_lock")
ROW = (
    f"id, position, epoch, case when lease_until > {NOW} and not {_GONE} then owner end as owner, lease_until,"
    f" {', '.join(_SUMMARY)}"
)
FOUND = f"""
select num, position, epoch, case when not {_GONE} then owner end as owner, lease_until, {NOW} as now
  from holdfast.sessions where id = $1
"""
REPAIR = f"""
update holdfast.sessions set ({", ".join(_SUMMARY)}) = row({", ".join(f"${i}" for i in range(2, 2 + len(_SUMMARY)))})
 where id = $1 returning num
"""
LIVING = "state in ('running', 'paused')"
ENDED = ", ".join(f"'{state}'" for state in State if state.is_terminal)
# An append that ends a session, and waited for one that gave it its first snapshot, does not see it and leaves it. The
# same with mail that is sent meanwhile. So what an ended session has of either is not there.
WAITING = f"""
select number from holdfast.mailbox m join holdfast.sessions s on s.num = m.session and s.state not in ({ENDED})
 where session = $1 and number = any($2::bigint[]) and body is not null
"""
SEND = f"""
with s as (select num, state from holdfast.sessions where id = $1 for key share),
m as (insert into holdfast.mailbox (session, key, at, digest, body)
      select num, $2, $3, $4, case when state not in ({ENDED}) then $5 end from s
      on conflict (session, key) do nothing returning number)
select s.num, m.number from s left join m on true
"""
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
MAILBOXES = f"""
select s.id, m.* from holdfast.sessions s left join lateral (
    select number, key, at, body, digest from holdfast.mailbox
     where session = s.num and body is not null and s.state not in ({ENDED}) order by number limit $2) m on true
 where s.id = any($1::text[]) order by m.number
"""


# --- rows ------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Text as it is stored in a column of its own: PostgreSQL cannot hold the character NUL."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescape(text: str) -> str:
    """The text of such a column."""
    if "\\" not in text:  # as nearly always
        return text
    return re.sub(r"\\(.)", lambda found: "\0" if found[1] == "0" else found[1], text)


def summary_columns(summary: Summary) -> list[Any]:
    values: dict[str, Any] = {**msgspec.to_builtins(summary), "labels": ",".join(summary.labels)}
    return [escape(value) if isinstance(value, str) else value for value in values.values()]


def row_of(row: Any) -> SessionRow:
    values = {name: unescape(row[name]) if isinstance(row[name], str) else row[name] for name in _SUMMARY}
    values["labels"] = values["labels"].split(",") if values["labels"] else ()
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


_HOLDS_TEXT = " or ".join(
    f'strpos(lower({column} collate "C"), ${{0}}) > 0' for column in ("id", "title", "program", "labels")
)


def conditions(where: SessionFilter, before: int | None) -> tuple[str, list[Any]]:
    """A filter as a condition with its parameters."""
    are_living = is_of_living_children(where)  # said in words, so that any plan may use their indexes
    given = [
        (condition, escape(value) if isinstance(value, str) else value)
        for condition, value in (
            ("state = any(${}::text[])", None if are_living else list(where.states) or None),
            ("program = ${}", where.program),
            ("parent = ${}", where.parent),
            ("service = any(${}::text[])", list(map(escape, where.services)) or None),
            ("starts_with(id, ${})", where.id_prefix),
            ("id >= ${}", where.id_prefix),
            ("id < ${}", prefix_end(where.id_prefix) if where.id_prefix else None),
            ("${} = any(string_to_array(waiting_for, ','))", where.waiting_for),
            ("updated_at < ${}", where.updated_before),
            ("updated_at > ${}", where.updated_after),
            ("num < ${}", before),
            ("forked_from = ${}", where.forked_from),
            ("${}::text[] <@ string_to_array(labels, ',')", list(map(escape, where.labels)) or None),
            ("not (${}::text[] && string_to_array(labels, ','))", list(map(escape, where.without_labels)) or None),
            (f"({_HOLDS_TEXT})", lower_ascii(where.text) if where.text else None),
        )
        if value is not None
    ]
    texts = [condition.format(number) for number, (condition, _) in enumerate(given, 1)]
    if are_living:
        texts.append(LIVING)
    if where.asking:
        texts.append("asks > 0")
    if where.children is not None:
        texts.append("parent is not null" if where.children else "parent is null")
    if where.has_mail:
        mail = "num in (select session from holdfast.mailbox where body is not null)"
        texts.append(f"{mail} and state not in ({ENDED})")
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
