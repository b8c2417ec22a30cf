"""`alc_session_new`: the project that all further calls of this connection mean."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from holdfast.alc.mcp.directories import directories_of
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about

Mode = Literal["default", "test"]


class SessionNewParams(Params):
    project_root: ProjectRoot = None
    mode: Annotated[str | None, about('"default", or "test", which is only noted.')] = None


async def alc_session_new(call: McpCall, params: SessionNewParams) -> Object:
    mode = params.mode or "default"
    if mode not in get_args(Mode):
        raise McpToolError(f'alc_session_new: unknown mode \'{mode}\' (allowed: "default" | "test")')
    where = directories_of(params.project_root)
    root: Path | None = await on_files(lambda: where.root)
    if not call.pins.pin(call.context, root):
        raise McpToolError(
            "alc_session_new: over HTTP without sessions, calls do not tell whose they are; send project_root with each"
        )
    return {
        "session_id": f"alc-sess-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}",
        "project_root": None if root is None else str(root),
        "mode": mode,
    }


TOOL: McpTool[Any] = McpTool(
    "alc_session_new",
    "Choose the project",
    "Pin a project for this connection: calls that name no project_root of their own mean this one. Called again, it"
    " pins another.",
    SessionNewParams,
    alc_session_new,
    idempotent=True,
)
