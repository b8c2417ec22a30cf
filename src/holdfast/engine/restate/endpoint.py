"""The endpoint that the engine brings nudges to: two handlers, which return nothing.

Nothing that depends on a session gets into the engine's journal: no input, no output, no step. An attempt that is made
again after a death, when the session has moved on, therefore never differs from what the engine has written down.

Handlers are *shared*: a nudge does not wait for one before it. Who of several works on a session is decided by its
lease; so a worker that hangs holds up nothing but its own attempts.

It speaks HTTP/1.1, a request for each attempt: a handler neither reads nor writes while it runs, so there is nothing to
stream, and any balancer spreads attempts over the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import restate
import uvicorn
from restate.exceptions import RetryableError
from restate.retry_policy import InvocationRetryPolicy

from holdfast.engine.dispatch import DispatchError
from holdfast.engine.fleet.drive import BringAgainError, Drives
from holdfast.engine.restate.settings import RestateSettings

KEEP_ALIVE_S = 3_600
"""Seconds for which a connection stays open without a request: the engine keeps a pool of them, and a nudge that meets
one just as it is closed has to be brought again."""

RETRY = InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50), exponentiation_factor=2.0, max_interval=timedelta(seconds=2)
)
"""How soon an attempt that has failed is made again. There is no last one: a session that was given up would wait."""

INACTIVITY = timedelta(hours=24)
"""How long a handler may say nothing. A drive lasts as long as the effects of its session."""

ABORT = timedelta(minutes=1)
"""How long a handler has to end after that."""

IDEMPOTENCY = timedelta(hours=1)
"""How long the engine remembers a nudge that was made, so that the same one is not made again."""

SweepOnce: TypeAlias = Callable[[int], Awaitable[None]]


def handlers(service: str, drives: Drives, sweep: SweepOnce) -> Any:
    """The application with the handlers of a fleet."""
    driven = restate.VirtualObject(service, description="Drives the sessions of a Holdfast store.", **_OPTIONS)
    swept = restate.VirtualObject(
        f"{service}-sweep", description="Finds the sessions that nobody was nudged for.", **_OPTIONS
    )

    @driven.handler(name="drive", kind="shared")
    async def drive(ctx: restate.ObjectSharedContext) -> None:
        try:
            await drives.drive(ctx.key())
        except BringAgainError as again:
            raise RetryableError(str(again)) from None

    @swept.handler(name="sweep", kind="shared")
    async def sweep_once(ctx: restate.ObjectSharedContext) -> None:
        await sweep(int(ctx.key()))

    return restate.app([driven, swept], protocol="request_response")


_OPTIONS: dict[str, Any] = {
    "inactivity_timeout": INACTIVITY,
    "abort_timeout": ABORT,
    "journal_retention": timedelta(0),
    "idempotency_retention": IDEMPOTENCY,
    "invocation_retry_policy": RETRY,
}


class WorkerEndpoint:
    """A server for the handlers of a fleet, which stops to take requests before it ends."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._server: _Uvicorn | None = None
        self.is_refusing = False
        """Whether health checks fail and attempts are turned away, so that a balancer and the engine go elsewhere."""

    async def run(self, listening: socket.socket) -> None:
        """Serve until cancelled, or told to end."""
        await asyncio.to_thread(asyncio.run, self._claim_signals())
        config = uvicorn.Config(
            self,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=0,
        )
        taken, server = listening.dup(), _Uvicorn(config)
        self._server = server
        try:
            await server.serve([taken])
        finally:
            self._server = None
            for each in server.servers:
                each.close()
            taken.close()
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # the loop closes them

    def end(self) -> None:
        """Stop serving, and cut off the attempts that are under way: the engine makes them again elsewhere."""
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.is_refusing and scope["type"] == "http":
            await send({"type": "http.response.start", "status": 503, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b"this worker is about to end"})
            return
        await self._app(scope, receive, send)

    async def _claim_signals(self) -> None:
        """Call the application once in a thread, where it cannot take SIGTERM for itself: that is for the worker."""
        scope = {"type": "http", "path": "/health", "headers": [], "http_version": "1.1", "method": "GET"}

        async def nothing(*_: Any) -> None:
            return None

        await self._app(scope, nothing, nothing)


class _Uvicorn(uvicorn.Server):
    """Leaves signals alone: whoever runs the process decides about them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: RestateSettings) -> socket.socket:
    """A socket that listens where the settings say. `DispatchError` if that cannot be done."""
    host, port = settings.address
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1_024)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise DispatchError(f"cannot listen on {settings.listen}: {error.strerror}; `listen` chooses another") from None
    return listening
