"""The modules that a program requires, kept with its session: it goes on running the code that it began with, even
after a package was updated, and on a machine that does not have it.

They are found by reading: `require` of a literal name, and in files that call `alc.fork` or `alc.pipe` the names of
packages. What a program requires by a name that it computes is read from disk when it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from holdfast.alc.lua.packages import Roots, find_module
from holdfast.core.errors import HoldfastError

MAX_KEPT_BYTES = 2 * 1024 * 1024
"""Bytes of modules kept with a session: a hundred times what a package needs. Past that they are read from disk."""

_REQUIRE = re.compile(r"""\brequire\s*\(?\s*["']([A-Za-z0-9_.\-]+)["']""")
_BY_NAME = re.compile(r"\balc\s*\.\s*(?:fork|pipe|eval)\b")
_NAME = re.compile(r"""["']([A-Za-z0-9_\-]{1,128})["']""")


class Module(msgspec.Struct, frozen=True, array_like=True):
    """The source of a module."""

    place: str
    """Which file of which package it is, for error messages."""
    text: str


def kept_modules(roots: Roots, *, package: str | None = None, code: str | None = None) -> dict[str, Module]:
    """The modules of a program, by name; none if they are too large to be kept."""
    found: dict[str, Module] = {}
    wanted = [package] if package is not None else list(_mentioned(code or ""))
    size = 0
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        module = _read(roots, name)
        if module is None:
            continue
        found[name] = module
        size += len(module.text)
        if size > MAX_KEPT_BYTES:
            return {}
        wanted += _mentioned(module.text)
    return found


def absent_names(roots: Roots, modules: Mapping[str, Module], code: str | None = None) -> list[str]:
    """The names in a program's forks and pipes that are no module now: they mean a strategy in another language."""
    texts = [code or "", *(module.text for module in modules.values())]
    named = {name for text in texts if _BY_NAME.search(text) for name in _NAME.findall(text)}
    return sorted(name for name in named if name not in modules and _read(roots, name) is None)


def place_of(path: Path, name: str) -> str:
    """The end of a module's path that tells which file of which package it is."""
    parts = name.count(".") + (2 if path.name == "init.lua" else 1)
    return "/".join(path.parts[-parts:])


def _read(roots: Roots, name: str) -> Module | None:
    try:
        path = find_module(roots, name)
        if path is None:
            return None
        status = path.stat()
        return _module(path, name, status.st_mtime_ns, status.st_size)
    except (HoldfastError, OSError, ValueError):
        return None  # it is an error when it is required, not now


@lru_cache(maxsize=1024)
def _module(path: Path, name: str, _changed: int, _size: int) -> Module:
    return Module(place_of(path, name), path.read_bytes().decode())


@lru_cache(maxsize=1024)
def _mentioned(text: str) -> Iterable[str]:
    names = set(_REQUIRE.findall(text))
    if _BY_NAME.search(text):
        names |= set(_NAME.findall(text))
    return tuple(sorted(names))
