"""`Puller`: takes nudges from the queue of a fleet, as many as this process has room for, and drives their sessions.

A message that was taken stays in the queue until the drive is over, and is kept from others by a sign of life now and
then. Whoever dies says nothing more, and the message is brought to somebody else. That this takes seconds does no harm:
the sweep sees in the store that the owner of a session has died, and is sooner.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.fleet.drive import BringAgainError
from holdfast.engine.nats.connection import CONSUMER, NatsConnection
from holdfast.engine.nats.link import NatsLink
from holdfast.engine.nats.settings import NatsSettings
from holdfast.engine.owner import Owner

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = logging.getLogger("holdfast.dispatch")

ACK_WAIT_S = 10.0
"""Seconds after which a message that nobody gives a sign of is brought again: as long as a lease."""

SIGN_S = 3.0
"""Seconds between two signs that a message is still worked on."""

MOST_TAKEN = 100_000
"""Messages that all workers of a fleet may have taken at a time."""

MOST_WAITING = 10_000
"""Workers that may wait for messages at a time."""

REQUEST_S = 30.0
"""Seconds for which a worker waits for messages before it asks again."""

HEARTBEAT_S = 5.0
"""Seconds between two signs that a request is not forgotten."""

SILENCE_S = 2.5 * HEARTBEAT_S
"""Seconds without such a sign after which a request is lost."""

FIRST_AGAIN_S = 0.05
LONGEST_AGAIN_S = 2.0
"""Seconds before a message is brought again that could not be worked on: doubled each time, up to the longest."""

ACK, NAK, SIGN, TERM = b"+ACK", b"-NAK", b"+WPI", b"+TERM"


class PullError(Exception):
    """The queue does not do as it is asked."""


class Taken(NamedTuple):
    """A message that was taken from the queue."""

    reply: str
    """Where its end is told."""
    born: datetime | None
    """When the stream was made that it is from."""
    times: int
    """How often it was brought to somebody."""


class Puller:
    """What is taken from the queue here. Belongs to one event loop."""

    def __init__(
        self,
        link: NatsLink,
        settings: NatsSettings,
        owner: Owner,
        drive: Callable[[str], Awaitable[None]],
    ) -> None:
        self._link = link
        self._settings = settings
        self._drive = drive
        self._owner = owner
        self._most = settings.pull or 1
        self._taken: dict[Taken, None] = {}
        self._asked = 0
        """How many messages of the present request are still to come."""
        self._trouble = ""
        self._request = 0
        self._changed = asyncio.Event()
        self._is_refusing = False

    async def run(self) -> None:
        """Take messages, until cancelled or told to refuse."""
        while not self._is_refusing:
            connection = await self._link.connected()
            try:
                await self._pull(connection)
            except PullError as error:
                log.warning("nothing is brought here for a moment: %s", error)
                connection.give_up()
                await asyncio.sleep(0)

    async def give_signs(self) -> None:
        """Say of each message that was taken that it is still worked on, until cancelled."""
        while True:
            await asyncio.sleep(SIGN_S)
            for taken in list(self._taken):
                await self._link.answer(taken.reply, taken.born, SIGN)

    def refuse(self) -> None:
        """Take no more messages."""
        self._is_refusing = True
        self._changed.set()

    async def give_back(self) -> None:
        """Let others have what was taken and is not done: this process has ended."""
        for taken in list(self._taken):
            await self._link.answer(taken.reply, taken.born, NAK)
        self._taken.clear()
        await self._link.flush()

    # --- asking ------------------------------------------------------------------------------------

    async def _pull(self, connection: NatsConnection) -> None:
        import nats.errors

        client = connection.client
        inbox = client.new_inbox()

        async def take(message: Msg) -> None:
            await self._take(message, connection)

        connection.on_lost = self._changed.set
        try:
            await self._find_consumer(connection)
            self._asked, self._trouble = 0, ""
            subscription = await client.subscribe(f"{inbox}.*", cb=take)
            while not connection.lost.is_set() and not self._is_refusing:
                self._changed.clear()
                room = self._most - len(self._taken)
                if not self._asked and room > 0:
                    await self._ask(connection, inbox, room)
                await self._wait_for_change()
            if not connection.lost.is_set():
                await subscription.drain()  # type: ignore[no-untyped-call]
        except (nats.errors.Error, OSError) as error:
            raise PullError(f"{type(error).__name__}: {error}") from None

    async def _find_consumer(self, connection: NatsConnection) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        settings = self._settings
        config = ConsumerConfig(
            durable_name=CONSUMER,
            description="Workers of a fleet.",
            filter_subject=settings.subject("drive"),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,
            max_ack_pending=MOST_TAKEN,
            max_waiting=MOST_WAITING,
        )
        await connection.jetstream.add_consumer(settings.stream, config)

    async def _ask(self, connection: NatsConnection, inbox: str, room: int) -> None:
        self._request += 1
        self._asked = room
        wanted = {"batch": room, "expires": int(REQUEST_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._settings.stream}.{CONSUMER}"
        await connection.client.publish(subject, json.dumps(wanted).encode(), reply=f"{inbox}.{self._request}")

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(SILENCE_S):
                await self._changed.wait()
        except TimeoutError:
            if self._asked:
                raise PullError("the queue gives no sign of life") from None
        if self._trouble:
            raise PullError(self._trouble)

    # --- what comes --------------------------------------------------------------------------------

    async def _take(self, message: Msg, connection: NatsConnection) -> None:
        """A message has come, or a word about the request."""
        if not message.reply:
            self._hear(message)
            return
        self._asked = max(0, self._asked - 1)
        self._changed.set()
        about = message.metadata
        self._link.note_ahead(int(about.timestamp.timestamp() * 1000) - self._owner.now())
        taken = Taken(message.reply, connection.born, about.num_delivered)
        try:
            session_id = message.data.decode()
        except UnicodeDecodeError:
            await self._link.answer(taken.reply, taken.born, TERM)
            return
        self._taken[taken] = None
        self._owner.spawn(self._work(session_id, taken))

    def _hear(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get("Status", "")
        if message.subject.rpartition(".")[2] == str(self._request):
            if status in ("404", "408"):  # its time is over
                self._asked = 0
            elif status != "100":
                self._trouble = f"{status} {headers.get('Description', '')}".strip()
        self._changed.set()

    async def _work(self, session_id: str, taken: Taken) -> None:
        word = ACK
        try:
            await self._drive(session_id)
        except BringAgainError as again:
            log.debug("session '%s' is to be brought again: %s", session_id, again)
            word = self._again(taken)
        except Exception:
            log.exception("session '%s' could not be driven, and is brought again", session_id)
            word = self._again(taken)
        self._taken.pop(taken, None)
        self._changed.set()
        await self._link.answer(taken.reply, taken.born, word)

    def _again(self, taken: Taken) -> bytes:
        if self._is_refusing:
            return NAK  # it does not come here again
        delay_s = min(FIRST_AGAIN_S * 2 ** min(taken.times - 1, 10), LONGEST_AGAIN_S)
        return NAK + b" " + json.dumps({"delay": int(delay_s * 1e9)}).encode()
