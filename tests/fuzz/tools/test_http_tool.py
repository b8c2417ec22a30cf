"""What a web service sends to an HTTP tool, changed: a result that can be kept, or a failure that says why."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from holdfast.agent.tools import http_tool
from holdfast.agent.tools.http import RESPONSE_BYTES
from holdfast.core.values import check_value
from holdfast.testing.patience import HANG_S
from holdfast.zstd import compress, zstd
from tests.agent.tools.helpers import Model
from tests.fuzz.fuzzer import MESSAGE_CHARS, Fuzzer
from tests.fuzz.generation import Draw, changed_bytes, changed_document

BODIES = [{"paid": 3, "items": [{"name": "é", "price": 1.5}, None]}, [1, "two", {"deep": {"er": []}}], "text"]

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": compress,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body)),
    "br": lambda body: body,
    "identity": lambda body: body,
}

MEDIA = ["application/json", "application/problem+json; charset=x", "text/plain; charset=utf-16", "image/png", ""]

RETRY_AFTER = ["1", "-1", "²", "nan", "9" * 400, "Wed, 99 Foo", "Thu, 01 Jan 0000 00:00:00 GMT", "é"]

WORDS = [
    b"\r\n\r\n",
    b"Content-Length: 9999\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/9.9",
]


def response(body: bytes, status: int = 200, **headers: str) -> bytes:
    """A response as it goes over the wire."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    head = "\r\n".join([f"HTTP/1.1 {status} Reason", *lines, f"Content-Length: {len(body)}", "Connection: close"])
    return head.encode("latin-1", "replace") + b"\r\n\r\n" + body


@st.composite
def responses(draw: Draw) -> bytes:
    """A response with something changed in its body, its packing, its headers or its framing."""
    body = draw(changed_document(BODIES))
    packing = draw(st.sampled_from(["", "", "", *PACKINGS]))
    if packing:
        body = PACKINGS[packing](body)
        body = draw(changed_bytes([body], most=1)) if draw(st.booleans()) else body
    status = draw(st.sampled_from([200, 200, 200, 204, 302, 400, 404, 500]))
    headers = {"Content_Type": draw(st.sampled_from(MEDIA)), "Content_Encoding": packing}
    headers["Retry_After"] = draw(st.sampled_from(RETRY_AFTER)) if status >= 400 else ""
    whole = response(body, status, **headers)
    return draw(changed_bytes([whole], most=2, words=WORDS)) if draw(st.integers(0, 3)) == 0 else whole


def bomb(packer: Any) -> bytes:
    """Half a gigabyte of zeros, packed."""
    zeros = bytes(1 << 20)
    return b"".join([*(packer.compress(zeros) for _ in range(512)), packer.flush()])


def known_responses() -> list[bytes]:
    """Responses that once took all memory, or raised something else than a failure of the tool."""
    zipped = bomb(zlib.compressobj(wbits=31))
    return [
        response(bomb(zstd().ZstdCompressor()), Content_Encoding="zstd"),
        response(zipped, Content_Encoding="gzip"),
        response(gzip.compress(zipped), Content_Encoding="gzip, gzip"),
        response(b"not packed", Content_Encoding="gzip"),
        response(b"busy", 400, Retry_After="²"),
    ]


class Service:
    """Sends one response to each request, whatever it is."""

    async def open(self) -> None:
        self.body = b""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.tool = http_tool("pay", f"http://127.0.0.1:{port}/", description="Pay.", retry=None, timeout_s=HANG_S)
        self._model = Model()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.body)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def check(self, body: bytes) -> None:
        self.body = body
        done = await self._model.call(self.tool, amount=3)
        check_value(done.content, "content")
        if done.is_error:
            assert isinstance(done.content, dict)
            says_why = done.content["code"] == "invalid_result" or "POST http://127.0.0.1" in done.content["error"]
            assert says_why, done.content
            assert len(done.content["error"]) <= MESSAGE_CHARS
        else:
            assert len(str(done.content)) <= 2 * RESPONSE_BYTES


def test_a_changed_response_is_a_result_or_a_failure_that_says_why(fuzzer: Fuzzer) -> None:
    with asyncio.Runner() as runner:
        service = Service()
        runner.run(service.open())
        try:
            fuzzer.run(lambda body: runner.run(service.check(body)), responses(), examples=60, known=known_responses())
        finally:
            runner.run(service.close())
