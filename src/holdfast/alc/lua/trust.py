"""Which trusted Lua programs this process may run: those that were made in it, and nothing that only a store has.

A trusted program has files, processes and the environment. A journal can say of any program that it is trusted, so that
alone counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.values import fingerprint

if TYPE_CHECKING:
    from holdfast.alc.lua.source import LuaSource

NOT_ALLOWED = "is trusted Lua, which may do anything here, and nobody asked this process to run it (--serve FILE.lua)"

_allowed: set[bytes] = set()


def allow(source: LuaSource) -> None:
    """Let this process run a trusted program, and as its children the packages that it was recorded with."""
    _allowed.add(_key(source))
    for name in source.modules:
        _allowed.add(_key(msgspec.structs.replace(source, code=None, package=name)))


def is_allowed(source: LuaSource) -> bool:
    """Whether this process may run a program: any in the sandbox, and trusted ones that were made here."""
    return source.trust != "trusted" or _key(source) in _allowed


def _key(source: LuaSource) -> bytes:
    """All that decides which code runs."""
    return fingerprint([source.code, source.package, source.modules, source.roots])
