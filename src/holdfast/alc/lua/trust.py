"""Which Lua programs this process may run outside of the sandbox: those that were made in it, and nothing that only a
store has.

Such a program has files, processes and the environment. A journal can say of any program that it needs them: whether
it is trusted with them is no part of what is stored.
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
    """Let this process run a program outside of the sandbox, and as its children the packages that it was made with."""
    _allowed.add(_key(source))
    for name in source.modules:
        _allowed.add(_key(msgspec.structs.replace(source, code=None, package=name)))


def is_allowed(source: LuaSource) -> bool:
    """Whether this process may run a program: any in the sandbox, and outside of it those that were made here."""
    return not source.is_unconfined or _key(source) in _allowed


def _key(source: LuaSource) -> bytes:
    """All that decides which code runs."""
    return fingerprint([source.code, source.package, source.modules, source.roots])
