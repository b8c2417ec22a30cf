"""Errors of MCP servers, one class for each kind. A failed call is a `ToolError`, as with any tool."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from holdfast.core.errors import HoldfastError


class McpMissingError(HoldfastError):
    """The package that speaks MCP is not installed."""

    server: str
    kind = "mcp_missing"

    def __str__(self) -> str:
        return f"MCP server '{self.server}' needs the extra 'mcp': pip install 'holdfast[mcp]'"


class McpDefinitionError(HoldfastError):
    """The definition of a server is invalid."""

    server: str
    why: str
    kind = "mcp_definition"

    def __str__(self) -> str:
        return f"MCP server '{self.server}' cannot be used: {self.why}"


class McpUnavailableError(HoldfastError):
    """A server cannot be reached, or does not list its tools."""

    server: str
    why: str
    stderr: Sequence[str] = ()
    """The last lines that its process wrote to standard error. For people only; models do not see them."""
    kind = "mcp_unavailable"

    def __str__(self) -> str:
        stderr = "".join(f"\n  {line}" for line in self.stderr)
        return f"MCP server '{self.server}' cannot be used now: {self.why}" + (f"; it wrote:{stderr}" if stderr else "")


class NotRunError(Exception):
    """A request did not reach the server, or was not accepted: it may be repeated on a new connection."""


class LostError(Exception):
    """The connection ended before the answer came: the outcome of the request is unknown."""


class RefusedError(Exception):
    """The server answered with something that is not a result."""


def check_installed(server: str) -> None:
    """Raise `McpMissingError` unless the package `mcp` is installed. Does not import it."""
    if find_spec("mcp") is None:
        raise McpMissingError(server)
