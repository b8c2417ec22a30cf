"""The client when the server is away, restarts, or breaks off: requests are sent again and have one effect."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Runtime
from holdfast.client.api_client import ApiClient
from holdfast.core.records import Entry
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.patience import HANG_S
from tests.serve.http.api_server import TOKEN, ApiServer, api_server
from tests.serve.http.programs import two_questions


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with Runtime(f"sqlite:///{tmp_path}/h.db") as runtime, api_server(runtime) as server:
        yield server


class BreakingProxy:
    """A server in front of another one, which breaks off connections as it is told."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self.break_after: list[int] = []
        """For each connection that is to break: after how many bytes of the reply."""
        self.connections = 0
        self.url = ""

    async def __aenter__(self) -> BreakingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = self.break_after.pop(0) if self.break_after else None
        inner_reader, inner_writer = await asyncio.open_connection(self._host, self._port)

        async def pass_on(data: bytes) -> None:
            inner_writer.write(data)

        async def give_back(data: bytes) -> None:
            nonlocal left
            if left is not None:
                data, left = data[:left], left - len(data[:left])
            writer.write(data)
            await writer.drain()
            if left == 0:
                raise ConnectionAbortedError

        try:
            await asyncio.gather(_copied(reader, pass_on), _copied(inner_reader, give_back))
        except ConnectionError:
            pass
        finally:
            inner_writer.close()
            writer.transport.abort()


async def _copied(reader: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await reader.read(65536):
        await write(data)
    raise ConnectionAbortedError


async def test_a_request_whose_reply_is_lost_has_one_effect(server: ApiServer) -> None:
    async with BreakingProxy(server.url) as proxy, holdfast.connect(proxy.url, TOKEN) as hf:
        proxy.break_after = [0, 10]
        event = await hf.start(two_questions.name, llm="host")
        assert event.queries[0].id == "q-0"
        assert proxy.connections == 3
        assert len((await hf.sessions()).rows) == 1


async def test_an_answer_whose_reply_is_lost_is_taken_once(server: ApiServer) -> None:
    async with BreakingProxy(server.url) as proxy, holdfast.connect(server.url, TOKEN) as direct:
        await direct.start(two_questions.name, llm="host", id="s-1")
        proxy.break_after = [0]
        async with holdfast.connect(proxy.url, TOKEN) as hf:
            event = await hf.feed("s-1", {"q-0": "bug"})
            assert (event.replayed, event.queries[0].id) == (True, "q-1")


async def test_a_stream_that_breaks_anywhere_goes_on_without_a_gap_or_a_repetition(server: ApiServer) -> None:
    async with holdfast.connect(server.url, TOKEN) as direct:
        await direct.start(two_questions.name, llm="host", id="s-1")
        await direct.feed("s-1", {"q-0": "bug"})
        await direct.feed("s-1", {"q-1": "yes"})
        whole = [seen.event async for seen in direct.observe("s-1", entries=True).resume_from(None)]
    for cut in (0, 150, 400, 700, 1_000, 1_300, 1_600):
        async with BreakingProxy(server.url) as proxy, holdfast.connect(proxy.url, TOKEN) as hf:
            proxy.break_after = [cut, cut]
            async with asyncio.timeout(HANG_S):
                seen = [each.event async for each in hf.observe("s-1", entries=True).subscribe_from(None)]
            assert seen == whole


async def test_a_server_that_is_not_there_is_an_error_with_its_address() -> None:
    client = ApiClient("http://127.0.0.1:1", None, tries=2)
    with pytest.raises(StoreUnavailableError, match=r"http://127\.0\.0\.1:1.*does not answer"):
        await client.get("/sessions")
    await client.close()


def test_the_client_without_await_has_the_same_methods(tmp_path: Path) -> None:
    from holdfast.client.sync import SyncHoldfastClient
    from holdfast.engine.loop_thread import LoopThread

    loop = LoopThread()
    loop.start()
    stop = asyncio.Event()
    ready: asyncio.Queue[str] = asyncio.Queue()

    async def serve() -> None:
        async with Runtime(f"sqlite:///{tmp_path}/h.db") as runtime, api_server(runtime) as server:
            await ready.put(server.url)
            await stop.wait()

    async def ended() -> None:
        stop.set()
        assert serving is not None
        await asyncio.wrap_future(serving)

    serving = loop.begin(serve())
    assert serving is not None
    try:
        with SyncHoldfastClient(loop.wait(ready.get()), TOKEN) as hf:
            event = hf.start(two_questions.name, llm="host", id="s-1")
            assert hf.feed("s-1", "bug").queries[0].id == "q-1"
            assert hf.status("s-1")["phase"] == "paused"
            assert [entry.position for entry in _first(hf.watch(event.session_id), 2)] == [1, 2]
            assert hf.cancel("s-1").status == "cancelled"
    finally:
        loop.stop(ended)


def _first(entries: Iterator[Entry], count: int) -> list[Entry]:
    return list(itertools.islice(entries, count))
