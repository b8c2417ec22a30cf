"""Excerpts: how much of a long result a model sees, and what it is told about the rest."""

from __future__ import annotations

import msgspec

SHOWN_BYTES = 16 * 1024
"""UTF-8 bytes of one result that a model sees: some 4,000 tokens, so that ten calls still fit any window."""

SHOWN_LINES = 400
"""Lines of one result that a model sees: more than anybody reads of a log."""


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tool's result a model sees."""

    max_bytes: int = SHOWN_BYTES
    max_lines: int = SHOWN_LINES

    def __post_init__(self) -> None:
        if self.max_bytes < 3 or self.max_lines < 3:
            raise ValueError(f"at least 3 bytes and 3 lines must be shown, got {self.max_bytes} and {self.max_lines}")


def shortened(text: str, limit: OutputLimits, hint: str = "ask for less at a time") -> str:
    """The text itself if it is within the limits; else its beginning (two thirds) and end, with a note between."""
    body = text.encode()
    lines = text.count("\n") + 1
    if len(body) <= limit.max_bytes and lines <= limit.max_lines:
        return text
    tail_bytes, tail_lines = limit.max_bytes // 3, limit.max_lines // 3
    head = _first_lines(body[: limit.max_bytes - tail_bytes].decode(errors="ignore"), limit.max_lines - tail_lines)
    tail = _last_lines(body[-tail_bytes:].decode(errors="ignore"), tail_lines)
    left_out = len(body) - len(head.encode()) - len(tail.encode())
    note = f"[… {left_out} of {len(body)} bytes ({lines} lines in total) omitted here: {hint} …]"
    return f"{head}\n{note}\n{tail}"


def _first_lines(text: str, count: int) -> str:
    return "\n".join(text.split("\n", count)[:count])


def _last_lines(text: str, count: int) -> str:
    return "\n".join(text.rsplit("\n", count)[-count:])
