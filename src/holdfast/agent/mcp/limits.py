"""How much is taken from an MCP server, and how long it is waited for: each number with its unit and its reason.

A server is not trusted to be sensible. What is too much is left out or cut, and it is said what.
"""

from __future__ import annotations

import msgspec

from holdfast.agent.tools.output import KEPT_BYTES

# --- sizes ---------------------------------------------------------------------------------------------

MAX_TOOLS = 256
"""Tools of one server that are offered, the first by name: models choose badly among more, and pay for each of them."""

MAX_PAGES = 100
"""Pages of one listing that are read: a server whose cursors never end is no reason to wait for ever."""

LISTING_BYTES = 16 * 1024 * 1024
"""Bytes of schemas of one listing after which no further page is read: they are all in memory at once."""

SCHEMA_BYTES = 64 * 1024
"""UTF-8 bytes of the schema of one tool: it is sent with every call of the model, and real ones have a few hundred."""

SCHEMA_DEPTH = 32
"""Levels of lists and objects in a schema: services of models refuse deeper ones, and real ones have ten."""

DESCRIPTION_CHARS = 4_000
"""Characters of the description of one tool, of which the rest is cut: about a thousand tokens."""

RESULT_BYTES = KEPT_BYTES
"""UTF-8 bytes of a result that are taken. The model is shown less; this is what is kept beside it for people."""

MESSAGE_BYTES = 8 * 1024 * 1024
"""Bytes of one message of a server: room for a listing of 10,000 tools, or for an image. All of it is in memory."""

REMARK_CHARS = 500
"""Characters of what a server says of its progress."""

STDERR_BYTES = 8 * 1024
"""Bytes kept of what a child says on standard error, the last ones."""

STDERR_LINES = 10
"""Lines of it that an error shows: the end of a traceback."""

# --- times ---------------------------------------------------------------------------------------------

LEAVE_S = 0.5
"""Seconds that a child has to leave by itself after its input was closed."""

TERM_S = 2.0
"""Seconds that a child has to leave after SIGTERM; then it is killed."""

CLOSE_S = LEAVE_S + 2 * TERM_S + 1.0
"""Seconds after which the end of a connection is not waited for any longer: more than all its steps may take."""

SETTLE_S = 0.1
"""Seconds between the news that tools have changed and the look at them: a server says it once for each tool."""

REFRESH_EVERY_S = 1.0
"""Seconds between two looks, however often a server says that its tools have changed."""

LISTEN_S = 2.0
"""Seconds that a connection waits for a server to agree to tell of changes, before it is used without."""

RELISTEN_S = 60.0
"""Seconds between two attempts to hear of changes, at most: it begins with one, and doubles."""

BACKOFF_S = 0.5
"""Seconds before a second attempt to connect; it doubles with each failure."""

MAX_BACKOFF_S = 10.0
"""Seconds between two attempts to connect, at most: a call waits for it."""


class McpTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a server is waited for, in seconds."""

    connect_s: float = 30.0
    """For the first answer. Those that are downloaded when they are started take their time."""
    list_s: float = 30.0
    """For all pages of its tools."""
    call_s: float = 60.0
    """For the result of a call, counted anew whenever the server says how far it is."""
    call_max_s: float = 600.0
    """For the result of a call, whatever the server says meanwhile."""

    def __post_init__(self) -> None:
        if min(self.connect_s, self.list_s, self.call_s, self.call_max_s) <= 0:
            raise ValueError(f"timeouts must be more than 0 seconds, got {self}")
