"""Every limit of the core, with its unit and the reason for its size. Nothing here is computed."""

MAX_ID_CHARS = 200
"""Characters in any id or key: fits a file name, an index entry and a line on a terminal."""

MAX_VALUE_BYTES = 32 * 1024 * 1024
"""UTF-8 bytes of JSON in one value: far above any model's context, small enough to hold in memory twice."""

MAX_VALUE_DEPTH = 256
"""Nesting of one value: no person writes more, and every JSON library we meet can still read it."""

MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)
"""Integers that Lua, SQLite, PostgreSQL and msgspec all keep exactly."""

MAX_QUERIES_PER_PAUSE = 10_000
"""Queries asked together: bounds the size of one commit."""

MAX_WAIT_MS = 10 * 365 * 24 * 3600 * 1000
"""Milliseconds a timer or a query's timeout may lie ahead (ten years): keeps every due time a safe integer."""

DEFAULT_MAX_TOKENS = 1024
"""Tokens an `llm` query may be answered with, unless it says otherwise."""

RECENT_ANSWERS = 128
"""Answers whose positions a session keeps in memory: whoever sends an answer again usually does so soon. An older one
is searched for in the journal."""

MAX_MODELS = 100
"""Models of which a session counts apart what was spent on them. No program uses as many; the others are counted as
unknown."""

RECENT_LOGS = 20
"""Log lines that a session keeps in memory for its status; the journal keeps all of them."""

HISTORY_ENTRIES = 10
"""Model calls that the status of a session shows on request; the journal keeps all of them."""

PROMPT_PREVIEW_CHARS = 200
"""Characters of a prompt shown by the `preview` filter."""

FAILURE_PREVIEW_CHARS = 200
"""Characters of why a session failed, in its summary: two lines of a listing."""

ERROR_PREVIEW_CHARS = 80
"""Characters of a value quoted inside an error message."""
