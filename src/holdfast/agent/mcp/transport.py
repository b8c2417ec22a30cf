"""What a connection to a server goes over: messages in and out, and what is known of why it ended."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

NOT_RUN = -39_404
"""Code of the errors that a wire answers requests with which the server did not take, and so has not run."""


class Transport(Protocol):
    """The way to a server, for one connection."""

    def streams(self) -> AbstractAsyncContextManager[TransportStreams]:
        """The two streams that the client of `mcp` reads from and writes to. Entered once."""
        ...

    async def why(self) -> str:
        """Why the connection ended, as far as that is known; empty if it is not."""
        ...

    @property
    def stderr(self) -> list[str]:
        """The last lines of what a child has said."""
        ...

    def kill(self) -> None:
        """End at once what would not end by itself."""
        ...
