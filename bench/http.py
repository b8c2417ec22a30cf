"""The benchmarks of the HTTP API: what it adds to a feed, what idle streams weigh, how soon a watcher sees a commit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

import holdfast
from bench import Figure, Plan, Round, Target
from bench.engine import _resident
from holdfast.agent.runtime import Runtime
from holdfast.serve.http.site import web_app
from holdfast.serve.http.tokens import SCOPES, Tokens
from holdfast.testing.patience import until

FEEDS = 120
"""Feeds of one round: fewer than a token may send at once."""

STREAMS = 1_000
STREAMS_PER_TOKEN = 20
TOKEN = "the-token-of-the-benchmark"


@holdfast.strategy(name="asker")
async def asker(ctx: holdfast.Context) -> None:
    """Asks again and again."""
    while True:
        await ctx.llm("Why?")


def serve_alone(url: str) -> None:
    """Serve a store until standard input ends, with its port on the first line of standard output."""

    async def main() -> None:
        async with Runtime(url) as runtime:
            tokens = Tokens(runtime.mount.store, runtime.mount.holdfast.now, time.monotonic)
            made = [
                (await tokens.create(f"n-{number}", SCOPES))[0] for number in range(STREAMS // STREAMS_PER_TOKEN + 1)
            ]
            config = uvicorn.Config(
                web_app(runtime, local_token=TOKEN), port=0, log_config=None, lifespan="off", ws="none"
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            await until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            print(json.dumps({"port": port, "tokens": made}), flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            server.should_exit = True
            server.force_exit = True
            await serving

    asyncio.run(main())


@contextlib.asynccontextmanager
async def _served(url: str) -> AsyncIterator[tuple[int, list[str], int]]:
    """A server in a process of its own: its port, its tokens, and its process id."""
    program = f"from bench import http; http.serve_alone({url!r})"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        ready = json.loads(await child.stdout.readline())
        yield ready["port"], ready["tokens"], child.pid
    finally:
        child.stdin.close()
        await child.wait()


class _Connection:
    """A connection that is kept, with as little around it as can be: the server is measured, and not a client."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self._port, self._token = port, token

    async def __aenter__(self) -> _Connection:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def send(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> None:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._token}\r\n"
            f"accept: {accept}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)

    async def head(self) -> tuple[int, int]:
        """The status of a reply, and the length of its body."""
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status = int(raw.split(" ", 2)[1])
        lengths = [line.partition(":")[2] for line in raw.splitlines() if line.lower().startswith("content-length")]
        return status, int(lengths[0]) if lengths else 0

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        await self.send(method, path, body)
        status, length = await self.head()
        reply = json.loads(await self.reader.readexactly(length)) if length else None
        assert status < 300, reply
        return reply


async def http_feed(plan: Plan) -> list[Figure]:
    """How much longer a feed over HTTP takes than one in the process itself, both on SQLite."""
    rounds: list[Round] = []
    for number in range(plan.repeat):
        url = f"sqlite:///{plan.directory}/feed-{number}.db"
        async with _served(url) as (port, _, _), _Connection(port) as connection:
            await connection.ask("POST", "/sessions", {**_START, "wait_s": 30})
            answer = {"response": "So.", "wait_s": 30}
            remote = [
                await _timed(connection.ask("POST", f"/sessions/s-1/queries/q-{n}/answer", answer))
                for n in range(FEEDS)
            ]
        async with holdfast.open(f"sqlite:///{plan.directory}/here-{number}.db") as hf:
            await hf.start(asker, id="s-1", llm="host")
            here = [await _timed(hf.feed("s-1", {f"q-{n}": "So."})) for n in range(FEEDS)]
        added = (statistics.median(remote) - statistics.median(here)) * 1000
        plan.say(f"http-feed: {statistics.median(remote) * 1000:.2f} ms, here {statistics.median(here) * 1000:.2f} ms")
        rounds.append(Round(added))
    return [Figure("http-feed added", "ms", rounds, targets=[Target("value", "<=", 1.5)])]


async def http_streams(plan: Plan) -> list[Figure]:
    """How much more memory a server has with a thousand idle streams."""
    rounds: list[Round] = []
    for number in range(plan.repeat):
        async with _served(f"sqlite:///{plan.directory}/streams-{number}.db") as (port, tokens, pid):
            async with _Connection(port) as connection:
                await connection.ask("POST", "/sessions", _START)
            before = _resident(pid)
            async with contextlib.AsyncExitStack() as stack:
                for each in range(STREAMS):
                    opened = await stack.enter_async_context(_Connection(port, tokens[each // STREAMS_PER_TOKEN]))
                    await opened.send("GET", "/sessions/s-1/events", accept="text/event-stream")
                    status, _ = await opened.head()
                    assert status == 200
                await asyncio.sleep(1.0)
                rounds.append(Round((_resident(pid) - before) / 1e6))
        plan.say(f"http-streams: {rounds[-1].value:.1f} MB")
    return [Figure(f"http-streams {STREAMS} idle", "MB", rounds, targets=[Target("value", "<=", 40)])]


async def http_watch(plan: Plan) -> list[Figure]:
    """From a commit of one process to the event that a client of another process's server gets."""
    rounds: list[Round] = []
    for number in range(plan.repeat):
        url = f"sqlite:///{plan.directory}/watch-{number}.db"
        committed: dict[int, float] = {}

        def note(session_id: str, entries: Any, committed: dict[int, float] = committed) -> None:
            committed.update((entry.position, time.perf_counter()) for entry in entries)

        async with holdfast.open(url) as hf:
            hf.on_commit(note)
            await hf.start(asker, id="s-1", llm="host")
            async with _served(url) as (port, _, _), _Connection(port) as connection:
                await connection.send("GET", "/sessions/s-1/events?view=entries", accept="text/event-stream")
                await connection.head()
                seen: dict[int, float] = {}

                async def watch(seen: dict[int, float] = seen, connection: _Connection = connection) -> None:
                    while True:
                        line = await connection.reader.readline()
                        if line.startswith(b"data: "):
                            data = json.loads(line[6:])
                            if "position" in data:
                                seen[data["position"]] = time.perf_counter()

                watching = asyncio.create_task(watch())
                await asyncio.sleep(0.5)
                first = max(committed)
                for n in range(FEEDS):
                    await hf.feed("s-1", {f"q-{n}": "So."})
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.5)
                watching.cancel()
        late = [(seen[at] - committed[at]) * 1000 for at in committed if at > first and at in seen]
        assert len(late) > FEEDS
        rounds.append(Round(statistics.median(late)))
        plan.say(
            f"http-watch: median {statistics.median(late):.1f} ms, 95 % {statistics.quantiles(late, n=20)[-1]:.1f}"
        )
    return [Figure("http-watch p50", "ms", rounds, targets=[Target("value", "<=", 20)])]


_START = {"program": "asker", "id": "s-1", "llm": "host"}


async def _timed(work: Any) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


BENCHMARKS = {"http-feed": http_feed, "http-streams": http_streams, "http-watch": http_watch}
