"""What a server sends to the client, changed: events and values, or an error that says what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx2
import hypothesis.strategies as st
import pytest

from holdfast.client.api_client import ApiClient
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_document, encoded

EVENTS = [
    {"type": "entry", "position": 1, "entry": {"at": 1, "record": {"type": "started"}}},
    {"type": "bye"},
    {"type": "error", "problem": {"type": "urn:holdfast:error:session_not_found", "status": 404, "detail": "no"}},
]
PROBLEMS = [
    {"type": "urn:holdfast:error:session_not_found", "status": 404, "detail": "there is none", "session_id": "s"},
    {"type": "urn:holdfast:error:transition", "title": "t", "detail": "d", "state": "completed"},
    {"detail": "x"},
]

STATUSES = [200, 200, 201, 204, 301, 400, 404, 409, 429, 500, 503, 999]

KNOWN = [(200, b"<html>"), (200, b"\xff"), (404, b"\xfe\xff\x00"), (500, b'{"detail": ""}')]
"""Replies that once broke the client."""

WORDS = [b"data:", b"\n\n", b"id: \xff\n", b"event: x\n", b"retry: 9e9\n", b"[]", b"null", b'{"type":"error"}']


@st.composite
def streams(draw: Draw) -> bytes:
    """A stream of events that was changed."""
    frames = [b"id: c%d\ndata: %s\n\n" % (number, draw(changed_document(EVENTS))) for number in range(3)]
    whole = b"".join(frame if draw(st.booleans()) else _plain(number) for number, frame in enumerate(frames))
    return draw(changed_bytes([whole], words=WORDS)) if draw(st.booleans()) else whole


def _plain(number: int) -> bytes:
    return b"id: c%d\ndata: %s\n\n" % (number, encoded(EVENTS[0]))


@pytest.fixture(scope="module")
def client() -> ApiClient:
    """A client that asks once. It is made once, since reading the certificates takes long."""
    return ApiClient("http://server", None, tries=1)


async def _told(client: ApiClient, reply: httpx2.Response, ask: Callable[[ApiClient], Awaitable[None]]) -> None:
    client._client = httpx2.AsyncClient(base_url=client.url, transport=httpx2.MockTransport(lambda _: reply))
    try:
        await ask(client)
    except Exception as error:
        assert_is_declared(error)
    finally:
        await client.close()


def test_changed_streams_give_events_or_say_what_is_wrong(fuzzer: Fuzzer, client: ApiClient) -> None:
    async def ask(client: ApiClient) -> None:
        async for cursor, event in client.stream("GET", "/sessions/s/events"):
            assert cursor is None or isinstance(cursor, str)
            assert isinstance(event, dict)

    def check(content: bytes) -> None:
        asyncio.run(_told(client, httpx2.Response(200, content=content), ask))

    fuzzer.run(check, streams(), examples=30, known=[b"data: null\n\n", b"data: {\n\n"])


def test_changed_replies_give_a_value_or_say_what_is_wrong(fuzzer: Fuzzer, client: ApiClient) -> None:
    async def ask(client: ApiClient) -> None:
        await client.get("/sessions/s")

    def check(sent: tuple[int, bytes]) -> None:
        asyncio.run(_told(client, httpx2.Response(sent[0], content=sent[1]), ask))

    replies = st.tuples(
        st.sampled_from([200, 200, 201, 204, 301, 400, 404, 409, 429, 500, 503, 999]), changed_document(PROBLEMS)
    )
    fuzzer.run(check, replies, examples=40)
