"""What a SQLite file has beside its sessions, as works of a reader or the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.store.inventory import Tombstone


def state_value(connection: sqlite3.Connection, namespace: str, key: str) -> tuple[bytes, int] | None:
    """The JSON of a state item, and its version."""
    found: tuple[bytes, int] | None = connection.execute(
        "SELECT CAST(value AS BLOB), version FROM state WHERE namespace = ? AND key = ?", (namespace, key)
    ).fetchone()
    return found


def state_keys(connection: sqlite3.Connection, namespace: str, prefix: str, after: str, limit: int) -> list[str]:
    """See `Store.list_state`."""
    rows = connection.execute(
        "SELECT key FROM state WHERE namespace = ? AND key > ? AND substr(key, 1, ?) = ? ORDER BY key LIMIT ?",
        (namespace, after, len(prefix), prefix, limit),
    )
    return [key for (key,) in rows]


def delete_state(connection: sqlite3.Connection, namespace: str, key: str) -> bool:
    """See `Store.delete_state`."""
    return connection.execute("DELETE FROM state WHERE namespace = ? AND key = ?", (namespace, key)).rowcount > 0


def namespaces(connection: sqlite3.Connection) -> list[str]:
    """See `Store.namespaces`."""
    return [name for (name,) in connection.execute("SELECT DISTINCT namespace FROM state ORDER BY namespace")]


def tombstones(connection: sqlite3.Connection, after: str, limit: int) -> list[Tombstone]:
    """See `Store.tombstones`."""
    found = connection.execute("SELECT id, deleted_at FROM tombstones WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [Tombstone(session_id, deleted_at) for session_id, deleted_at in found]


def bury(connection: sqlite3.Connection, buried: Sequence[Tombstone]) -> None:
    """See `Store.bury`."""
    connection.executemany(
        "INSERT INTO tombstones (id, deleted_at) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)"
        " ON CONFLICT DO NOTHING",
        [(each.session_id, each.deleted_at) for each in buried],
    )
