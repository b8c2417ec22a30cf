"""A tokenizer for Lua 5.4 source: just enough to read literals and spot `require` without running anything."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--(?!\[=*\[)[^\n]*)
  | (?P<long>(?:--)?\[(?P<level>=*)\[)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xX](?:[0-9A-Fa-f.]|[pP][+-]?)+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<quote>["'])
  | (?P<op>\.\.\.|\.\.|::|<<|>>|//|[=~<>]=|[-+*/%^\#&~|<>=(){}\[\];:,.])
    """,
    re.VERBOSE,
)
_PIECE = re.compile(
    r"""[^\\"'\n]+|\\(?:x[0-9A-Fa-f]{2}|[0-9]{1,3}|u\{[0-9A-Fa-f]{1,8}\}|z\s*|\r\n|\n\r|.)|["']""", re.DOTALL
)
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, '"': 34, "'": 39, "\n": 10, "\r": 10}


class LuaSyntaxError(Exception):
    """Source that is not Lua, as far as tokens go."""


class Token(NamedTuple):
    """One token. `kind` is name, string, number, op, or end."""

    kind: str
    value: Any
    line: int


def tokenize(source: str) -> list[Token]:
    """The tokens of a chunk, without comments, closed by one of kind `end`."""
    try:
        source.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LuaSyntaxError(f"half a character, {source[error.start]!r}, that no file can hold") from None
    tokens: list[Token] = []
    at = source.find("\n") if source.startswith("#") else 0
    if at < 0:
        at = len(source)
    line, counted = 1, 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise LuaSyntaxError(f"unexpected {source[at]!r} in line {source.count(chr(10), 0, at) + 1}")
        kind, begin, at = match.lastgroup, at, match.end()
        if kind in ("space", "comment"):
            continue
        line, counted = line + source.count("\n", counted, begin), begin
        # `level` is the last group to close inside `long`, so it is what lastgroup may name.
        if match["long"] is not None:
            text, at = _long_bracket(source, at, match["level"])
            if not match["long"].startswith("--"):
                tokens.append(Token("string", text, line))
        elif kind == "quote":
            text, at = _quoted(source, at, match["quote"])
            tokens.append(Token("string", text, line))
        elif kind == "number":
            tokens.append(Token("number", _number(match["number"]), line))
        else:
            tokens.append(Token(str(kind), match[0], line))
    tokens.append(Token("end", None, line))
    return tokens


def _long_bracket(source: str, at: int, level: str) -> tuple[str, int]:
    close = f"]{level}]"
    end = source.find(close, at)
    if end < 0:
        raise LuaSyntaxError(f"no closing {close}")
    text = source[at:end].replace("\r\n", "\n")
    return _repaired(text.removeprefix("\n").encode("utf-8", "surrogateescape")), end + len(close)


def _quoted(source: str, at: int, quote: str) -> tuple[str, int]:
    parts = bytearray()
    while True:
        match = _PIECE.match(source, at)
        if match is None:
            raise LuaSyntaxError("a string without an end")
        piece, at = match[0], match.end()
        if piece == quote:
            return _repaired(bytes(parts)), at
        parts += _unescaped(piece[1:]) if piece.startswith("\\") else piece.encode("utf-8", "surrogateescape")


def _unescaped(escape: str) -> bytes:
    first = escape[0]
    if first in _ESCAPES and len(escape) <= 2 and not first.isdigit():
        return bytes([_ESCAPES[first]])
    if first == "z":
        return b""
    if first == "x" and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if first == "u" and escape.endswith("}"):
        code = int(escape[2:-1], 16)
        return chr(code).encode("utf-8", "surrogatepass") if code < 0x110000 else b"\xef\xbf\xbd"
    if first.isdigit() and first.isascii() and int(escape) < 256:
        return bytes([int(escape)])
    raise LuaSyntaxError(f"invalid escape \\{escape}")


def _repaired(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(text: str) -> int | float:
    try:
        if text[:2] in ("0x", "0X"):
            return float.fromhex(text) if set("pP.") & set(text) else int(text, 16)
        return float(text) if set("eE.") & set(text) else int(text)
    except (ValueError, OverflowError):
        raise LuaSyntaxError(f"{text[:40]} is not a number") from None
