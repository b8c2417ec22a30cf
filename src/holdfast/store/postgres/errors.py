"""Errors of the PostgreSQL driver, and what callers see of them."""

from __future__ import annotations

import re

import asyncpg

from holdfast.store.errors import StoreUnavailableError

TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError)
"""All that the driver raises; ValueError for a URL that it cannot parse."""
BROKEN = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError, ConnectionError)
"""What a connection raises that the server or the network has ended."""
BAD_ARGUMENT = (asyncpg.DataError, asyncpg.exceptions._base.DataError)
"""Seen by the server, and by the driver itself."""


def unavailable(shown: str, error: Exception) -> StoreUnavailableError:
    """The error that callers see for one of the driver, with the URL as it may be shown."""
    match error:
        case TimeoutError():
            why = "the server did not answer in time"
        case ValueError():
            why = "its URL cannot be read"  # the driver's message may quote the password
        case _:
            why = str(error) or type(error).__name__
    return StoreUnavailableError(shown, why)


def redact(url: str) -> str:
    """The URL as it may be shown: without its passwords, even where it is malformed."""
    url = re.sub(r"^(\w+://[^:/@?]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url)
