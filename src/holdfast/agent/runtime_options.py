"""What a runtime can be set to beside its store, model and tools: how models are called, and how sessions are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.agent.conversations import Residency
from holdfast.agent.machine.policy import Policy
from holdfast.agent.providers.provider import Provider
from holdfast.agent.providers.retry import RetryPolicy
from holdfast.core.budget import Budget, Price
from holdfast.store.contract import Store

DEFAULT_STORE = "sqlite:///holdfast.db"

DEFAULT_TOOL_CONCURRENCY = 8
"""Tools that may run at once in one OS process. As many more may run for sessions that have none running, so that the
slow tools of one session do not keep the quick ones of another waiting."""

StoreFactory: TypeAlias = Callable[[str, Mapping[str, str], Policy], "Store | Awaitable[Store]"]
"""Makes the store of a session from its id, its relation to other sessions, and its policy."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How models are called, and what is known about them."""

    fallbacks: Sequence[str | tuple[Provider, str]] = ()
    """The models to ask when the session's own does not answer, in this order."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By model; `default` is for all others."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """Tokens that a model takes at once, by the beginning of its name. Those of common models are known."""


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """How the sessions of a runtime are run and kept."""

    name: str = "agent"
    """The program name that new sessions are recorded with."""
    residency: Residency = "keep_all"
    """How much of a conversation is kept in memory."""
    tool_concurrency: int = DEFAULT_TOOL_CONCURRENCY
    budget: Budget | None = None
    """What each session that begins may spend in its whole life, its subagents included, unless it has its own."""
    store_factory: StoreFactory | None = None
    """Makes a store for each session; without it, all sessions are in the runtime's own."""
