"""The limits of the server's connections, with their units and reasons."""

MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of one message from a host: twice the largest value that a session keeps, which JSON in JSON may need."""

GRACE_S = 3.0
"""Seconds that calls under way may still take when the server is asked to end; the sessions are kept anyway."""

IDLE_S = 24 * 3600.0
"""Seconds after which a connection is forgotten in which nothing was asked: a night, so that people find theirs."""

MIN_TOKEN_CHARS = 16
"""Characters of a token: no shorter one withstands guessing."""
