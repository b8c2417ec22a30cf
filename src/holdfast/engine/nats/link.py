"""`NatsLink`: keeps a process connected to JetStream, sends nudges over that, and claims sweeps."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime
from urllib.parse import quote

from holdfast.engine.fleet.nudges import DriveNudge, NotSentError
from holdfast.engine.nats.connection import CONSUMER, REPLY_S, NatsAwayError, NatsConnection
from holdfast.engine.nats.settings import NatsSettings

log = logging.getLogger("holdfast.dispatch")

FIRST_REST_S = 0.05
"""Seconds before a server that does not answer is tried again; doubled for each failure in a row."""

LONGEST_REST_S = 0.5
"""Seconds between two tries at most, so that work goes on soon after it has come back."""

STEADY_S = 5.0
"""Seconds after which the end of a connection counts as the first failure."""

LATEST_MS = 253_370_764_800_000
"""The beginning of the year 9999 (unix ms). What is due later is scheduled for then."""


class NatsLink:
    """The connection of a process. Belongs to one event loop."""

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings
        self._connection: NatsConnection | None = None
        self._is_up = asyncio.Event()
        self._ahead_ms = 0

    async def run(self) -> None:
        """Keep connected, until cancelled. `DispatchError` if the servers refuse what is asked of them."""
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            try:
                connection = await NatsConnection.open(self._settings)
            except NatsAwayError as error:
                if not failures:
                    log.warning("%s; nudges wait here meanwhile", error)
                failures += 1
            else:
                began = clock()
                log.info("the queue of '%s' is at %s", self._settings.service, connection.server)
                if not connection.has_schedules:
                    log.warning(
                        "the stream '%s' has no message schedules (NATS 2.12): what is due is found by the sweep, one"
                        " or two seconds late",
                        self._settings.stream,
                    )
                await self._keep(connection)
                failures = 1 if clock() - began > STEADY_S else failures + 1
            await asyncio.sleep(min(FIRST_REST_S * 2 ** min(failures - 1, 10), LONGEST_REST_S))

    async def _keep(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._is_up.set()
        try:
            await connection.lost.wait()
        finally:
            self._connection = None
            self._is_up.clear()
            await connection.close()

    async def connected(self) -> NatsConnection:
        """The connection; waits until there is one."""
        while self._connection is None:
            await self._is_up.wait()
        return self._connection

    # --- what is sent ------------------------------------------------------------------------------

    async def send(self, nudge: DriveNudge) -> None:
        """Put a nudge into the queue. `NotSentError` if that cannot be done now."""
        settings = self._settings
        connection = self._at_hand()
        payload = nudge.session_id.encode()
        if nudge.due is None:
            headers = {} if nudge.key is None else {"Nats-Msg-Id": quote(nudge.key, safe="")}
            await self._publish(connection, settings.subject("drive"), payload, headers)
        elif connection.has_schedules:
            # A session has one schedule, and a new time takes the place of the former one.
            token = hashlib.blake2b(payload, digest_size=16).hexdigest()
            headers = {
                "Nats-Schedule": f"@at {_rfc3339(nudge.due + self._ahead_ms)}",
                "Nats-Schedule-Target": settings.subject("drive"),
            }
            await self._publish(connection, settings.subject("at", token), payload, headers)

    async def claim_sweep(self, number: int) -> bool:
        """Whether this process is the one to do the sweep with this number: the first to say so."""
        headers = {"Nats-Msg-Id": f"sweep-{number}", "Nats-Rollup": "sub"}
        return await self._publish(self._at_hand(), self._settings.subject("sweep"), b"", headers)

    async def pending(self) -> int:
        """How many nudges wait for a worker; none if nobody can say."""
        import nats.errors

        if self._connection is None:
            return 0
        try:
            info = await self._connection.jetstream.consumer_info(self._settings.stream, CONSUMER)
        except (nats.errors.Error, OSError) as error:
            log.debug("nobody knows how long the queue is: %s", error)
            return 0
        return info.num_pending or 0

    def note_ahead(self, ahead_ms: int) -> None:
        """The clock of the servers is ahead of the store's by so much at least.

        What is scheduled for a time then comes too early, and would be scheduled and come again and again.
        """
        self._ahead_ms = max(self._ahead_ms, ahead_ms)

    async def answer(self, reply: str, born: datetime | None, word: bytes) -> None:
        """Say what became of a message that was taken. If that cannot be said now, it is brought again."""
        import nats.errors

        connection = self._connection
        if connection is None or connection.born != born:
            return
        try:
            await connection.client.publish(reply, word)
        except nats.errors.Error as error:
            log.debug("a nudge could not be acknowledged: %s", error)

    async def flush(self) -> None:
        """Wait until what was sent has arrived, as far as somebody is there."""
        import nats.errors

        if self._connection is not None:
            try:
                await self._connection.client.flush(REPLY_S)  # type: ignore[arg-type]
            except (nats.errors.Error, OSError) as error:
                log.debug("the last words to the engine may be lost: %s", error)

    def _at_hand(self) -> NatsConnection:
        if self._connection is None:
            raise NotSentError(f"there is no connection to {self._settings.hosts}")
        return self._connection

    async def _publish(self, connection: NatsConnection, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        """Write a message to the stream; False if it is there already."""
        import nats.errors
        from nats.js.errors import NoStreamResponseError

        try:
            written = await connection.jetstream.publish(subject, payload, REPLY_S, headers=headers or None)
        except NoStreamResponseError:
            connection.give_up()  # the stream is gone, and is made again with the next connection
            raise NotSentError("there is no stream") from None
        except (nats.errors.Error, OSError) as error:
            raise NotSentError(f"{type(error).__name__}: {error}") from None
        return not written.duplicate


def _rfc3339(at: int) -> str:
    when = datetime.fromtimestamp(min(at, LATEST_MS) / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
