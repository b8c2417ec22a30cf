"""A server that many people keep busy without saying anything still serves those who do, within its memory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from holdfast.serve.connections import (
    BodyError,
    BodyReader,
    ConnectionGuard,
    ConnectionLimits,
    LogRate,
    server_options,
)
from holdfast.testing.patience import HANG_S, soon, until
from tests.serve.processes import HttpServer, Place

HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
"""The beginning of headers that never end."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    with Place(tmp_path).http() as server:
        yield server


@contextlib.contextmanager
def connections(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, each of which has sent the same."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=HANG_S))
            with contextlib.suppress(OSError):  # it had to make room already
                opened[-1].sendall(sent)
        yield opened
    finally:
        for each in opened:
            each.close()


def resident_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def test_1300_half_sent_headers_shut_nobody_out_and_fill_no_log(server: HttpServer) -> None:
    with connections(server.port, 1_300, HALF):
        async with server.host() as host:
            for number in range(5):
                assert (await soon(host.call("alc_run", code=f"return {number}")))["result"] == number
    server.process.terminate()
    _, errors = await asyncio.to_thread(server.process.communicate, timeout=HANG_S)
    assert len(errors) < 20_000


async def test_20_unfinished_bodies_stay_within_what_all_may_have(server: HttpServer) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in server.authorization.items())
    start = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}Content-Length: 60000000\r\n\r\n".encode()
    piece = b" " * (1 << 20)
    with connections(server.port, 20, start) as opened:
        for _ in range(50):
            for each in opened:
                each.settimeout(0.2)
                with contextlib.suppress(OSError):  # refused, or nobody reads it just now
                    each.sendall(piece)
        async with server.host() as host:
            assert (await soon(host.call("alc_run", code="return 1")))["result"] == 1
    assert resident_mb(server.process.pid) < 600


# --- each limit by itself ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits, most_bytes: int = 1 << 20) -> AsyncIterator[int]:
    """A server that says how long the body of a request was, or waits for `/wait`; its port."""
    bodies, over = BodyReader(limits, most_bytes), asyncio.Event()

    async def reply(send: Any, status: int, text: str) -> None:
        headers = [(b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def told(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await over.wait()
        message = await receive()
        await reply(send, 200, str(len(message["body"])))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await bodies.serve(told, scope, receive, send)
        except BodyError as refusal:
            await reply(send, refusal.status, str(refusal))

    config = uvicorn.Config(app, lifespan="off", ws="none", **server_options(ConnectionGuard(limits)))
    served = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(served._serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        served.should_exit = True
        await running
        listening.close()


async def exchange(port: int, sent: bytes) -> bytes:
    """What the server says to a client that says this and then waits, until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            return await soon(reader.read())
        return b""
    finally:
        writer.close()


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode() + body


async def test_headers_that_do_not_come_are_not_waited_for() -> None:
    async with serving(ConnectionLimits(headers_s=0.2)) as port:
        assert (await exchange(port, b"")).startswith(b"HTTP/1.1 408")
        assert (await exchange(port, HALF)).startswith(b"HTTP/1.1 408")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/", b"abc").replace(b"Connection: close\r\n", b""))
        assert (await soon(reader.readuntil(b"\r\n\r\n3"))).startswith(b"HTTP/1.1 200")
        writer.write(HALF)  # the second request of a connection
        assert (await soon(reader.read())).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(ConnectionLimits(body_s=0.2)) as port:
        assert (await exchange(port, post("/", b"abc", 10))).startswith(b"HTTP/1.1 408")
        assert (await exchange(port, post("/", b"abc"))).endswith(b"3")


async def test_a_body_that_is_too_large_is_refused_with_or_without_its_length() -> None:
    async with serving(ConnectionLimits(), most_bytes=100) as port:
        assert (await exchange(port, post("/", b"", 101))).startswith(b"HTTP/1.1 413")
        chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        chunk = b"40\r\n" + b"x" * 64 + b"\r\n"
        assert (await exchange(port, chunked + chunk + chunk)).startswith(b"HTTP/1.1 413")
        assert (await exchange(port, post("/", b"x" * 100))).endswith(b"100")


async def test_the_connection_that_has_been_silent_for_the_longest_makes_room() -> None:
    async with serving(ConnectionLimits(connections=4)) as port:
        waiting = asyncio.create_task(exchange(port, post("/wait", b"abc")))
        await asyncio.sleep(0)
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert (await exchange(port, post("/", b"abc"))).endswith(b"3")
        assert await soon(opened[0][0].read()) == b""  # closed: it had said nothing for the longest
        opened[2][1].write(post("/", b"abcd"))
        assert (await soon(opened[2][0].read())).endswith(b"4")
        for _, writer in opened:
            writer.close()
        assert not waiting.done()
        waiting.cancel()


async def test_the_body_that_has_stood_still_for_the_longest_makes_room() -> None:
    async with serving(ConnectionLimits(bytes=100_000)) as port:
        first = asyncio.create_task(exchange(port, post("/", b"x" * 60_000, 90_000)))
        second = asyncio.create_task(exchange(port, post("/", b"x" * 30_000, 90_000)))
        await asyncio.sleep(0.1)
        assert (await exchange(port, post("/", b"x" * 40_000))).endswith(b"40000")
        refused = await until(lambda: _first_done(first, second))
        assert refused.startswith(b"HTTP/1.1 503")
        for task in (first, second):
            task.cancel()


async def _first_done(*tasks: asyncio.Task[bytes]) -> bytes | None:
    return next((task.result() for task in tasks if task.done()), None)


def test_a_flood_of_log_lines_is_cut_short() -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.Logger("flood"), Kept()
    handler.addFilter(LogRate(burst=10, per_s=0.0))
    logger.addHandler(handler)
    for number in range(1_000):
        logger.warning("line %d", number)
    assert lines == [f"line {number}" for number in range(10)]
    limit = LogRate(burst=1, per_s=1e9)
    limit._skipped = 7
    record = logging.LogRecord("flood", logging.WARNING, "", 0, "after %s", ("all",), None)
    assert limit.filter(record)
    assert record.getMessage() == "after all (7 more lines were left out)"
