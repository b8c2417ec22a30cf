"""What can go wrong with MCP servers, one class a kind. What a call comes to is a `ToolError`, as with any tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec

from holdfast.core.errors import HoldfastError


@dataclass(eq=False)
class McpMissingError(HoldfastError):
    """The package that speaks MCP is not installed."""

    server: str
    kind = "mcp_missing"

    def __str__(self) -> str:
        return f"MCP server '{self.server}' needs the extra 'mcp': pip install 'holdfast[mcp]'"


@dataclass(eq=False)
class McpDefinitionError(HoldfastError):
    """A server that cannot be used as it was described."""

    server: str
    why: str
    kind = "mcp_definition"

    def __str__(self) -> str:
        return f"MCP server '{self.server}' cannot be used: {self.why}"


@dataclass(eq=False)
class McpUnavailableError(HoldfastError):
    """A server that could not be reached, or that does not say what it has."""

    server: str
    why: str
    stderr: list[str] = field(default_factory=list)
    """The last lines that its process wrote to standard error. For people: a model is not told them."""
    kind = "mcp_unavailable"

    def __str__(self) -> str:
        said = "".join(f"\n  {line}" for line in self.stderr)
        return f"MCP server '{self.server}' cannot be used now: {self.why}" + (f"; it said:{said}" if said else "")


class NotRunError(Exception):
    """A request that did not reach the server, or that it did not take: it may be made again on a new connection."""


class LostError(Exception):
    """The connection ended before the answer came: nobody knows what came of the request."""


class RefusedError(Exception):
    """The server answered, and what it answered is no result."""


def check_installed(server: str) -> None:
    """Raise `McpMissingError` unless the package `mcp` is there. It is not loaded by that."""
    if find_spec("mcp") is None:
        raise McpMissingError(server)
