"""Many readers, slow readers and dead readers: none of them holds anybody up."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.testing.patience import soon, until
from tests.serve.http.api_server import TOKEN, ApiServer, events_in
from tests.serve.http.programs import two_questions

STREAMS = 500


async def _open(api: ApiServer, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(api.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = f"GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}accept: text/event-stream\r\n\r\n".encode())
    return reader, writer


async def test_five_hundred_streams_all_see_what_happens(api: ApiServer) -> None:
    api.door.rates.streams = STREAMS + 1
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(STREAMS):
            reader, writer = await _open(api, "/sessions/s-1/events")
            stack.callback(writer.close)
            readers.append(reader)

        async def sees_answer(reader: asyncio.StreamReader) -> None:
            await reader.readuntil(b'"type":"answered"')

        waiting = [asyncio.create_task(sees_answer(reader)) for reader in readers]
        await until(lambda: api.door.metrics.streams == STREAMS)
        await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
        await soon(asyncio.gather(*waiting))
    await until(lambda: api.door.metrics.streams == 0)


async def test_a_reader_that_does_not_read_holds_up_nobody_and_one_that_dies_is_noticed(api: ApiServer) -> None:
    await api.post("/agents/agent/sessions", {"id": "chat"})
    _, slow = await _open(api, "/sessions/chat/events")
    _, dead = await _open(api, "/sessions/chat/events")
    await until(lambda: api.door.metrics.streams == 2)
    dead.transport.abort()
    await until(lambda: api.door.metrics.streams == 1)
    big = "long " * 20_000
    for number in range(8):  # nearly a megabyte that nobody takes
        reply = await soon(api.post("/sessions/chat/turns", {"input": f"{number} {big}", "wait_s": 30}))
        assert reply.json()["status"] == "done"
    async with api.stream("/sessions/chat/events") as response:
        async for frame in events_in(response):
            assert frame.data["type"] != "error"
            break
    slow.transport.abort()
    await until(lambda: api.door.metrics.streams == 0)
