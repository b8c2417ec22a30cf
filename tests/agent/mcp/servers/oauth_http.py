"""A server over HTTP that wants a login, with its own authorization server: `python oauth_http.py PORT`.

Whoever comes to `/authorize` is logged in at once. Tokens end after their third use, and can be refreshed once.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

PORT = int(sys.argv[1])
HERE = f"http://127.0.0.1:{PORT}"
uses: dict[str, int] = {}


async def resource(_: Request) -> Response:
    return JSONResponse({"resource": f"{HERE}/mcp", "authorization_servers": [HERE]})


async def metadata(_: Request) -> Response:
    endpoints = {f"{name}_endpoint": f"{HERE}/{path}" for name, path in
                 (("authorization", "authorize"), ("token", "token"), ("registration", "register"))}  # fmt: skip
    return JSONResponse({"issuer": HERE, **endpoints, "response_types_supported": ["code"],
                         "code_challenge_methods_supported": ["S256"]})  # fmt: skip


async def register(request: Request) -> Response:
    return JSONResponse({**await request.json(), "client_id": "client-1"}, 201)


async def authorize(request: Request) -> Response:
    given = request.query_params
    return RedirectResponse(f"{given['redirect_uri']}?{urlencode({'code': 'code-1', 'state': given['state']})}", 302)


async def token(request: Request) -> Response:
    form = await request.form()
    if form["grant_type"] == "refresh_token" and form["refresh_token"] != "refresh-1":
        return JSONResponse({"error": "invalid_grant"}, 400)
    fresh = f"token-{len(uses) + 1}"
    uses[fresh] = 0
    refresh = {"refresh_token": "refresh-1"} if form["grant_type"] == "authorization_code" else {}
    return JSONResponse({"access_token": fresh, "token_type": "Bearer", "expires_in": 3600, **refresh})


async def mcp(request: Request) -> Response:
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if given not in uses:
        where = f'Bearer resource_metadata="{HERE}/.well-known/oauth-protected-resource"'
        return PlainTextResponse("who are you?", 401, {"www-authenticate": where})
    uses[given] += 1
    message: dict[str, Any] = await request.json()
    info = {"name": "locked", "version": "1"}
    results: dict[str, dict[str, Any]] = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info},
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": given}]},
    }
    if "id" not in message:
        return Response(status_code=202)
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})})


app = Starlette(
    routes=[
        Route("/.well-known/oauth-protected-resource", resource),
        Route("/.well-known/oauth-protected-resource/mcp", resource),
        Route("/.well-known/oauth-authorization-server", metadata),
        Route("/register", register, methods=["POST"]),
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/mcp", mcp, methods=["POST"]),
    ]
)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error")
