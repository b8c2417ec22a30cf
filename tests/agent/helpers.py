"""What the tests of agents share: runtimes on one store, scripted models, and a limit on every wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from holdfast.agent.machine.policy import Spec
from holdfast.agent.providers.provider import Provider
from holdfast.agent.providers.retry import RetryPolicy
from holdfast.agent.runtime import Runtime
from holdfast.agent.runtime_options import ModelOptions, RuntimeOptions
from holdfast.agent.session import AgentSession
from holdfast.core.queries import Usage
from holdfast.core.records import Entry
from holdfast.store import Store, open_store
from holdfast.testing.provider import ScriptedProvider, ScriptStep

T = TypeVar("T")

AT_ONCE = RetryPolicy(base_delay_s=0.0)
"""Tries again without a wait."""

USED = Usage(prompt_tokens=10, completion_tokens=5)

OBJECT = {"type": "object"}


class Home:
    """Where sessions are stored. Each runtime on it is like a process of its own; they go, and the store stays."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._memory = open_store(url) if url == "memory:" else None

    def store(self) -> Store:
        """Not opened, unless it is the one in memory, which always is."""
        return self._memory or open_store(self.url)

    def runtime(self, *script: ScriptStep, provider: Provider | None = None, **options: Any) -> Runtime:
        """A runtime whose model follows a script."""
        options.setdefault("retry", AT_ONCE)
        options.setdefault("model", "m-1")
        return Runtime(self.store(), provider=provider or ScriptedProvider(script), **grouped(options))


def grouped(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a runtime, those of a spec, of models and of the runtime itself each in their group."""
    groups = {"spec": Spec.__struct_fields__, "models": _fields(ModelOptions), "options": _fields(RuntimeOptions)}
    own = ("model", "provider", "instructions", "tools")
    of_group = {name: group for group, names in groups.items() for name in names if name not in own}
    made = {name: value for name, value in options.items() if name not in of_group}
    for group, kind in (("spec", Spec), ("models", ModelOptions), ("options", RuntimeOptions)):
        given = {name: value for name, value in options.items() if of_group.get(name) == group}
        if given:
            made[group] = kind(**given)
    return made


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


async def journal(session: AgentSession) -> list[Entry]:
    """All that is stored of a session."""
    return [entry async for entry in session.mount.store.journal(session.session_id)]


async def said(session: AgentSession) -> list[tuple[str, str]]:
    """Who said what, in the session's view."""
    return [(message.role, message.text) for message in (await session.read_view()).messages]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
