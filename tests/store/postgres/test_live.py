"""Live messages between processes on PostgreSQL. What holds for every store is in `test_contract.py`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.store.limits import LIVE_BYTES
from holdfast.store.postgres import audience
from holdfast.store.postgres import live as postgres_live
from holdfast.store.postgres import notify as postgres_notify
from holdfast.store.postgres.live import OUTGOING_BYTES, PIECE_CHARS, IncomingFrames, OutgoingFrames, channel_of
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.watch import LiveItem, LiveStream, LiveStreams, MissedMessages
from holdfast.testing.laws.live import listened, payloads
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.sessions import begin
from tests.store.postgres.helpers import connected, end_connections
from tests.tables import each_row


@asynccontextmanager
async def tuned(store: PostgresStore, session_id: str) -> AsyncIterator[LiveStream]:
    """A stream that hears other processes."""
    with store.listen(session_id) as stream:
        assert await stream.read(10) == [MissedMessages()], "for what was published before it could hear"
        yield stream


@pytest.fixture
async def other(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database) as opened:
        yield opened


async def test_other_stores_hear_everything_in_order_and_the_publisher_hears_it_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    sent = [b"%d " % number * (number % 40) for number in range(2_000)]
    async with tuned(store, "s-1") as here, tuned(other, "s-1") as there, tuned(store, "s-2") as elsewhere:
        heard = list[LiveItem]()
        for start in range(0, len(sent), 100):
            for payload in sent[start : start + 100]:
                other.publish("s-1", payload)
            heard += await there.read(1)
        other.publish("s-1", b"end")
        assert await listened(here, b"end") == [*sent, b"end"]
        await asyncio.sleep(0.1)
        assert [*heard, *await there.read(1)] == [*sent, b"end"]
        assert await elsewhere.read(0) == []


_SPEAKER = """
import asyncio, sys
from holdfast.store.postgres.store import PostgresStore

async def main():
    async with PostgresStore(sys.argv[1]) as store:
        for number in range(200):
            store.publish("s-afar", b"token %d" % number)
            await asyncio.sleep(0.001)
        store.publish("s-afar", b"end")

