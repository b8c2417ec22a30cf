"""How the queue of a fleet is, as its servers say."""

from __future__ import annotations

import msgspec

from holdfast.engine.dispatch import DispatchError
from holdfast.engine.nats.connection import NatsAwayError, NatsConnection
from holdfast.engine.nats.settings import NatsSettings


class ConsumerReport(msgspec.Struct, frozen=True):
    """Those who take nudges from the queue."""

    name: str
    pending: int
    """Nudges that wait for somebody."""
    taken: int
    """Nudges that somebody works on, or that wait for another try."""
    redelivered: int
    """How many of those were brought more than once."""
    waiting: int
    """Workers that wait for nudges."""


class QueueReport(msgspec.Struct, frozen=True):
    """How the queue of a fleet is."""

    service: str
    server: str
    stream: str | None
    """None if no process of the fleet has made one yet."""
    replicas: int
    has_schedules: bool
    """Whether nudges can be kept until their time. Without, the sweep finds what is due."""
    messages: int
    scheduled: int
    """Nudges that wait for their time."""
    consumers: list[ConsumerReport]
    """None as long as no worker has come."""


async def queue_report(settings: NatsSettings) -> QueueReport:
    """How the queue of a fleet is. `DispatchError` if nobody can say."""
    import nats.errors
    from nats.js.errors import NotFoundError

    try:
        connection = await NatsConnection.open(settings, makes_stream=False)
    except NatsAwayError as error:
        raise DispatchError(str(error)) from None
    try:
        return await _report(connection, settings)
    except NotFoundError:
        return QueueReport(settings.service, connection.server, None, 0, False, 0, 0, [])
    except nats.errors.Error as error:
        raise DispatchError(f"JetStream does not answer at {settings.hosts}: {error}") from None
    finally:
        await connection.close()


async def _report(connection: NatsConnection, settings: NatsSettings) -> QueueReport:
    jetstream = connection.jetstream
    info = await jetstream.stream_info(settings.stream, subjects_filter=settings.subject("*"))  # all but schedules
    found = await jetstream.consumers_info(settings.stream)
    consumers = [
        ConsumerReport(
            name=each.name,
            pending=each.num_pending or 0,
            taken=each.num_ack_pending or 0,
            redelivered=each.num_redelivered or 0,
            waiting=each.num_waiting or 0,
        )
        for each in found
    ]
    return QueueReport(
        service=settings.service,
        server=connection.server,
        stream=settings.stream,
        replicas=info.config.num_replicas or 1,
        has_schedules=connection.has_schedules,
        messages=info.state.messages,
        scheduled=max(0, info.state.messages - sum((info.state.subjects or {}).values())),
        consumers=consumers,
    )


async def check_queue(settings: NatsSettings) -> None:
    """Raise `DispatchError` if the servers refuse what a fleet needs. That they are away is no reason."""
    try:
        connection = await NatsConnection.open(settings)
    except NatsAwayError:
        return
    await connection.close()
