"""Completion of what a person types into a prompt or a resource template: strategies, sessions, cards and the like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError

from holdfast.core.errors import HoldfastError
from holdfast.core.state import State
from holdfast.core.values import preview
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.kinds import language_names
from holdfast.programs.sandbox.library import list_strategies
from holdfast.serve.mcp import catalog, prompts, resources
from holdfast.serve.mcp.extensions import extensions
from holdfast.serve.mcp.tools import in_thread
from holdfast.store.session_rows import SessionFilter

MOST = 100
"""Values in one answer: what the protocol allows."""

CompletionSource: TypeAlias = Callable[[Holdfast, str], Awaitable[list[str]]]
"""What gives the values that begin with a text: all of them, or more than `MOST`."""


async def _sessions(holdfast: Holdfast, prefix: str) -> list[str]:
    return await _session_ids(holdfast, SessionFilter(id_prefix=prefix))


async def complete_ended_sessions(holdfast: Holdfast, prefix: str) -> list[str]:
    """The sessions that have ended well."""
    return await _session_ids(holdfast, SessionFilter(id_prefix=prefix, states=[State.COMPLETED]))


async def _session_ids(holdfast: Holdfast, where: SessionFilter) -> list[str]:
    """The newest that match: who types an id has seen it lately."""
    page = await holdfast.sessions(where, limit=MOST + 1)
    return [row.session_id for row in page.rows]


async def _strategies(holdfast: Holdfast, prefix: str) -> list[str]:
    return beginning_with(await in_thread(catalog.names), prefix)


async def _in_python(holdfast: Holdfast, prefix: str) -> list[str]:
    return beginning_with((each.name for each in await in_thread(list_strategies)), prefix)


async def _languages(holdfast: Holdfast, prefix: str) -> list[str]:
    return beginning_with(language_names(), prefix)


def beginning_with(names: Iterable[str], prefix: str) -> list[str]:
    """Those of the names that begin with a text."""
    return [name for name in names if name.startswith(prefix)]


_IN_PROMPTS: dict[tuple[str, str], CompletionSource] = {
    ("advice", "strategy"): _strategies,
    ("new_strategy", "language"): _languages,
}

_IN_TEMPLATES: dict[tuple[str, str], CompletionSource] = {
    ("holdfast://strategies/{name}", "name"): _strategies,
    ("holdfast://strategies/{name}/strategy.py", "name"): _in_python,
}
"""Where the name of a hole does not say enough."""

_BY_HOLE: dict[str, CompletionSource] = {"session_id": _sessions}


async def complete(holdfast: Holdfast, params: types.CompleteRequestParams) -> types.CompleteResult:
    """The values that complete what was typed, sorted; empty for an argument that cannot be completed."""
    source = _source(params.ref, params.argument.name)
    found: list[str] = []
    if source is not None:
        with suppress(HoldfastError):  # a beginning that no id can have, a directory that cannot be read
            found = await source(holdfast, params.argument.value)
    values = sorted(found[:MOST]) if source in (_sessions, complete_ended_sessions) else sorted(found)[:MOST]
    more = len(found) > MOST
    known = None if more and source in (_sessions, complete_ended_sessions) else len(found)
    return types.CompleteResult(completion=types.Completion(values=values, total=known, has_more=more))


def _source(ref: types.PromptReference | types.ResourceTemplateReference, argument: str) -> CompletionSource | None:
    if isinstance(ref, types.PromptReference):
        if prompts.find(ref.name) is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {preview(ref.name)}")
        return _IN_PROMPTS.get((ref.name, argument))
    template = resources.find_template(ref.uri)
    if template is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource template {preview(ref.uri)}")
    hole = (template.template, argument)
    for extension in extensions().values():
        if hole in extension.completions:
            return extension.completions[hole]
    return _IN_TEMPLATES.get(hole, _BY_HOLE.get(argument))
