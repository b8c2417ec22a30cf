"""The types of arguments that a shell completes: sessions, programs and strategies."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

from holdfast.cli.options import CliSettings

if TYPE_CHECKING:
    from holdfast.store import Store

_MOST_COMPLETIONS = 50
"""Suggestions shown: more than fit on a screen help nobody."""

_Suggestions: TypeAlias = list[tuple[str, str]]
"""Each word that could be meant, and its description."""


class SessionType(click.ParamType[str]):
    """A session id, or the beginning of one."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(each, help=about) for each, about in _from_store(ctx, _session_ids, incomplete)]


class ProgramType(click.ParamType[str]):
    """A strategy: a name, FILE.py, FILE.lua, FILE.py:name, module:name, or one that this store has run before."""

    name = "program"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        file, colon, begun = incomplete.partition(":")
        if colon and file.endswith(".py"):
            return [CompletionItem(f"{file}:{name}") for name in _strategies_in(file) if name.startswith(begun)]
        known = dict(_from_store(ctx, _program_names, incomplete)) | dict(_programs(incomplete))
        names = [CompletionItem(name, help=about) for name, about in sorted(known.items())][:_MOST_COMPLETIONS]
        return names or [CompletionItem(incomplete, type="file")]  # bash would drop names for files


class StrategyType(click.ParamType[str]):
    """A strategy in Python, by its name or its file."""

    name = "strategy"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=about) for name, about in _strategies(incomplete)][:_MOST_COMPLETIONS]
        return names or [CompletionItem(incomplete, type="file")]  # bash would drop names for files


def _from_store(
    ctx: click.Context, suggest: Callable[[Store, str], Awaitable[_Suggestions]], begun: str
) -> _Suggestions:
    """Suggestions from the store, or none if it cannot be used: a key press must not show an error."""
    import asyncio

    async def read() -> _Suggestions:
        from holdfast.store import open_store

        url = ctx.ensure_object(CliSettings).url()
        path = url.removeprefix("sqlite:///")
        if path != url and not os.path.exists(path):
            return []
        async with open_store(url) as store:
            return await suggest(store, begun)

    try:
        return asyncio.run(read())
    except Exception:
        return []


async def _session_ids(store: Store, begun: str) -> _Suggestions:
    from holdfast.store.session_rows import SessionFilter

    page = await store.sessions(SessionFilter(id_prefix=begun or None), limit=_MOST_COMPLETIONS)
    return [(row.session_id, f"{row.summary.program}, {row.summary.state}") for row in page.rows]


async def _program_names(store: Store, begun: str) -> _Suggestions:
    page = await store.sessions()
    names = {row.summary.program for row in page.rows if row.summary.program.startswith(begun)}
    return [(name, "run before") for name in sorted(names)][:_MOST_COMPLETIONS]


def _programs(begun: str) -> _Suggestions:
    """The programs of every language; if several have the same name, the last is the one that would be run."""
    from holdfast.programs.kinds import languages

    found: _Suggestions = []
    for language in reversed(languages()):
        with suppress(Exception):
            found += [each for each in language.list_names().items() if each[0].startswith(begun)]
    return found


def _strategies(begun: str) -> _Suggestions:
    from holdfast.programs.sandbox.library import list_strategies

    try:
        return [(each.name, f"{each.origin} strategy") for each in list_strategies() if each.name.startswith(begun)]
    except Exception:
        return []


def _strategies_in(file: str) -> list[str]:
    """The async functions of a file, by reading it: a completion runs no code."""
    import ast

    try:
        with open(file, encoding="utf-8") as text:
            tree = ast.parse(text.read())
    except (OSError, ValueError, SyntaxError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
