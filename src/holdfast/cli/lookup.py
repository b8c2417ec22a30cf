"""SourceFinding things: sessions by the beginning of their id, strategies by name, and the completion of both."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from holdfast.cli.errors import AmbiguousIdError, InputError
from holdfast.cli.options import Settings, settings

if TYPE_CHECKING:
    from holdfast.core.records import Program
    from holdfast.engine.holdfast import Holdfast
    from holdfast.store import Store

_COMPLETIONS = 50
"""Suggestions shown: more than fit on a screen help nobody."""


class SessionType(click.ParamType[str]):
    """A session id, or the beginning of one."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(session_id, help=told) for session_id, told in _known(ctx, _session_ids, incomplete)]


class ProgramType(click.ParamType[str]):
    """A strategy: a name, FILE.py, FILE.lua, FILE.py:name, module:name, or one that this store has run before."""

    name = "program"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        file, colon, begun = incomplete.partition(":")
        if colon and file.endswith(".py"):
            return [CompletionItem(f"{file}:{name}") for name in _strategies_in(file) if name.startswith(begun)]
        known = dict(_known(ctx, _program_names, incomplete)) | dict(_named_programs(incomplete))
        names = [CompletionItem(name, help=told) for name, told in sorted(known.items())][:_COMPLETIONS]
        return [*names, CompletionItem(incomplete, type="file")]


class StrategyType(click.ParamType[str]):
    """A strategy in Python, by its name or its file."""

    name = "strategy"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=told) for name, told in _strategies(incomplete)][:_COMPLETIONS]
        return [*names, CompletionItem(incomplete, type="file")]


@asynccontextmanager
async def opened(*, create: bool = False) -> AsyncIterator[Store]:
    """The store."""
    from holdfast.store import open_store

    async with open_store(settings().url(create=create)) as store:
        yield store


@asynccontextmanager
async def engine(*, minding: bool = False, create: bool = False) -> AsyncIterator[Holdfast]:
    """The engine on the store. Where it is not `minding`, it does only what it is told."""
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.minder import Minder

    find_modules_here()
    async with open_holdfast(settings().url(create=create), minder=Minder(on=minding)) as hf:
        yield hf


def find_modules_here() -> None:
    """Let `module:name` be found in the working directory, as with `python -m`."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


async def find_session(store: Store, given: str) -> str:
    """The full id of a session, from its beginning with or without `s-`."""
    from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
    from holdfast.store.contract import SessionFilter

    if not given:
        raise InputError("the session id is empty; `holdfast sessions` lists sessions")
    try:
        await store.position(given)
    except SessionDeletedError:
        raise
    except SessionNotFoundError:
        pass
    else:
        return given
    found: list[str] = []
    for prefix in (given, f"s-{given}"):
        page = await store.sessions(SessionFilter(id_prefix=prefix))
        found += [row.session_id for row in page.rows] + page.damaged
    # The ids of children begin with that of their parent: who writes the beginning of it means the parent.
    tops = [each for each in found if not any(each.startswith(f"{other}.") for other in found)]
    match tops:
        case [only]:
            return only
        case []:
            raise SessionNotFoundError(given)
        case several:
            raise AmbiguousIdError(given, sorted(several))


async def find_program(store: Store, name: str) -> Program | None:
    """The program of that name that the store has run last."""
    from holdfast.store.contract import SessionFilter

    for row in (await store.sessions(SessionFilter(program=name), limit=1)).rows:
        return await program_of(store, row.session_id)
    return None


async def program_of(store: Store, session_id: str) -> Program:
    """The program of a session."""
    from holdfast.core.records import StartedRecord

    first = (await store.read(session_id, limit=1))[0].record
    assert isinstance(first, StartedRecord)
    return first.program


async def check_runs_here(store: Store, session_id: str) -> None:
    """Raise `ProgramNotFoundError` if a session stands still because its program cannot be run by this process."""
    from holdfast.programs.contract import CheckableKind
    from holdfast.programs.errors import ProgramNotFoundError
    from holdfast.programs.kinds import new_kind

    row = await store.session(session_id)
    program = await program_of(store, session_id)
    if row.summary.state != "running" or row.owner is not None:
        return
    kind = new_kind(program.kind)
    try:
        if isinstance(kind, CheckableKind):
            kind.check(program)
    except ProgramNotFoundError as error:
        why = f"{error.why}; the answers of session '{session_id}' are kept, it goes on with `holdfast run --resume`"
        raise ProgramNotFoundError(error.program, why) from None


# --- completion ------------------------------------------------------------------------------------


def _known(ctx: click.Context, what: Any, begun: str) -> list[tuple[str, str]]:
    """Suggestions from the store; none if it cannot be used, because a key press must not show an error."""
    import asyncio

    async def ask() -> list[tuple[str, str]]:
        from holdfast.store import open_store

        url = ctx.ensure_object(Settings).url()
        path = url.removeprefix("sqlite:///")
        if path != url and not os.path.exists(path):
            return []
        async with open_store(url) as store:
            found: list[tuple[str, str]] = await what(store, begun)
            return found

    try:
        return asyncio.run(ask())
    except Exception:
        return []


async def _session_ids(store: Store, begun: str) -> list[tuple[str, str]]:
    from holdfast.store.contract import SessionFilter

    page = await store.sessions(SessionFilter(id_prefix=begun or None), limit=_COMPLETIONS)
    return [(row.session_id, f"{row.summary.program}, {row.summary.state}") for row in page.rows]


async def _program_names(store: Store, begun: str) -> list[tuple[str, str]]:
    page = await store.sessions()
    names = {row.summary.program for row in page.rows if row.summary.program.startswith(begun)}
    return [(name, "run before") for name in sorted(names)][:_COMPLETIONS]


def _named_programs(begun: str) -> list[tuple[str, str]]:
    """The programs of every language; where several have the same name, the last is the one that would be run."""
    from holdfast.programs.kinds import languages

    found: list[tuple[str, str]] = []
    for language in reversed(languages()):
        with suppress(Exception):
            found += [each for each in language.list_names().items() if each[0].startswith(begun)]
    return found


def _strategies(begun: str) -> list[tuple[str, str]]:
    from holdfast.programs.sandbox.library import list_strategies

    try:
        return [(each.name, f"{each.origin} strategy") for each in list_strategies() if each.name.startswith(begun)]
    except Exception:
        return []


def _strategies_in(file: str) -> list[str]:
    """The async functions of a file, by reading it: a completion runs no code."""
    import ast

    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
