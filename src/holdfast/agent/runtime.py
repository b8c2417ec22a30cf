"""`Runtime`: made once in a process; opens agent sessions, answers for models, and runs tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

import msgspec

from holdfast.agent.builder import SessionBuilder
from holdfast.agent.conversations import Residency
from holdfast.agent.description import Description, described
from holdfast.agent.errors import ProviderUnavailableError, ProviderUnconfiguredError
from holdfast.agent.machine.policy import Policy, compaction_from, limits_from
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.agent.machine.turn import Limits
from holdfast.agent.model_driver import ModelDriver
from holdfast.agent.mounted_store import Place
from holdfast.agent.observation import Observer
from holdfast.agent.plugins.approve import Approve
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.plugins.registry import Plugins
from holdfast.agent.providers.model_names import find_provider
from holdfast.agent.providers.provider import Provider
from holdfast.agent.providers.retry import Choice, Retry
from holdfast.agent.providers.windows import KNOWN_WINDOWS, window_of
from holdfast.agent.tools.catalog import Catalog, Toolish
from holdfast.agent.tools.drivers import ToolDrivers
from holdfast.agent.worker import DEFAULT_TURNS, DRAIN_S, Worker
from holdfast.core.budget import Price
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json
from holdfast.store import open_store
from holdfast.store.contract import Store

DEFAULT_TOOL_CONCURRENCY = 8
"""Tools of one process under way at once."""

StoreFactory: TypeAlias = Callable[[str, Mapping[str, str], Policy], "Store | Awaitable[Store]"]
"""Makes the store of a session: from its id, what it is to others, and its policy."""


class Runtime:
    """Agent sessions in one process: `async with Runtime("sqlite:///chat.db", model="…") as runtime: …`."""

    def __init__(
        self,
        store: str | Store = "sqlite:///holdfast.db",
        *,
        model: str | None = None,
        provider: Provider | None = None,
        fallbacks: Sequence[str | tuple[Provider, str]] = (),
        tools: Sequence[Toolish] = (),
        instructions: str = "",
        limits: Limits | Mapping[str, Any] | None = None,
        generation: Mapping[str, Json] | None = None,
        prices: Mapping[str, Price] | None = None,
        retry: Retry | None = None,
        plugins: Sequence[Plugin] = (),
        window: int | None = None,
        windows: Mapping[str, int] | None = None,
        compaction: Mapping[str, Any] | None = None,
        prompt: Sequence[PromptLayer] = (),
        tool_concurrency: int = DEFAULT_TOOL_CONCURRENCY,
        store_factory: StoreFactory | None = None,
        residency: Residency = "keep_all",
        name: str = "agent",
        **options: Any,
    ) -> None:
        self.name = name
        self.modes = {"standard"}
        self.providers: dict[str, Provider] = {}
        self._own_providers: list[Provider] = []
        self.retry = retry or Retry()
        self.prices = dict(prices or {})
        self.tools = Catalog(tools)
        self.plugins = Plugins(self.tools, plugins)
        self.plugins.add(Approve())  # whose rules are in the sessions that have it, and need nothing here
        self.windows = {**KNOWN_WINDOWS, **(windows or {})}
        found = self._found(model, provider)
        self.fallbacks = [self._fallback(each) for each in fallbacks]
        self.policy = Policy(
            provider=found.provider.id if found is not None else "",
            model=found.model if found is not None else "",
            instructions=instructions,
            limits=limits if isinstance(limits, Limits) else limits_from(limits or {}),
            generation=dict(generation or {}),
            prompt=list(prompt),
            window=window,
            compaction=compaction_from(compaction or {}),
        )
        self._given = {
            "store": store,
            "model": model,
            "provider": provider,
            "instructions": instructions or None,
            "limits": limits,
            "generation": generation,
            "retry": retry,
            "window": window,
            "compaction": compaction,
        }
        self._tool_concurrency = tool_concurrency
        self._factory = store_factory
        self.residency = residency
        self._options = options
        self._store = open_store(store) if isinstance(store, str) else store
        self._places: dict[int, Place] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            await self.tools.refresh()
            await self.place_of(self._store)
        except BaseException:
            await self.tools.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        places, self._places = list(self._places.values()), {}
        for place in places:
            await place.close()
        for provider in self._own_providers:
            if (aclose := getattr(provider, "aclose", None)) is not None:
                await aclose()
        await self.tools.aclose()

    def session(self, session_id: str) -> SessionBuilder:
        """The way to a session: `await runtime.session("chat-1").open()`."""
        return SessionBuilder(self, session_id)

    def observe(self, session_id: str, *, entries: bool = False) -> Observer:
        """A way to watch any session in the runtime's own store, whatever it is and whoever owns it.

        With `entries`, its journal is shown as it is, and not what it means for a conversation.
        """
        return self.place.observers.observe(session_id, entries=entries)

    def describe(self) -> Description:
        """Every default in force, and where it comes from. Prints as a table."""
        return described(self, self._given)

    def work(self, turns: int = DEFAULT_TURNS, *, drain_s: float = DRAIN_S) -> Worker:
        """A worker on the runtime's own store: it begins turns with what waits in the inboxes of all its sessions.

        `async with runtime.work(): …`, or `await runtime.work().run()` until its `stop` is called.
        """
        return self.place.holdfast.work(turns, drain_s=drain_s)

    # --- providers ---------------------------------------------------------------------------------

    def add_provider(self, provider: Provider) -> None:
        """Make a provider known to sessions that were begun with it."""
        self.providers[provider.id] = provider

    def check_provider(self, provider_id: str, session_id: str) -> None:
        """Raise unless there is a provider to ask on behalf of a session."""
        if not provider_id:
            raise ProviderUnconfiguredError(session_id)
        if provider_id not in self.providers:
            raise ProviderUnavailableError(provider_id, f"this runtime has {', '.join(self.providers) or 'none'}")

    def windowed(self, policy: Policy) -> Policy:
        """A policy that knows how much its model takes, where that can be known."""
        if policy.window is not None:
            return policy
        return msgspec.structs.replace(policy, window=window_of(policy.model, self.windows))

    def _found(self, model: str | None, provider: Provider | None) -> Choice | None:
        if provider is not None:
            choice = Choice(provider, model or getattr(provider, "model", "") or provider.id)
        elif model is not None:
            choice = self._made_provider(model)
        else:
            return None
        self.add_provider(choice.provider)
        return choice

    def _fallback(self, given: str | tuple[Provider, str]) -> Choice:
        choice = self._made_provider(given) if isinstance(given, str) else Choice(*given)
        self.add_provider(choice.provider)
        return choice

    def _made_provider(self, model: str) -> Choice:
        """A provider that was not there before, and is closed with the runtime."""
        choice = Choice(*find_provider(model))
        self._own_providers.append(choice.provider)
        return choice

    # --- places ------------------------------------------------------------------------------------

    async def make_store(self, session_id: str, relation: Mapping[str, str], policy: Policy) -> Store:
        """The store of a session: from the factory, or the runtime's own."""
        if self._factory is None:
            return self._store
        made = self._factory(session_id, relation, policy)
        return await made if isinstance(made, Awaitable) else made

    async def place_of(self, store: Store) -> Place:
        """The engine on a store, started when it is first needed."""
        async with self._opening:
            if id(store) not in self._places:
                place = Place(self, store, self.residency, **self._options)
                place.holdfast.drive("llm", ModelDriver(self, place))
                ToolDrivers(self.tools, place, self._tool_concurrency).install()
                await place.open()
                self._places[id(store)] = place
            return self._places[id(store)]

    @property
    def places(self) -> list[Place]:
        """All stores that sessions of this runtime live in, with their engines."""
        return list(self._places.values())

    @property
    def place(self) -> Place:
        """The runtime's own store and engine; for those who need the whole of `Holdfast`."""
        try:
            return self._places[id(self._store)]
        except KeyError:
            raise HoldfastError("the runtime is not open: use it as `async with Runtime(…) as runtime`") from None
