"""A receiver of webhooks: a real server that keeps what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.testing.patience import until


@dataclass
class Receiver:
    """Who is told."""

    url: str = ""
    status: int = 200
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.got]

    async def take(self, request: Request) -> Response:
        self.got.append((dict(request.headers), await request.body()))
        return Response(status_code=self.status)


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Receiver]:
    """A receiver at an address of this machine."""
    found = Receiver()
    app = Starlette(routes=[Route("/hook", found.take, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    found.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hook"
    yield found
    server.should_exit = True
    await serving
