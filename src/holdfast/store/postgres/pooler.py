"""Connections through a pooler: settings that it does not pass on are made afterwards, and one that gives every
transaction another connection is refused.

Leases end with the lock of the connection that took them, and notifications come to the connection that listens. So a
connection has to stay the same for as long as we have it: directly, or through a pooler in session mode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import asyncpg

from holdfast.store.errors import StoreUnavailableError
from holdfast.store.limits import CONNECT_TIMEOUT_S
from holdfast.store.postgres.known_types import KnownTypesConnection

TRANSACTION_POOLING = (
    "it is reached through a pooler that gives each transaction another connection (pool_mode = transaction)."
    " The leases of sessions end with the connection that took them, and notifications need one that stays:"
    " set pool_mode = session for this database, or connect to the server directly"
)

_NOT_PASSED_ON = "unsupported startup parameter"
_SET = "select set_config(name, value, false) from unnest($1::text[], $2::text[]) as settings (name, value)"


async def connect_with(url: str, settings: Mapping[str, str], command_timeout: float | None = None) -> Any:
    """A connection with these settings."""
    given = dict(settings)
    options: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": command_timeout,
        "connection_class": KnownTypesConnection,
    }
    try:
        return await asyncpg.connect(url, server_settings=given, **options)
    except asyncpg.PostgresError as error:
        if _NOT_PASSED_ON not in str(error):
            raise
    connection = await asyncpg.connect(url, **options)
    try:
        await connection.execute(_SET, list(given), list(given.values()))
    except BaseException:
        connection.terminate()
        raise
    return connection


async def check_pooling(connection: Any, connect: Callable[[], Awaitable[Any]], where: str) -> None:
    """Raise if a connection is not the same from one transaction to the next.

    A pooler is recognised by the process id that it gives out: it is not that of the server's process. Then a second
    connection takes up, for a moment, whichever of them is free.
    """
    first = await _process_id(connection)
    if first == connection.get_server_pid():
        return
    other = await connect()
    try:
        async with other.transaction():
            second = await _process_id(other)
            is_shared = second == first or await _process_id(connection) != first
    finally:
        await other.close(timeout=CONNECT_TIMEOUT_S)
    if is_shared:
        raise StoreUnavailableError(where, TRANSACTION_POOLING)


async def _process_id(connection: Any) -> int:
    return int((await connection.fetchrow("select pg_backend_pid()"))[0])
