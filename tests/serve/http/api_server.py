"""The HTTP API on a real server in this process, and a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn

from holdfast import Runtime
from holdfast.serve.http.app import ApiApp
from holdfast.serve.http.door import Door
from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.http.paths import PREFIX
from holdfast.testing.patience import HANG_S, until

TOKEN = "a-token-for-this-machine-only"


@dataclass
class ApiServer:
    """A server, and the client that tests talk to it with."""

    runtime: Runtime
    door: Door
    url: str
    client: httpx2.AsyncClient
    errors: list[str] = field(default_factory=list)
    fixture: Callable[[str], Any] | None = None
    """Finds a fixture of the test that only some of its cases need."""

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.client.get(path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return await self.client.post(path, json=body if body is not None else {}, **options)

    def as_holder_of(self, token: str | None) -> httpx2.AsyncClient:
        """A client with another token, or with none."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(base_url=self.url + PREFIX, headers=headers, timeout=HANG_S)

    def stream(self, path: str, *, after: str | None = None, body: Any = None) -> Any:
        """An event stream, to be opened with `async with` and read with `events_in`."""
        headers = {"accept": "text/event-stream"}
        if after is not None:
            headers["last-event-id"] = after
        if body is not None:
            return self.client.stream("POST", path, json=body, headers=headers)
        return self.client.stream("GET", path, headers=headers)


@contextlib.asynccontextmanager
async def api_server(runtime: Runtime, **options: Any) -> AsyncIterator[ApiServer]:
    """Serve a runtime that is open, until the context ends. Options are those of the door."""
    door = Door(runtime, local_token=TOKEN, **options)
    config = uvicorn.Config(ApiApp(door, ENDPOINTS), port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    headers = {"authorization": f"Bearer {TOKEN}"}
    try:
        async with httpx2.AsyncClient(base_url=url + PREFIX, headers=headers, timeout=HANG_S) as client:
            yield ApiServer(runtime, door, url, client)
    finally:
        door.close()
        server.should_exit = True
        await serving


@dataclass(frozen=True)
class Frame:
    """An event of a stream as a client gets it."""

    type: str
    data: Any
    id: str | None


async def events_in(response: httpx2.Response) -> AsyncIterator[Frame]:
    """The events of a stream, without comments."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield Frame(fields.get("event", ""), json.loads(fields["data"]), fields.get("id"))
        fields = {}
