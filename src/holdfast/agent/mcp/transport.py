"""`Transport`: carries the messages of one connection to a server, and knows why it ended."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

NOT_RUN = -39_404
"""Error code of a transport for requests that the server has not accepted, and so has not run."""


class Transport(Protocol):
    """Carries one connection to a server."""

    def streams(self) -> AbstractAsyncContextManager[TransportStreams]:
        """The two streams that the client of `mcp` reads and writes. Entered once."""
        ...

    @property
    def is_refused_as_http(self) -> bool:
        """Whether a server at a URL takes no requests there: it may have the transport before streamable HTTP."""
        ...

    async def why(self) -> str:
        """Why the connection ended, or empty if that is unknown."""
        ...

    @property
    def stderr(self) -> list[str]:
        """The last lines that a child process wrote to standard error."""
        ...

    def kill(self) -> None:
        """End at once whatever has not ended by itself."""
        ...
