"""`NatsConnection`: a connection to JetStream on which the queue of a fleet is known to be as it should.

It is made anew whenever it was lost: the client's own way of reconnecting would neither notice that the stream is gone,
nor say that the credentials are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.engine.dispatch import DispatchError
from holdfast.engine.nats.settings import NatsSettings

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig, StreamInfo

CONSUMER = "workers"
"""The consumer that all workers of a fleet share."""

CONNECT_S = 2.0
"""Seconds that a server has to take a connection before the next one is tried."""

REPLY_S = 2.0
"""Seconds that JetStream has for a reply."""

PING_S = 4.0
"""Seconds between two signs of life of a quiet connection; it is lost after three without an answer."""

DUPLICATES_S = 120.0
"""Seconds for which the same nudge twice is one."""

_REFUSED = ("authorization violation", "authentication")
"""Words that a server refuses credentials with."""


class NatsAwayError(Exception):
    """No server answers now, or none that has JetStream ready."""


class NatsConnection:
    """One connection, until it is `lost`."""

    def __init__(self, client: Client, settings: NatsSettings) -> None:
        self._client = client
        self._settings = settings
        self.jetstream: JetStreamContext = client.jetstream(timeout=REPLY_S)
        self.lost = asyncio.Event()
        self.on_lost: Callable[[], None] | None = None
        """Called when it is lost."""
        self.born: datetime | None = None
        """When the stream was made: what was taken from one that is gone cannot be acknowledged to another."""
        self.has_schedules = False
        """Whether the server sends messages at a time."""
        self._complaint = ""
        """What the server has complained of last."""

    @classmethod
    async def open(cls, settings: NatsSettings, *, makes_stream: bool = True) -> NatsConnection:
        """Connect, and see to it that there is a stream.

        `NatsAwayError` if that has to be tried again, `DispatchError` if somebody has to do something about it.
        """
        from nats.aio.client import Client

        client = Client()
        connection = cls(client, settings)
        try:
            await connection._connect()
            await connection._find_stream(makes_stream=makes_stream)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def client(self) -> Client:
        return self._client

    @property
    def server(self) -> str:
        """The server that was reached, and its version."""
        url, version = self._client.connected_url, self._client.connected_server_version
        where = f"{url.hostname}:{url.port}" if url is not None else self._settings.hosts
        return f"{where} (NATS {version.major}.{version.minor}.{version.patch})"

    async def close(self) -> None:
        """End it."""
        with contextlib.suppress(Exception):  # whatever is wrong with it, it is not used any more
            await self._client.close()
        self.give_up()

    def give_up(self) -> None:
        """It is of no use any more: it was lost, or the stream is not there."""
        self.lost.set()
        if self.on_lost is not None:
            self.on_lost()

    # --- setting it up -----------------------------------------------------------------------------

    async def _connect(self) -> None:
        import nats.errors

        settings = self._settings
        try:
            await self._client.connect(
                list(settings.servers),
                name=f"holdfast {settings.service}",
                user=settings.user,
                password=settings.password,
                token=settings.token,
                error_cb=self._note,
                closed_cb=self._end,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_S,  # type: ignore[arg-type]
                ping_interval=PING_S,  # type: ignore[arg-type]
            )
        except (OSError, nats.errors.Error, TimeoutError) as error:
            why = self._complaint or _words(error)
            if any(word in why.lower() for word in _REFUSED):
                raise DispatchError(
                    f"the NATS server at {settings.hosts} refuses these credentials ({why}): give those of a user of an"
                    " account with JetStream, as nats://USER:PASSWORD@host:4222 or nats://TOKEN@host:4222"
                ) from None
            raise NatsAwayError(f"no NATS server answers at {settings.hosts}: {why}") from None

    async def _find_stream(self, *, makes_stream: bool) -> None:
        import nats.errors
        from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

        settings = self._settings
        try:
            try:
                info = await self.jetstream.stream_info(settings.stream)
            except NotFoundError:
                if not makes_stream:
                    return
                info = await self.jetstream.add_stream(stream_config(settings))
        except ServiceUnavailableError as error:
            if error.err_code not in (None, NOT_ENABLED, NOT_ENABLED_FOR_ACCOUNT):
                raise NatsAwayError(f"JetStream is not ready at {settings.hosts}: {error.description}") from None
            raise DispatchError(
                f"the NATS server at {settings.hosts} has no JetStream for this account: start it with `nats-server -js"
                " -sd DIRECTORY`, or let the account use JetStream"
            ) from None
        except APIError as error:
            if error.err_code == NAME_IN_USE:  # somebody else has made it just now
                raise NatsAwayError(str(error.description)) from None
            raise DispatchError(f"NATS refuses the stream '{settings.stream}': {error.description}") from None
        except nats.errors.Error as error:
            if "permissions violation" in self._complaint.lower():
                raise DispatchError(
                    f"the NATS server at {settings.hosts} does not permit what a fleet needs ({self._complaint}): allow"
                    f" this user $JS.API.>, $JS.ACK.{settings.stream}.>, {settings.subject('>')} and _INBOX.>"
                ) from None
            raise NatsAwayError(f"JetStream does not answer at {settings.hosts}: {_words(error)}") from None
        self._check(info)

    def _check(self, info: StreamInfo) -> None:
        """Keep what has to be known of a stream. One that somebody has made is used as it is, if it can be."""
        settings, config = self._settings, info.config
        wanted = stream_config(settings)
        if config.retention != wanted.retention or config.subjects != wanted.subjects or not config.allow_rollup_hdrs:
            raise DispatchError(
                f"the stream '{settings.stream}' of the NATS server at {settings.hosts} is not as a fleet needs it:"
                f" retention `workqueue`, subjects {wanted.subjects}, rollups allowed; change or remove it"
            )
        self.born = info.created
        self.has_schedules = bool(config.allow_msg_schedules)

    async def _note(self, error: Exception) -> None:
        self._complaint = _words(error)

    async def _end(self) -> None:
        self.give_up()


NOT_ENABLED = 10076
NOT_ENABLED_FOR_ACCOUNT = 10039
NAME_IN_USE = 10058
"""What JetStream calls these errors."""


def stream_config(settings: NatsSettings) -> StreamConfig:
    """The stream that is the queue of a fleet. Whatever is not said here is left to whoever runs the servers."""
    from nats.js.api import RetentionPolicy, StorageType, StreamConfig

    options: dict[str, Any] = {
        "name": settings.stream,
        "description": "Sessions of a Holdfast store that somebody should look at.",
        "subjects": [settings.subject(">")],
        "retention": RetentionPolicy.WORK_QUEUE,
        "storage": StorageType.FILE,
        "num_replicas": settings.replicas,
        "duplicate_window": DUPLICATES_S,
        "allow_rollup_hdrs": True,
        "allow_msg_schedules": True,
    }
    return StreamConfig(**options)


def _words(error: BaseException) -> str:
    text = str(error).removeprefix("nats: ").strip("'\" ")
    return f"{type(error).__name__}: {text}" if isinstance(error, OSError) else text or type(error).__name__
