"""Where things are found: below the API's prefix, and beside it."""

from __future__ import annotations

PREFIX = "/api/v1"

OUTSIDE = ("/healthz", "/readyz", "/metrics")
"""What is found outside of the API, too: whoever looks after servers knows where to look for it."""


def session_path(session_id: str) -> str:
    """Where a session is found. Ids need no escaping: see `core.ids.check_id`."""
    return f"{PREFIX}/sessions/{session_id}"
