"""Errors of the PostgreSQL driver, and what callers see of them.

A connection that is dropped shows in many ways: as an error of the server, of the system, of the driver's own protocol
(`InternalClientError`), or of its inner state (`AttributeError`, `InvalidStateError`, a cancelled future). So whatever
comes out of the driver that is not the server's word about our statement is trouble with the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator

import asyncpg

from holdfast.core.errors import HoldfastError
from holdfast.store.errors import StoreUnavailableError

log = logging.getLogger("holdfast.store")

_KNOWN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, ValueError)
"""What the driver is known to raise; ValueError for a URL that it cannot parse."""
BAD_ARGUMENT = (asyncpg.DataError, asyncpg.exceptions._base.DataError)
"""Seen by the server, and by the driver itself."""
_CONNECTION_ENDED = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.FatalPostgresError)


def is_broken(error: BaseException) -> bool:
    """Whether a connection by which this came is not to be used any more.

    Only where we or the server have refused something, or a value could not be sent, both sides know where they are.
    """
    if isinstance(error, (HoldfastError, *BAD_ARGUMENT)):
        return False
    return not isinstance(error, asyncpg.PostgresError) or isinstance(error, _CONNECTION_ENDED)


def _is_of_driver(error: BaseException) -> bool:
    """Whether the driver has raised an error, and not our own code around it."""
    frames, trace = list[str](), error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return any("asyncpg" in name for name in frames)


def is_stray(error: BaseException) -> bool:
    """Whether this is a cancellation that nobody has asked for: a future inside the driver was cancelled."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()


def is_trouble(error: BaseException) -> bool:
    """Whether an error tells of trouble with the store: not a refusal, not our being cancelled, not a fault of ours."""
    if isinstance(error, asyncio.CancelledError):
        return is_stray(error)
    return isinstance(error, _KNOWN) or _is_of_driver(error)


@contextlib.contextmanager
def store_trouble(shown: str) -> Iterator[None]:
    """Let trouble with the store out as `StoreUnavailableError`, and no error of the driver."""
    try:
        yield
    except HoldfastError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if not is_trouble(error):
            raise
        raise unavailable(shown, error) from None


def unavailable(shown: str, error: BaseException) -> StoreUnavailableError:
    """The error that callers see for one of the driver, with the URL as it may be shown."""
    match error:
        case TimeoutError():
            why = "the server did not answer in time"
        case ValueError():
            why = "its URL cannot be read"  # the driver's message may quote the password
        case asyncpg.LockNotAvailableError():
            why = "somebody else has locked a row that this needs, for longer than is waited for"
        case _ if isinstance(error, _KNOWN):
            why = str(error) or type(error).__name__
        case _:
            log.warning("store %s: the driver failed in a way of its own", shown, exc_info=error)
            why = f"the connection was lost ({type(error).__name__}: {error})"
    return StoreUnavailableError(shown, why)


def redact(url: str) -> str:
    """The URL as it may be shown: without its passwords, even where it is malformed."""
    url = re.sub(r"^(\w+://[^:/@?]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url)
