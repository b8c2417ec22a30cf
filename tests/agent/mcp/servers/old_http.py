"""A server over HTTP as they were in 2025, with sessions that it forgets: `python old_http.py PORT`.

At `/locked` it knows those who say `authorization: Bearer TOKEN-2`. `GET /forget` makes it forget all sessions.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

sessions: set[str] = set()
calls = 0


def reply(message: dict[str, Any], result: dict[str, Any], **headers: str) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


async def mcp(request: Request) -> Response:
    global calls  # noqa: PLW0603
    if request.method != "POST":
        return PlainTextResponse("no", 405)
    if "locked" in request.url.path and request.headers.get("authorization") != "Bearer TOKEN-2":
        return PlainTextResponse("who are you?", 401)
    message = await request.json()
    method, session = message["method"], request.headers.get("mcp-session-id")
    if method == "initialize":
        session = f"session-{len(sessions) + calls + 1}"
        sessions.add(session)
        info = {"name": "old", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        return reply(message, result, **{"mcp-session-id": session})
    if session not in sessions:
        return PlainTextResponse("there is no such session", 404 if session is not None else 400)
    if "id" not in message:
        return Response(status_code=202)
    if method == "tools/list":
        return reply(message, {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]})
    calls += 1
    size = message["params"].get("arguments", {}).get("bytes", 0)
    return reply(message, {"content": [{"type": "text", "text": f"call {calls}" + "x" * size}]})


async def forget(_: Request) -> Response:
    sessions.clear()
    return PlainTextResponse("forgotten")


METHODS = ["GET", "POST", "DELETE"]
app = Starlette(
    routes=[Route("/mcp", mcp, methods=METHODS), Route("/locked", mcp, methods=METHODS), Route("/forget", forget)]
)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
