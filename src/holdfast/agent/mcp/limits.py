"""Limits on what is accepted from an MCP server, and how long to wait for it, each with its unit and reason.

A server is not trusted to be sensible. What exceeds a limit is left out or cut, and a warning says so.
"""

from __future__ import annotations

import msgspec

from holdfast.agent.tools.output import KEPT_BYTES

# --- sizes ---------------------------------------------------------------------------------------------

MAX_TOOLS = 256
"""Tools of one server that are offered, the first by name: models choose badly among more, and pay for each of them."""

MAX_PAGES = 100
"""Pages of one listing that are read: the cursors of a broken server may never end."""

LISTING_BYTES = 16 * 1024 * 1024
"""Bytes of schemas in one listing after which no further page is read: they are all in memory at once."""

SCHEMA_BYTES = 64 * 1024
"""UTF-8 bytes of the schema of one tool: it is sent with every model call, and real ones have a few hundred."""

SCHEMA_DEPTH = 32
"""Levels of lists and objects in a schema: model services refuse deeper ones, and real ones have ten."""

DESCRIPTION_CHARS = 4_000
"""Characters of the description of one tool; the rest is cut. About a thousand tokens."""

RESULT_BYTES = KEPT_BYTES
"""UTF-8 bytes of a result that are kept for people. The model sees less."""

MESSAGE_BYTES = 8 * 1024 * 1024
"""Bytes of one message of a server: room for a listing of 10,000 tools, or for an image. All of it is in memory."""

LOGIN_S = 600.0
"""Seconds that a person has to log in."""

SSE_READ_S = 3600.0
"""Seconds without any event after which a stream of a server that has only SSE counts as lost."""

REMARK_CHARS = 500
"""Characters of a progress message."""

ERROR_CHARS = 2_000
"""Characters of an error of a server: room for the end of a traceback, and not for whatever it quotes."""

STDERR_BYTES = 8 * 1024
"""Bytes kept of a child's standard error, the last ones."""

STDERR_LINES = 10
"""Lines of standard error that an error shows: the end of a traceback."""

# --- times ---------------------------------------------------------------------------------------------

LEAVE_S = 0.5
"""Seconds that a child has to exit by itself after its input was closed."""

TERM_S = 2.0
"""Seconds that a child has to exit after SIGTERM; then it is killed."""

CLOSE_S = LEAVE_S + 2 * TERM_S + 1.0
"""Seconds to wait for a connection to end: more than all steps of that take together."""

SETTLE_S = 0.1
"""Seconds between the notice that tools have changed and the new listing: a server may send one for each tool."""

REFRESH_EVERY_S = 1.0
"""Seconds between two listings, however often a server says that its tools have changed."""

LISTEN_S = 2.0
"""Seconds to wait for a server to accept a subscription to changes, before the connection is used without."""

RELISTEN_S = 60.0
"""The longest wait between two attempts to subscribe, in seconds; it starts at one, and doubles."""

BACKOFF_S = 0.5
"""Seconds before the second attempt to connect; doubles with each failure."""

MAX_BACKOFF_S = 10.0
"""The longest wait between two attempts to connect, in seconds: a call waits for it."""


class McpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a server, in seconds."""

    connect_s: float = 30.0
    """For the first answer. Servers that are downloaded when they start take long."""
    list_s: float = 30.0
    """For all pages of its tools."""
    call_s: float = 60.0
    """For the result of a call; starts again with each progress message."""
    call_max_s: float = 600.0
    """For the result of a call, whatever its progress."""

    def __post_init__(self) -> None:
        if min(self.connect_s, self.list_s, self.call_s, self.call_max_s) <= 0:
            raise ValueError(f"timeouts must be more than 0 seconds, got {self}")
