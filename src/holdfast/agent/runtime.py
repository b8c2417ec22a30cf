"""`Runtime`: made once in a process; opens agent sessions, calls models, and runs tools."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from holdfast.agent.commands import HostCommands
from holdfast.agent.errors import ModeNotInstalledError, ProviderUnavailableError, ProviderUnconfiguredError
from holdfast.agent.machine.policy import RLM, Policy, Spec, resolve, spec_from
from holdfast.agent.machine.program import AgentKind
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.agent.model_driver import ModelDriver
from holdfast.agent.mounted_store import MountedStore
from holdfast.agent.observer import Observer
from holdfast.agent.offers import MountOffers
from holdfast.agent.plugins.approve import Approve
from holdfast.agent.plugins.output_budget import OutputBudget
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.plugins.registry import Plugins
from holdfast.agent.processes.processes import Processes
from holdfast.agent.providers.context_windows import KNOWN_WINDOWS, window_of
from holdfast.agent.providers.model_names import find_provider
from holdfast.agent.providers.provider import Provider, own_model
from holdfast.agent.providers.retry import ProviderModel
from holdfast.agent.rlm.cell_host import CellHost
from holdfast.agent.rlm.projections import Projection
from holdfast.agent.runtime_options import DEFAULT_STORE, ModelOptions, RuntimeOptions
from holdfast.agent.session_builder import SessionBuilder
from holdfast.agent.settings_report import SettingsReport, settings_report
from holdfast.agent.subagents.registry import Agentish, Subagents
from holdfast.agent.subagents.starts import SubagentStarts
from holdfast.agent.tools.catalog import Catalog, Toolish
from holdfast.agent.tools.drivers import ToolDrivers
from holdfast.agent.triggers.triggers import Triggers
from holdfast.agent.worker import DEFAULT_TURNS, DRAIN_S, Worker
from holdfast.core.errors import HoldfastError
from holdfast.store import open_store
from holdfast.store.contract import Store


class Runtime:
    """Agent sessions in one process: `async with Runtime("sqlite:///chat.db", model="…") as runtime: …`."""

    def __init__(
        self,
        store: str | Store = DEFAULT_STORE,
        *,
        model: str | None = None,
        provider: Provider | None = None,
        tools: Sequence[Toolish] = (),
        plugins: Sequence[Plugin] = (),
        commands: Sequence[Callable[..., Any]] = (),
        agents: Sequence[Agentish] = (),
        instructions: str = "",
        prompt: Sequence[PromptLayer] = (),
        spec: Spec | Mapping[str, Any] | None = None,
        mode: str = "standard",
        models: ModelOptions | None = None,
        options: RuntimeOptions | None = None,
        **engine: Any,
    ) -> None:
        """`model` names a model, or one of `provider`; `tools`, `plugins` and `prompt` are those of every session, and
        `agents` the subagents that they may delegate to: definitions, or files and directories that have them.
        `commands` are functions that are called by name between turns: by `session.commands()`, or `/name` in a chat.

        `spec` is what sessions inherit where they do not say otherwise: limits, generation, compaction and the like.
        `mode` is the mode of sessions that do not name one. `models` says how models are called, and `options` how
        sessions are kept. Anything else is an option of `Holdfast`, such as `upkeep` and `lease_ms`.
        """
        self.models = models or ModelOptions()
        self.options = options or RuntimeOptions()
        self.modes = {"standard", RLM}
        self.projections: dict[str, dict[str, Projection]] = {}
        """Data of this process that cells can read: by session, and then by name."""
        self.providers: dict[str, Provider] = {}
        self.named_models: dict[str, ProviderModel] = {}
        """By the names that strategies can be assigned to."""
        self._mounts: dict[int, MountedStore] = {}
        self._own_providers: list[Provider] = []
        self.tools = Catalog(tools)
        self.subagents = Subagents(agents)
        if self.subagents and not any(plugin.id == OutputBudget.id for plugin in plugins):
            plugins = [*plugins, OutputBudget()]  # with it, a model reads the rest of a result that was cut
        if commands:
            plugins = [*plugins, HostCommands(commands)]
        self.plugins = Plugins(self.tools, plugins)
        self.plugins.add(Approve())  # its rules are recorded with the sessions that have it; nothing is needed here
        self.windows = {**KNOWN_WINDOWS, **self.models.windows}
        found = self._found(model, provider)
        self.fallbacks = [self._fallback(each) for each in self.models.fallbacks]
        base = Policy(
            provider=found.provider.id if found is not None else "",
            model=found.model if found is not None else "",
            instructions=instructions,
            prompt=list(prompt),
            mode=mode,
        )
        if mode not in self.modes:
            raise ModeNotInstalledError(mode, sorted(self.modes))
        self.defaults = spec if isinstance(spec, Spec) else spec_from(spec or {})
        """What sessions inherit, as it was given."""
        self.policy = resolve(self.defaults, base)
        self._arguments = {
            "store": store,
            "model": model,
            "provider": provider,
            "instructions": instructions or None,
        }
        self._engine_options = engine
        self._store = open_store(store) if isinstance(store, str) else store
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            await self.tools.refresh()
            await self._check_subagents()
            await self.mount_of(self._store)
        except BaseException:
            await self.tools.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        mounts, self._mounts = list(self._mounts.values()), {}
        for mount in mounts:
            await mount.close()
        for provider in self._own_providers:
            if (aclose := getattr(provider, "aclose", None)) is not None:
                await aclose()
        await self.tools.aclose()

    def session(self, session_id: str) -> SessionBuilder:
        """A builder that opens a session: `await runtime.session("chat-1").open()`."""
        return SessionBuilder(self, session_id)

    def observe(self, session_id: str, *, entries: bool = False) -> Observer:
        """An observer of any session in the runtime's own store, of any kind and owner.

        With `entries`, its events are the journal entries as they are.
        """
        return self.mount.observers.observe(session_id, entries=entries)

    def describe(self) -> SettingsReport:
        """Every setting, and where it comes from. Prints as a table."""
        return settings_report(self, self._arguments)

    def work(self, turns: int = DEFAULT_TURNS, *, drain_s: float = DRAIN_S) -> Worker:
        """A worker on the runtime's own store: it begins turns with the waiting inbox items of all its sessions.

        `async with runtime.work(): …`, or `await runtime.work().run()` until its `stop` is called.
        """
        return Worker(self.mount.holdfast, turns, drain_s)

    @property
    def processes(self) -> Processes:
        """The background work on the runtime's own store, of all sessions and of none."""
        return self.mount.processes

    @property
    def triggers(self) -> Triggers:
        """The events, triggers and schedules on the runtime's own store."""
        return self.mount.triggers

    async def _check_subagents(self) -> None:
        """Raise `AgentDefinitionError` for a subagent that cannot be used here."""
        if not self.subagents:
            return
        brought = [await self.plugins.install(plugin) for plugin in self.plugins.everywhere.values()]
        self.subagents.check(self.modes, [*(tool.name for tool in self.tools), *itertools.chain(*brought)])
        for definition in self.subagents.values():
            if definition.model is not None:
                self.model_of(definition.model, self.policy.provider)

    # --- providers ---------------------------------------------------------------------------------

    def add_provider(self, provider: Provider) -> None:
        """Register a provider for sessions that are recorded with it."""
        self.providers[provider.id] = provider
        for mount in self._mounts.values():
            mount.holdfast.look_again()

    def add_model(self, name: str, provider: Provider, model: str) -> None:
        """Answer the questions of strategies that are assigned to a model of this name."""
        self.named_models[name] = ProviderModel(provider, model)
        self.add_provider(provider)

    def check_provider(self, provider_id: str, session_id: str) -> None:
        """Raise unless the provider of a session is available."""
        if not provider_id:
            raise ProviderUnconfiguredError(session_id)
        if provider_id not in self.providers:
            why = f"the providers of this runtime are: {', '.join(self.providers) or 'none'}"
            raise ProviderUnavailableError(provider_id, why, session_id)

    def completed(self, spec: Spec, base: Policy) -> Spec:
        """The spec with what follows from it here: the own model of a provider that it changes to, and the context
        window of a model that it changes to."""
        model = spec.model
        if model is None and spec.provider not in (None, base.provider) and spec.provider in self.providers:
            model = own_model(self.providers[spec.provider])
        window = spec.window
        if window is None and model not in (None, base.model):
            window = window_of(model, self.windows)
        return msgspec.structs.replace(spec, model=model, window=window)

    def provided(self, policy: Policy) -> Policy:
        """The policy of a session that was begun without a provider, with the runtime's own; any other as it is."""
        if policy.provider:
            return policy
        own = self.policy
        return self.windowed(msgspec.structs.replace(policy, provider=own.provider, model=policy.model or own.model))

    def windowed(self, policy: Policy) -> Policy:
        """The policy with the context window of its model, if that is known."""
        if policy.window is not None:
            return policy
        return msgspec.structs.replace(policy, window=window_of(policy.model, self.windows))

    def model_of(self, text: str, provider_id: str) -> ProviderModel:
        """The model that a text names: a known one, `SERVICE:MODEL`, or else one of this provider."""
        if text not in self.named_models:
            if provider_id in self.providers and not (":" in text or text == "test"):
                return ProviderModel(self.providers[provider_id], text)
            choice = self.named_models[text] = self._made_provider(text)
            self.add_provider(choice.provider)
        return self.named_models[text]

    def _found(self, model: str | None, provider: Provider | None) -> ProviderModel | None:
        if provider is not None:
            choice = ProviderModel(provider, model or own_model(provider))
        elif model is not None:
            choice = self.named_models[model] = self._made_provider(model)
        else:
            return None
        self.add_provider(choice.provider)
        return choice

    def _fallback(self, model: str | tuple[Provider, str]) -> ProviderModel:
        choice = self._made_provider(model) if isinstance(model, str) else ProviderModel(*model)
        self.add_provider(choice.provider)
        return choice

    def _made_provider(self, model: str) -> ProviderModel:
        """A new provider, which is closed with the runtime."""
        choice = ProviderModel(*find_provider(model))
        self._own_providers.append(choice.provider)
        return choice

    # --- stores ------------------------------------------------------------------------------------

    async def make_store(self, session_id: str, relation: Mapping[str, str], policy: Policy) -> Store:
        """The store of a session: from the store factory, or the runtime's own."""
        if self.options.store_factory is None:
            return self._store
        made = self.options.store_factory(session_id, relation, policy)
        return await made if isinstance(made, Awaitable) else made

    async def mount_of(self, store: Store) -> MountedStore:
        """A store with its engine, started when it is first needed."""
        async with self._opening:
            if id(store) not in self._mounts:
                options = dict(self._engine_options)
                if store is not self._store:
                    options.pop("dispatch", None)  # it brings work to one engine, that of the runtime's own store
                mount = MountedStore(self, store, self.options.residency, **options)
                mount.agent_kind = AgentKind(CellHost(self, mount))
                mount.holdfast.add_kind(mount.agent_kind)
                mount.holdfast.drive("llm", ModelDriver(self, mount))
                tools = ToolDrivers(self, mount)
                tools.install()
                offers = MountOffers(self, tools)
                mount.holdfast.offer(offers)
                mount.engine.owner.permits.name_model = offers.model_names
                if self.subagents:
                    mount.engine.owner.start_agent = SubagentStarts(self, mount)
                await mount.open()
                self._mounts[id(store)] = mount
            return self._mounts[id(store)]

    @property
    def mounts(self) -> list[MountedStore]:
        """All stores of this runtime's sessions, with their engines."""
        return list(self._mounts.values())

    @property
    def mount(self) -> MountedStore:
        """The runtime's own store and engine, for callers that need all of `Holdfast`."""
        try:
            return self._mounts[id(self._store)]
        except KeyError:
            raise HoldfastError("the runtime is not open: use it as `async with Runtime(…) as runtime`") from None
