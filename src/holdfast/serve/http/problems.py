"""ProblemDocument documents (RFC 9457): the HTTP status of every kind of error, and how an error is told."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import ExitCode, HoldfastError

MEDIA_TYPE = "application/problem+json"

TYPE_BASE = "urn:holdfast:error:"
"""What the type of a problem begins with; its kind follows. A name, and no address: nothing is fetched for it."""

_BY_EXIT_CODE = {
    ExitCode.BAD_INPUT: 400,
    ExitCode.NOT_FOUND: 404,
    ExitCode.CONFLICT: 409,
    ExitCode.UNAVAILABLE: 503,
    ExitCode.ENDED_BADLY: 409,
}
"""The status of an error follows from the exit code that the same error has on the command line,"""

_BY_KIND = {
    "session_deleted": 410,
    "invalid_cursor": 410,
    "budget_exceeded": 402,
    "invalid_source": 422,
    "inbox_full": 429,
    "corrupt_session": 500,
    "schema_version": 500,
    "corrupt_state": 500,
    "invalid_journal": 500,
    "result_timeout": 504,
    "too_many_entries": 413,
    # What refuses an act because of what the session is or does at present:
    "turn_conflict": 409,
    "session_failed": 409,
    "not_an_agent": 409,
    "provider_mismatch": 409,
    "fork_point": 409,
    "fork_position": 409,
    # What is not there:
    "unknown_item": 404,
    "unknown_plugin": 404,
    "unknown_language": 404,
    # What is not there at present:
    "provider_unconfigured": 503,
    "mode_not_installed": 503,
    "runtime_closed": 503,
}
"""unless its kind has one of its own."""


class ApiError(HoldfastError):
    """A request that is refused before anything is asked of a session."""

    def __init__(self, status: int, kind: str, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.kind = kind
        self.headers = headers or {}

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "error": str(self)}


def status_of(error: HoldfastError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, ApiError):
        return error.status
    return _BY_KIND.get(error.kind) or _BY_EXIT_CODE.get(error.exit_code, 500)


DETAIL_CHARS = 2_000
"""Characters of what a problem says at most: an error may quote what was sent, more than once."""


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS else f"{text[:DETAIL_CHARS]}…"


def problem_of(error: HoldfastError, request_id: str) -> dict[str, Any]:
    """The problem document of an error: what kind it is, what was wrong, and the error's own fields."""
    status = status_of(error)
    own = {key: value for key, value in error.to_json().items() if key not in ("kind", "error")}
    return {
        "type": TYPE_BASE + error.kind,
        "title": error.kind.replace("_", " "),
        "status": status,
        "detail": _cut(str(error)),
        "instance": request_id,
        **msgspec.to_builtins(own, enc_hook=str),
    }


def bug_problem(request_id: str) -> dict[str, Any]:
    """The problem document of an error that nobody foresaw. Its text stays in the log of the server."""
    return {
        "type": TYPE_BASE + "internal",
        "title": "internal error",
        "status": 500,
        "detail": "something went wrong inside the server; its log says what, under this request's id",
        "instance": request_id,
    }
