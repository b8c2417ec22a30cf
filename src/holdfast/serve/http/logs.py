"""Structured logs: a line of JSON for each, with the ids of the request and the session that it is about."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
_session_id: ContextVar[str | None] = ContextVar("session_id", default=None)


@contextlib.contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Whatever is logged inside belongs to a request."""
    request, session = _request_id.set(request_id), _session_id.set(None)
    try:
        yield
    finally:
        _request_id.reset(request)
        _session_id.reset(session)


def name_session(session_id: str) -> None:
    """Whatever is logged from now on, in this request, is about a session."""
    _session_id.set(session_id)


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        about = {"request_id": _request_id.get(), "session_id": _session_id.get()}
        line |= {name: value for name, value in about.items() if value is not None}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
