"""The registry of program kinds: where each kind lives, and the language that its programs are written in.

The table names homes as `module:Class`, and a home is imported when it is first needed. So the kernel knows no kind,
and whatever concerns all programs (a lookup, a check, a catalog) asks every kind in turn.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from holdfast.programs.contract import ProgramKind
from holdfast.programs.errors import UnknownLanguageError
from holdfast.programs.language import Language


class KindEntry(NamedTuple):
    """One kind in the table."""

    home: str
    """`module:Class` of the `ProgramKind`. It is made without arguments, once for each engine."""
    language: str | None = None
    """`module:Class` of the `Language` of its programs; None if they are not source text."""


_kinds = {
    "native": KindEntry("holdfast.programs.native.kind:NativeKind"),
    "lua": KindEntry("holdfast.alc.lua.kind:LuaKind", "holdfast.alc.lua_language:LuaLanguage"),
    "python": KindEntry(
        "holdfast.programs.sandbox.kind:PythonKind", "holdfast.strategies.python_language:PythonLanguage"
    ),
    "agent": KindEntry("holdfast.agent.machine.program:AgentKind"),
    "process": KindEntry("holdfast.agent.processes.machine:ProcessKind"),
    "trigger": KindEntry("holdfast.agent.triggers.machine:TriggerKind"),
}
"""In the order in which a name is looked up."""


def register_kind(kind: str, home: str, *, language: str | None = None) -> None:
    """Add a kind to the table, or replace one: engines that have not used it yet run it, and lookups find its programs.

    A kind with options of its own, for one engine only, is given to `Holdfast.add_kind`.
    """
    _kinds[kind] = KindEntry(home, language)


def new_kind(kind: str) -> ProgramKind | None:
    """A new instance of a kind; None if no kind has that name. The caller closes it."""
    entry = _kinds.get(kind)
    return None if entry is None else cast(ProgramKind, load_object(entry.home)())


def language_names() -> tuple[str, ...]:
    """The languages that programs may be written in."""
    return tuple(name for name, entry in _kinds.items() if entry.language is not None)


def languages() -> list[Language]:
    """Every language, in the order in which a name is looked up."""
    return [_language(entry.language) for entry in _kinds.values() if entry.language is not None]


def find_language(name: str) -> Language | None:
    """The language of that name, or None."""
    entry = _kinds.get(name)
    return _language(entry.language) if entry is not None and entry.language is not None else None


def get_language(name: str) -> Language:
    """The language of that name; `UnknownLanguageError` if there is none."""
    found = find_language(name)
    if found is None:
        raise UnknownLanguageError(name, language_names())
    return found


def language_of_file(file: str) -> Language | None:
    """The language of a file by the end of its name, or None."""
    return next((each for each in languages() if file.endswith(each.suffix)), None)


@cache
def _language(home: str) -> Language:
    return cast(Language, load_object(home)())


def load_object(home: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)
