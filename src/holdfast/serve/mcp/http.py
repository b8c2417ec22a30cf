"""The MCP server over streamable HTTP.

Every request needs the token, on loopback too: all users of a machine reach that. The gate checks Host and Origin, too.
"""

from __future__ import annotations

from collections.abc import Callable

import mcp_types as types
import msgspec
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Send

from holdfast.serve.gate import GateRules, RefusalError, RequestGate, send_refusal
from holdfast.serve.listener import HttpError, HttpSettings, serve
from holdfast.serve.mcp.limits import IDLE_S, MAX_MESSAGE_BYTES
from holdfast.serve.mcp.reconnect import ReconnectApp
from holdfast.serve.mcp.server import McpServer

PATH = "/mcp"


async def serve_http(server: McpServer, http: HttpSettings, ready: Callable[[str], None]) -> None:
    """Serve until a signal asks to end. `ready` is called with the URL once requests are accepted."""
    if http.token is None:
        raise HttpError("whoever can reach the server could use it: it needs a token")
    app = server.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_MESSAGE_BYTES,
        session_idle_timeout=IDLE_S,
        # Checked by the gate, for every address and with errors that say what to do.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    rules = GateRules(http, MAX_MESSAGE_BYTES, _refuse)
    gate = RequestGate(ReconnectApp(app, server.server, PATH), rules)
    await serve(gate, http, lambda url: ready(url + PATH), lifespan=True)


async def _refuse(send: Send, refusal: RefusalError) -> None:
    error = {"code": types.INVALID_REQUEST, "message": str(refusal)}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    await send_refusal(send, refusal, body, "application/json")
