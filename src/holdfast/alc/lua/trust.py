"""Which Lua programs this process may run outside of the sandbox: those that were made in it, and nothing that only a
store has.

Such a program has files, processes and the environment. A journal can say of any program that it needs them: whether
it is trusted with them is no part of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.values import fingerprint

if TYPE_CHECKING:
    from holdfast.alc.lua.source import LuaSource

NOT_ALLOWED = (
    "is trusted Lua, which may do anything here, and nobody asked this process to run it"
    " (--serve FILE.lua, `mcp --trust`)"
)

_allowed: set[bytes] = set()
_served: list[Callable[[LuaSource], LuaSource | None]] = []


def allow(source: LuaSource) -> None:
    """Let this process run a program outside of the sandbox, and as its children the packages that it was made with."""
    _allowed.add(_key(source))
    for name in source.modules:
        _allowed.add(_key(msgspec.structs.replace(source, code=None, package=name)))


def serve(find: Callable[[LuaSource], LuaSource | None]) -> None:
    """Let this process run what `find` gives: the trusted program that a source stands for here, or None."""
    _served.append(find)


def is_allowed(source: LuaSource) -> bool:
    """Whether this process may run a program: any in the sandbox, and outside of it those that were made here."""
    if not source.is_unconfined:
        return True
    key = _key(source)
    return key in _allowed or any((found := find(source)) is not None and _key(found) == key for find in _served)


def _key(source: LuaSource) -> bytes:
    """All that decides which code runs."""
    return fingerprint([source.code, source.package, source.modules, source.roots])
