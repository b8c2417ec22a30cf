"""What an error reply of a model service means: the class of the error, its message, and how long to wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from holdfast.agent.providers.provider import Fault
from holdfast.core.values import Json, repaired

MESSAGE_CHARS = 600
"""Characters of a service's message in an error: enough for a message, not for a page of HTML."""

_TOO_LONG = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "context limit",
    "maximum context",
    "maximum model length",
    "maximum prompt length",
    "maximum number of tokens allowed",
    "max_new_tokens` must be",
    "model token limit",
    "exceeds max length",
    "range of input length",
    "prompt is too long",
    "prompt too long",
    "prompt token count",
    "input is too long",
    "input tokens exceed",
    "input length exceed",
    "`inputs` must have less than",
    "too many tokens",
    "reduce the length",
)
"""How services say that a conversation is too long. There is no common code for it."""

_TOO_OFTEN = ("rate limit", "rate_limit", "throttl", "please wait", "per minute", "per day")
"""How they say that there were too many tokens in a period. A shorter conversation helps less than a wait."""

_BY_WORD: tuple[tuple[str, Fault], ...] = (
    ("rate_limit", "rate_limit"),
    ("too_many_requests", "rate_limit"),
    ("overloaded", "overloaded"),
    ("unavailable", "overloaded"),
    ("server_error", "overloaded"),
    ("internal", "overloaded"),
    ("api_error", "overloaded"),
    ("timeout", "timeout"),
    ("auth", "auth"),
    ("permission", "auth"),
    ("api_key", "auth"),
    ("invalid", "invalid_request"),
    ("not_found", "invalid_request"),
)
"""Parts of error codes and types, for errors without a status, such as those in the middle of a stream."""


class ErrorReply(msgspec.Struct, frozen=True):
    """An error as the service describes it."""

    message: str
    code: str = ""
    """Its code and type, if given, in lower case."""
    status: int | None = None
    """The HTTP status, if the code is one."""


def read_error_reply(body: bytes) -> ErrorReply:
    """The error in a response body. Anything that is not the usual JSON is quoted."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorReply(_cut(body[: 4 * MESSAGE_CHARS].decode("utf-8", "replace")))
    return error_reply_of(value)


def is_error_reply(value: Json) -> bool:
    """Whether a JSON value is an error in place of an answer."""
    if isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, dict) and bool(value.get("error"))


def error_reply_of(value: Json) -> ErrorReply:
    """The error in a JSON value: `{"error": {…}}`, `{"error": "…"}`, `{"message": …}`, `{"detail": …}`, or a list."""
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error") or value if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return ErrorReply(_cut(_text(error)))
    code = error.get("code")
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else None
    names = [name for name in (code, error.get("type"), error.get("status")) if isinstance(name, str)]
    message = next((error[name] for name in ("message", "detail", "msg", "error") if error.get(name)), error)
    return ErrorReply(_cut(_text(message)), " ".join(names).lower(), status)


def _text(value: Json) -> str:
    if isinstance(value, str):
        return repaired(value)
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, RecursionError):  # a number or text that JSON of ours cannot hold
        return f"{type(value).__name__} that cannot be shown"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_CHARS else text[:MESSAGE_CHARS] + "…"


def says_too_long(message: str) -> bool:
    """Whether an error message means that the conversation is too long, and not that there were too many requests."""
    message = message.lower()
    return any(words in message for words in _TOO_LONG) and not any(words in message for words in _TOO_OFTEN)


def fault_of(status: int | None, error: ErrorReply) -> Fault:
    """The class of an error by its HTTP status, and by its message if the status does not say enough."""
    status = status if status is not None else error.status
    message = f"{error.code} {error.message.lower()}"
    if (status is None or status in (400, 413, 422)) and says_too_long(message):
        return "context_length"
    if "insufficient_quota" in error.code:
        return "auth"  # sent as a 429, but waiting does not help: the account needs credit
    match status:
        case None:
            return next((fault for word, fault in _BY_WORD if word in error.code), "bad_stream")
        case 401 | 402 | 403:
            return "auth"
        case 408:
            return "timeout"
        case 409 | 425:
            return "overloaded"  # the same call is still running, or came too early
        case 413:
            return "context_length"
        case 429:
            return "rate_limit"
        case _ if status >= 500:
            return "overloaded"
        case _:
            return "invalid_request"


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds a response asks to wait, from `retry-after-ms` or `Retry-After` (seconds, or a date).

    `now` is in seconds since 1970. The wait for a date in the past is 0; None if there is no valid header.
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - now)