asyncio.run(main())
"""


async def test_another_process_is_heard_to_its_last_word(store: PostgresStore, database: str) -> None:
    async with tuned(store, "s-afar") as stream:
        speaker = await asyncio.create_subprocess_exec(sys.executable, "-c", _SPEAKER, database)
        assert await listened(stream, b"end") == [*(b"token %d" % number for number in range(200)), b"end"]
        assert await speaker.wait() == 0


async def test_a_message_takes_moments_to_another_store(store: PostgresStore, other: PostgresStore) -> None:
    took = list[float]()
    async with tuned(store, "s-1") as stream:
        for number in range(30):
            began = time.monotonic()
            other.publish("s-1", b"%d" % number)
            assert await stream.read(HANG_S) == [b"%d" % number]
            took.append(time.monotonic() - began)
    took.sort()
    print(f"live messages: p50 {took[15] * 1000:.0f} ms, longest {took[-1] * 1000:.0f} ms")
    assert took[3] < 0.2  # on a machine that has other things to do only some are as quick


async def test_messages_of_any_size_arrive_or_are_missed_in_their_place(
    store: PostgresStore, other: PostgresStore
) -> None:
    sizes = [0, 1, 100, PIECE_CHARS * 3 // 4 - 1, PIECE_CHARS * 3 // 4, 8_000, 8_001, LIVE_BYTES]
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    async with tuned(store, "s-1") as stream:
        for payload in (*sent, b"x" * (LIVE_BYTES + 1), b"y" * 10_000_000, b"end"):
            other.publish("s-1", payload)
        assert await listened(stream, b"end") == [*sent, MissedMessages(), b"end"]


async def test_two_publishers_of_long_messages_do_not_mix(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as one, PostgresStore(database) as two, tuned(store, "s-1") as stream:
        said = {name: [name + b"%d " % number * 2_000 for number in range(40)] for name in (b"a", b"b")}
        for first, second in zip(said[b"a"], said[b"b"], strict=True):
            one.publish("s-1", first)
            two.publish("s-1", second)
            await asyncio.sleep(0.004)
        heard = list[LiveItem]()
        while len(heard) < 80:
            heard += await stream.read(HANG_S)
        for name, expected in said.items():
            assert [each for each in payloads(heard) if each.startswith(name)] == expected


async def test_a_listener_that_was_cut_off_is_told_so_and_hears_again(
    store: PostgresStore, other: PostgresStore, database: str
) -> None:
    async with tuned(store, "s-1") as stream:
        other.publish("s-1", b"before")
        await listened(stream, b"before")
        await end_connections(database)
        assert await stream.read(10) == [MissedMessages()]
        while b"after" not in await stream.read(0.2):  # the publisher was cut off too
            other.publish("s-1", b"after")


async def test_a_listener_whose_process_stood_still_while_it_looked_is_not_cut_off(
    other: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "CONNECT_TIMEOUT_S", 0.3)
    heard = list[LiveItem]()
    for _ in range(5):  # on a machine that has other things to do the server itself may take as long
        async with PostgresStore(database) as store, tuned(store, "s-1") as stream:  # and now it takes its first look
            time.sleep(0.6)  # noqa: ASYNC251 - as a process that is stopped
            other.publish("s-1", b"end")
            heard += await stream.read(HANG_S)
            if b"end" in heard:
                break
    assert heard[-1] == b"end"


async def test_a_publisher_that_was_cut_off_goes_on_and_says_that_something_was_lost(
    store: PostgresStore, other: PostgresStore, database: str
) -> None:
    async with tuned(store, "s-1") as stream:
        other.publish("s-1", b"before")
        await listened(stream, b"before")
        async with connected(database) as connection:
            await connection.execute("select pg_terminate_backend($1, 5000)", other._notifier.backend)
        other.publish("s-1", b"into the void")
        heard = await stream.read(5)
        while b"after" not in heard:
            other.publish("s-1", b"after")
            heard += await stream.read(0.2)
        assert heard[0] == MissedMessages()
        assert b"into the void" not in heard


async def test_nothing_comes_through_a_channel_that_nobody_here_listens_to_any_more(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "NOTIFY_POLL_MS", 50)
    passed = list[str]()
    hear = store._listener._incoming.add_piece

    def count(piece: str) -> None:
        passed.append(piece)
        hear(piece)

    monkeypatch.setattr(store._listener._incoming, "add_piece", count)
    assert channel_of("s-1") != channel_of("s-2")
    async with tuned(store, "s-2") as stays:
        async with tuned(store, "s-1"):
            other.publish("s-1", b"one")
            other.publish("s-2", b"two")
            await listened(stays, b"two")
            assert len(passed) == 2
        await asyncio.sleep(0.2)
        other.publish("s-1", b"to nobody")
        other.publish("s-2", b"end")
        await listened(stays, b"end")
        assert len(passed) == 3


async def test_a_publisher_neither_waits_nor_grows_while_the_server_is_away(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "FLUSH_TIMEOUT_S", 0.1)
    async with PostgresStore(database) as lone:
        await begin(lone)

        async def refuse() -> Any:
            raise ConnectionRefusedError

        lone._notifier._server = lone._notifier._server._replace(connect=refuse)
        longest = 0.0
        for number in range(20_000):
            began = time.thread_time()
            lone.publish(f"s-{number % 50}", b"x" * 1_000)
            longest = max(longest, time.thread_time() - began)
        assert lone._notifier.live._bytes <= OUTGOING_BYTES
        assert longest < 0.1


async def test_the_event_loop_goes_on_while_much_is_published(store: PostgresStore, other: PostgresStore) -> None:
    gaps, stop = list[float](), asyncio.Event()

    async def beat() -> None:
        while not stop.is_set():
            began = time.monotonic()
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - began)

    async with tuned(store, "s-1") as stream:
        beating = asyncio.create_task(beat())
        for number in range(500):
            other.publish("s-1", b"%d" % number * 2_000)
            await asyncio.sleep(0.001)
        other.publish("s-1", b"end")
        heard = list[LiveItem]()
        while b"end" not in heard:
            heard += await stream.read(HANG_S)
        stop.set()
        await beating
    gaps.sort()
    print(f"heartbeats of 1 ms: p50 {gaps[len(gaps) // 2] * 1000:.1f} ms, longest {gaps[-1] * 1000:.1f} ms")
    assert gaps[len(gaps) // 10] < 0.02  # on a machine that has other things to do only some are as quick


# --- what others put into the channel ---------------------------------------------------------------


def frames(session_id: str, *sent: bytes) -> list[str]:
    async def make() -> list[str]:
        outbox = OutgoingFrames(lambda: None)
        for payload in sent:
            outbox.put(session_id, payload)
        return outbox.take()[1]

    return asyncio.run(make())


HOSTILE = [
    "",
    "nonsense",
    "a b c d e",
    "a 1 0 1 not-base64!",
    "a 1 0 1 AAAA",
    "a 1 0 1 gA==",
    "a 1 5 6 AAAA",
    "a 1 0 999999999999 AAAA",
    "a 1 0 99999 AAAA",
    "a 1 ² 1 AAAA",
    "a 1 -1 1 AAAA",
    "a 1 0 0 AAAA",
    " ".join("x" * 1_000),
]


@each_row("piece", HOSTILE)
def test_what_is_no_frame_of_ours_is_ignored(piece: str) -> None:
    async def check() -> None:
        streams = LiveStreams()
        incoming = IncomingFrames(streams, "us")
        with streams.add("s-1") as stream:
            incoming.add_piece(piece)
            for each in frames_of:
                incoming.add_piece(each)
            assert await stream.read(1) == [b"sound"]

    frames_of = frames("s-1", b"sound")
    asyncio.run(check())


def test_a_frame_without_its_beginning_or_with_a_hole_is_ignored() -> None:
    async def check(pieces: list[str]) -> None:
        streams = LiveStreams()
        incoming = IncomingFrames(streams, "us")
        with streams.add("s-1") as stream:
            for piece in [*pieces, *sound]:
                incoming.add_piece(piece)
            assert await stream.read(1) == [b"sound"]

    long, sound = frames("s-1", b"x" * 30_000), frames("s-1", b"sound")
    assert len(long) > 4
    for pieces in (long[1:], long[:-1], [*long[:2], *long[3:]], [long[0], long[0], *long[2:]]):
        asyncio.run(check(pieces))


def test_pieces_fit_into_a_notification_whatever_the_id() -> None:
    assert max(map(len, frames("s" * 128, b"x" * LIVE_BYTES, b"y" * LIVE_BYTES))) < 8_000


def test_one_statement_does_not_send_everything_at_once() -> None:
    async def check() -> None:
        called = asyncio.Event()
        outbox = OutgoingFrames(called.set)
        for number in range(20):
            outbox.put(f"s-{number % 3}", b"x" * LIVE_BYTES)
        sizes = list[int]()
        while outbox:
            sizes.append(sum(map(len, outbox.take()[1])))
        assert len(sizes) > 4
        assert max(sizes) < (postgres_live.FRAME_BYTES + LIVE_BYTES) * 1.4
        await soon(called.wait())

    asyncio.run(check())


# --- who listens -------------------------------------------------------------------------------------


async def unheard(store: PostgresStore, session_id: str) -> None:
    """Wait until a store knows that nobody listens to a session."""
    store.watch(None).__exit__()  # its standing connection is made when it is first needed
    await until(lambda: not store.may_be_heard(session_id))


async def test_who_begins_to_listen_in_another_process_is_known_at_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    assert store.may_be_heard("s-1"), "nobody has been asked"
    await unheard(store, "s-1")
    async with tuned(other, "s-1") as there:
        await until(lambda: store.may_be_heard("s-1"))
        store.publish("s-1", b"hello")
        assert await listened(there, b"hello") == [b"hello"]


async def test_whoever_connects_learns_who_listens_already(database: str, other: PostgresStore) -> None:
    async with tuned(other, "s-1"), PostgresStore(database) as late:
        await unheard(late, "s-2")
        assert late.may_be_heard("s-1")


async def test_a_listener_that_has_gone_is_forgotten_and_one_that_stays_is_not(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audience, "ANNOUNCE_S", 0.1)
    monkeypatch.setattr(audience, "KEEP_S", 8.0)  # longer than two looks, with which announcements come
    await unheard(store, "s-1")
    async with tuned(other, "s-2"):
        async with tuned(other, "s-1"):
            await until(lambda: store.may_be_heard("s-1"))
        await unheard(store, "s-1")
        assert store.may_be_heard("s-2")


async def test_without_a_connection_anyone_may_be_listening(store: PostgresStore, database: str) -> None:
    await unheard(store, "s-1")
    await end_connections(database)
    await until(lambda: store.may_be_heard("s-1"))
    await unheard(store, "s-1")


async def test_a_forged_notice_of_listeners_is_passed_over(store: PostgresStore, database: str) -> None:
    await unheard(store, "s-1")
    async with connected(database) as connection:
        for notice in ("", "?? x", "holdfast_live_zz " * 100, channel_of("s-1")):
            await connection.execute("select pg_notify($1, $2)", audience.CHANNEL, notice)
    await until(lambda: store.may_be_heard("s-1"))
    assert len(store._listener.audience._until) == 1
