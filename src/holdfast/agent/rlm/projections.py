"""Projections: data of the host that cells can read by a name. It is not copied into the session, and not assigned."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.agent.rlm.feedback import sized
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import check_value, preview

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Bytes of one file, and of all files of one folder, that a projection reads."""


class Projection(msgspec.Struct, frozen=True):
    """A value, or how to get it."""

    about: str
    """What the model is told of it: what it is, and how large."""
    resolve: Callable[[], Any]
    """Gives the value, in a thread, when a cell first reads it: text, bytes, or JSON."""
    size: int = 0
    """Bytes, as far as known: the interpreter is given room for them."""


def check_name(name: str, taken: frozenset[str]) -> None:
    """Raise `InvalidValueError` unless a projection can have the name."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise InvalidValueError("projection", f"'{name}' cannot be a name in Python; use letters, digits and _")
    if name in taken:
        raise InvalidValueError("projection", f"'{name}' is a function of cells; use another name")


def of_value(value: Any) -> Projection:
    """A projection of JSON, or of a text."""
    check_value(value, "projection")
    size = len(value.encode()) if isinstance(value, str) else len(msgspec.json.encode(value))
    kind = type(value).__name__
    return Projection(f"{kind}, {sized(size)}: {preview(value)[:80]}", lambda: value, size)


def of_path(path: Path) -> Projection:
    """A projection of a file as text, or of a folder as a dict of texts by relative path."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not _is_hidden(each.relative_to(path)))
        size = sum(each.stat().st_size for each in files)
        _check_size(path, size)
        about = f"dict of str by path, {len(files)} files, {sized(size)}: the files in {path.name}"
        return Projection(about, lambda: {each.relative_to(path).as_posix(): _text(each) for each in files}, size)
    size = path.stat().st_size
    _check_size(path, size)
    return Projection(f"str, {sized(size)}: the text of {path.name}", lambda: _text(path), size)


def _check_size(path: Path, size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise InvalidValueError("projection", f"{path} has {sized(size)}, and {sized(MAX_FILE_BYTES)} can be read")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")
