"""The limits of the server's connections, with their units and reasons."""

MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of one message from a host: twice the largest value that a session keeps, which JSON in JSON may need."""

IDLE_S = 24 * 3600.0
"""Seconds after which a connection is forgotten in which nothing was asked: a night, so that people find theirs."""
