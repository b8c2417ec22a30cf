"""Connections that outlive the server: a host that shook hands with an earlier process need not do it again.

The protocol's older revisions give each connection an id, and a server that was started again knows none of them.
Nothing of ours depends on the connection, so a call that comes with the id of an earlier process is served by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AsyncExitStack
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.serve.mcp.limits import MAX_MESSAGE_BYTES

REMEMBERED = 10_000
"""Connections that this process opened and remembers: one that it has ended stays ended."""

_ID = "mcp-session-id"


class ReconnectApp:
    """The server's app, and beside it one without connections for those that it does not know."""

    def __init__(self, app: ASGIApp, server: Server[Any], path: str) -> None:
        self._app = app
        self._path = path
        self._alone = StreamableHTTPSessionManager(
            app=server,
            stateless=True,
            max_request_body_size=MAX_MESSAGE_BYTES,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._opened: OrderedDict[str, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with AsyncExitStack() as running:
                await running.enter_async_context(self._alone.run())
                await self._app(scope, receive, send)
            return
        connection = Headers(scope=scope).get(_ID)
        is_earlier = connection is not None and connection not in self._opened
        if is_earlier and scope["method"] == "POST" and scope["path"] == self._path:
            kept = MutableHeaders(scope={**scope, "headers": [*scope["headers"]]})
            del kept[_ID]
            await self._alone.handle_request({**scope, "headers": kept.raw}, receive, send)
            return
        await self._app(scope, receive, self._remembering(send))

    def _remembering(self, send: Send) -> Send:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(_ID)
                if opened is not None:
                    self._opened[opened] = None
                    self._opened.move_to_end(opened)
                    if len(self._opened) > REMEMBERED:
                        self._opened.popitem(last=False)
            await send(message)

        return note
