"""Whose durable state a program may use: a sandboxed one its own and that of its namespace, a trusted one any.

State belongs to a strategy, by its name; a text that was given no name is a strategy of its own, by what it says.
Whoever starts a session may name another namespace for it, by `_ns` in its ctx, which several strategies then share.
A sandboxed program that starts another one cannot grant it more than it has itself.

A program calls its own namespace `default`, and those of the branches of its forks `fork-0`, `fork-1`, …: these names
mean something else for every strategy.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.records import Program, StartedRecord
from holdfast.core.values import Json, fingerprint, preview
from holdfast.programs.kinds import find_language
from holdfast.programs.names import UNNAMED

OWN_NAMESPACE = "default"
"""What a program calls the namespace that is its own."""

_BRANCH = re.compile(r"fork-\d{1,9}")


def found_namespace(started: StartedRecord, asked: str) -> str:
    """The namespace in the store that a program means by a name. Raises `InvalidValueError` if it may not use it."""
    language = find_language(started.program.kind)
    if language is None:
        return asked  # trusted, and it names its namespaces by itself
    own = _own_namespace(started)
    if asked in (OWN_NAMESPACE, own):
        return own
    if _BRANCH.fullmatch(asked):
        return f"{own}.{asked}"
    if _is_sandboxed(started):
        why = f"the namespace {preview(asked)} is not this strategy's, which is {preview(own)}; whoever starts it names"
        raise InvalidValueError("state", f"{why} another one with `_ns` in its ctx")
    return asked


def check_child_namespace(parent: StartedRecord, ctx: Json) -> None:
    """Raise unless a program may start another one with this ctx."""
    named = _named(ctx)
    if named is not None:
        found_namespace(parent, named)


def _own_namespace(started: StartedRecord) -> str:
    program = started.program
    named = _named(started.ctx)
    if named is not None:
        return named
    if program.name != UNNAMED:
        return program.name
    return _namespace_of_text(program)


@lru_cache(maxsize=128)
def _namespace_of_text(program: Program) -> str:
    language = find_language(program.kind)
    assert language is not None
    return f"{UNNAMED}-{fingerprint(language.text_of(program).text).hex()}"


def _named(ctx: Json) -> str | None:
    """The namespace that a ctx names; None if it names none, or one that is a strategy's own anyway."""
    named = ctx.get("_ns") if isinstance(ctx, dict) else None
    is_shared = isinstance(named, str) and named != OWN_NAMESPACE and not _BRANCH.fullmatch(named)
    return named if is_shared else None


def _is_sandboxed(started: StartedRecord) -> bool:
    """Whether a program is source text that runs in a sandbox."""
    language = find_language(started.program.kind)
    try:
        return language is not None and not language.text_of(started.program).is_unconfined
    except HoldfastError:
        return True
