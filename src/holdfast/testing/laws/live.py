"""Laws of live messages: heard in order by those who listen, kept nowhere, and never lost in silence.

How they reach other store objects is not part of them: a store need not have a way.
"""

from __future__ import annotations

import asyncio

from holdfast.core.errors import InvalidIdError, InvalidValueError
from holdfast.store.contract import Store
from holdfast.store.limits import LIVE_BYTES, LIVE_STREAM_BYTES, LIVE_STREAM_MESSAGES
from holdfast.store.watch import LiveItem, LiveStream, MissedMessages
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.sessions import begin, picture

SOON = 5.0
"""Seconds within which a message must be heard."""

QUIET = 0.1
"""Seconds without a message that count as silence."""


async def listened(stream: LiveStream, until: bytes) -> list[LiveItem]:
    """What is heard, up to a last message."""
    heard: list[LiveItem] = []
    while until not in heard:
        more = await stream.read(SOON)
        assert more, f"{until[:20]!r} was not heard after {len(heard)} messages"
        heard += more
    return heard


def payloads(heard: list[LiveItem]) -> list[bytes]:
    return [each for each in heard if not isinstance(each, MissedMessages)]


class LiveLaws(Laws):
    """Publishing and listening through one store object."""

    async def test_a_listener_hears_what_is_published_in_order(self, store: Store) -> None:
        sent = [b"%d" % number for number in range(500)]
        with store.listen("s-1") as stream:
            for payload in sent:
                store.publish("s-1", payload)
            assert payloads(await listened(stream, sent[-1])) == sent

    async def test_every_listener_of_a_session_hears_everything_and_others_nothing(self, store: Store) -> None:
        with store.listen("s-1") as one, store.listen("s-1") as two, store.listen("s-2") as other:
            store.publish("s-1", b"hello")
            assert payloads(await listened(one, b"hello")) == [b"hello"]
            assert payloads(await listened(two, b"hello")) == [b"hello"]
            store.publish("s-2", b"bye")
            assert payloads(await listened(other, b"bye")) == [b"bye"]

    async def test_a_session_may_be_heard_while_somebody_listens_to_it(self, store: Store) -> None:
        with store.listen("s-1"):
            assert store.may_be_heard("s-1")
            with store.listen("s-1"):
                pass
            assert store.may_be_heard("s-1")

    async def test_what_was_published_before_is_not_heard(self, store: Store) -> None:
        store.publish("s-1", b"early")
        with store.listen("s-1") as stream:
            store.publish("s-1", b"now")
            assert payloads(await listened(stream, b"now")) == [b"now"]

    async def test_a_listener_that_has_left_hears_nothing_more(self, store: Store) -> None:
        with store.listen("s-1") as stays:
            with store.listen("s-1") as left:
                store.publish("s-1", b"first")
                await listened(left, b"first")
            store.publish("s-1", b"second")
            await listened(stays, b"second")
            assert payloads(await left.read(QUIET)) == []

    async def test_waiting_in_silence_ends_empty_handed(self, store: Store) -> None:
        with store.listen("s-1") as stream:
            assert [] in [await stream.read(QUIET) for _ in range(5)]

    async def test_a_listener_that_waits_is_woken(self, store: Store) -> None:
        with store.listen("s-1") as stream:
            waiting = asyncio.create_task(listened(stream, b"now"))
            await asyncio.sleep(QUIET)
            store.publish("s-1", b"now")
            assert b"now" in await waiting

    async def test_any_bytes_can_be_published_also_none(self, store: Store) -> None:
        sent = [b"", bytes(range(256)), b"\0" * 100, "ä€😀".encode(), b"end"]
        with store.listen("s-1") as stream:
            for payload in sent:
                store.publish("s-1", payload)
            assert payloads(await listened(stream, b"end")) == sent

    async def test_the_largest_message_is_heard_and_a_larger_one_is_missed_in_its_place(self, store: Store) -> None:
        largest, larger = b"x" * LIVE_BYTES, b"x" * (LIVE_BYTES + 1)
        with store.listen("s-1") as stream:
            for payload in (b"before", largest, larger, b"after"):
                store.publish("s-1", payload)
            heard = await listened(stream, b"after")
        assert payloads(heard) == [b"before", largest, b"after"]
        assert MissedMessages() in heard[heard.index(largest) : heard.index(b"after")]

    async def test_a_listener_that_stands_still_gets_the_latest_and_a_mark_where_some_were_lost(
        self, store: Store
    ) -> None:
        sent = [b"%d" % number for number in range(3 * LIVE_STREAM_MESSAGES)]
        with store.listen("s-1") as slow:
            for payload in sent:
                store.publish("s-1", payload)
            heard = await slow.read(SOON)
        assert heard[0] == MissedMessages()
        assert len(heard) <= LIVE_STREAM_MESSAGES
        kept = payloads(heard)
        assert kept == sent[-len(kept) :]
        assert len(kept) > LIVE_STREAM_MESSAGES // 2

    async def test_a_listener_that_stands_still_does_not_keep_endless_bytes(self, store: Store) -> None:
        sent = [bytes([number]) * LIVE_BYTES for number in range(50)]
        with store.listen("s-1") as slow:
            for payload in sent:
                store.publish("s-1", payload)
            heard = await slow.read(SOON)
        assert heard[0] == MissedMessages()
        kept = payloads(heard)
        assert kept == sent[-len(kept) :]
        assert LIVE_STREAM_BYTES - LIVE_BYTES <= sum(map(len, kept)) <= LIVE_STREAM_BYTES

    async def test_a_slow_listener_takes_nothing_from_a_quick_one(self, store: Store) -> None:
        rounds = 3
        with store.listen("s-1"), store.listen("s-1") as quick:
            heard: list[LiveItem] = []
            for turn in range(rounds):
                for number in range(LIVE_STREAM_MESSAGES // 2):
                    store.publish("s-1", b"%d" % (turn * LIVE_STREAM_MESSAGES // 2 + number))
                heard += await quick.read(SOON)
            assert payloads(heard) == [b"%d" % number for number in range(rounds * LIVE_STREAM_MESSAGES // 2)]

    async def test_publishing_leaves_nothing_in_the_store(self, store: Store) -> None:
        task = await begin(store)
        before = await picture(store)
        with store.watch(task.id) as watch:
            while await watch.changed(QUIET):
                pass
            store.publish(task.id, b"hello")
            assert not await watch.changed(QUIET)
        assert await picture(store) == before

    async def test_a_session_can_be_spoken_of_that_does_not_exist(self, store: Store) -> None:
        with store.listen("s-none") as stream:
            store.publish("s-none", b"hello")
            await listened(stream, b"hello")

    async def test_what_is_no_id_or_no_bytes_is_refused(self, store: Store) -> None:
        with refused(InvalidIdError):
            store.publish("no id", b"hello")
        with refused(InvalidIdError):
            store.listen("")
        with refused(InvalidValueError):
            store.publish("s-1", "text")  # type: ignore[arg-type]
