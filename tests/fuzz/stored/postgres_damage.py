"""Changes to the rows of a PostgreSQL database, which can be undone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg

from holdfast.store.journal_rows import row_checksum
from tests.fuzz.stored.damage import HURT, ODD_CELLS, WHERE, Change

_TABLES = ("tombstones", *WHERE)
"""Those that are set right again; `holders` has the locks of open stores, which stay."""

_ODD: dict[str, list[Any]] = {
    "bigint": [value for value in ODD_CELLS if value is None or isinstance(value, int)],
    "text": [value for value in ODD_CELLS if value is None or isinstance(value, str)],
    "bytea": [value for value in ODD_CELLS if value is None or isinstance(value, bytes)],
}


async def keep(connection: Any) -> None:
    """Remember what is in the tables."""
    await connection.execute("create schema kept")
    for table in _TABLES:
        await connection.execute(f"create table kept.{table} as table holdfast.{table}")


async def set_right(connection: Any) -> None:
    """Undo all changes since then."""
    scripts = []
    for table in _TABLES:
        columns = ", ".join(await _stored_columns(connection, table))
        into = f"insert into holdfast.{table} ({columns}) overriding system value"
        scripts.append(f"delete from holdfast.{table}; {into} select {columns} from kept.{table};")
    await connection.execute("".join(scripts))


async def _stored_columns(connection: Any, table: str) -> list[str]:
    """The columns of a table that are not computed from others."""
    found = await connection.fetch(
        "select attname from pg_attribute"
        " where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attgenerated = ''",
        f"holdfast.{table}",
    )
    return [row["attname"] for row in found]


async def apply(connection: Any, made: list[Change], is_sealed: bool) -> None:
    """Make the changes, as far as the tables allow."""
    for change in made:
        with suppress(asyncpg.PostgresError, asyncpg.DataError):  # what a constraint or a type of the table refuses
            await _apply(connection, change)
    if is_sealed:
        await _seal(connection)


async def _apply(connection: Any, change: Change) -> None:
    table, where = f"holdfast.{change.table}", WHERE[change.table]
    for name in ("sessions", "blob_refs"):
        where = where.replace(f"FROM {name} ", f"FROM holdfast.{name} ")
    places = [row["ctid"] for row in await connection.fetch(f"select ctid from {table} where {where} order by ctid")]
    columns = await connection.fetch(
        "select attname as name, format_type(atttypid, null) as type from pg_attribute"
        " where attrelid = $1::text::regclass and attnum > 0 order by attnum",
        table,
    )
    if not places:
        return
    name, kind = columns[change.column % len(columns)]
    this, other = places[change.row % len(places)], places[change.other % len(places)]
    match change.action:
        case "drop":
            await connection.execute(f"delete from {table} where ctid = $1", this)
        case "swap":
            swapped = f"(select {name} from {table} where ctid = $2)"
            await connection.execute(f"update {table} set {name} = {swapped} where ctid = $1", this, other)
        case "bytes":
            at, piece = change.value
            present = await connection.fetchval(f"select {name} from {table} where ctid = $1", this)
            data = present if isinstance(present, bytes) else str(present).encode()
            at %= len(data) + 1
            data = data[:at] + piece + data[at + 1 :]
            value = data if kind == "bytea" else data.decode("utf-8", "replace")
            value = int(value) if kind == "bigint" and value.isdecimal() else value
            await connection.execute(f"update {table} set {name} = $2 where ctid = $1", this, value)
        case _:
            odd = _ODD[kind]
            value = odd[ODD_CELLS.index(change.value) % len(odd)]
            await connection.execute(f"update {table} set {name} = $2 where ctid = $1", this, value)


async def _seal(connection: Any) -> None:
    """Give the rows of the journal the checksums of what now stands there."""
    where = WHERE["journal"].replace("FROM sessions", "FROM holdfast.sessions")
    for row in await connection.fetch(f"select ctid, first, last, at, later, body from holdfast.journal where {where}"):
        place, first, last, at, later, body = row
        label = f"{HURT}/{first!r}/{last!r}/{at!r}/{later}/None/"
        checksum = row_checksum(label, body.encode())
        await connection.execute("update holdfast.journal set checksum = $2 where ctid = $1", place, checksum)


async def content(connection: Any) -> list[list[str]]:
    """Everything in the tables, to be compared."""
    return [
        [row[0] for row in await connection.fetch(f"select t::text from holdfast.{table} t order by 1")]
        for table in _TABLES
    ]
