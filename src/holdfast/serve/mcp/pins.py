"""Projects that hosts have pinned: the one that calls without a project of their own mean, for a whole connection."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from mcp.server.context import ServerRequestContext

MAX_PINS = 1_000
"""Connections whose pin is remembered: beyond that, the one that was pinned first is forgotten."""

_ONLY_ONE = ""
"""The connection of a server that has one host, over standard input and output."""


class ProjectPins:
    """The pinned projects of one server."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, Path | None] = OrderedDict()

    def pin(self, context: ServerRequestContext[Any, Any], root: Path | None) -> bool:
        """Pin a project (or none) for the connection of a call; False if its calls do not tell which is theirs."""
        connection = _connection(context)
        if connection is None:
            return False
        self._roots[connection] = root
        self._roots.move_to_end(connection)
        while len(self._roots) > MAX_PINS:
            self._roots.popitem(last=False)
        return True

    def of(self, context: ServerRequestContext[Any, Any]) -> Path | None:
        """What is pinned for the connection of a call."""
        connection = _connection(context) if self._roots else None
        return None if connection is None else self._roots.get(connection)


def _connection(context: ServerRequestContext[Any, Any]) -> str | None:
    """What tells the connection of a call from others; None over HTTP without sessions, where nothing does."""
    if context.request is None:
        return _ONLY_ONE
    headers = getattr(context.request, "headers", {})
    found: str | None = headers.get("mcp-session-id")
    return found
