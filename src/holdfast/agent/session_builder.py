"""`SessionBuilder`: opens an agent session in a mode, with a provider, under a policy, in a store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast.agent.errors import (
    ModeNotInstalledError,
    NotAnAgentError,
    PluginConflictError,
    ProviderMismatchError,
    StoreFactoryError,
    StoreSessionMismatchError,
)
from holdfast.agent.machine.approval import Approval, check_approval, with_layers
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.kind import KIND
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.policy import (
    ALL_TOOLS,
    MARKDOWN,
    RAW,
    RLM,
    Emission,
    Policy,
    Spec,
    change_between,
    resolve,
    spec_from,
)
from holdfast.agent.machine.prompt import PromptLayer, checked_layer
from holdfast.agent.machine.turn_input import NewConversation
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.plugins.registry import check_config
from holdfast.agent.providers.prices import session_prices
from holdfast.agent.providers.provider import own_model
from holdfast.agent.providers.retry import ProviderModel
from holdfast.agent.rlm.functions import RESERVED
from holdfast.agent.rlm.projections import Projection, check_name, of_path, of_value
from holdfast.agent.session import AgentSession, HandleSettings
from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidBudgetError, InvalidValueError, SessionExistsError, SessionNotFoundError
from holdfast.core.ids import check_id
from holdfast.core.records import Program
from holdfast.core.values import Json, checked, encode
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.providers.provider import Provider
    from holdfast.agent.runtime import Runtime


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that a host brings along, to continue from."""

    session_id: str
    messages: list[AgentMessage]
    policy: Policy | None = None


class SessionBuilder:
    """Collects what a session is opened with."""

    def __init__(self, runtime: Runtime, session_id: str) -> None:
        self._runtime = runtime
        self._id = check_id(session_id, "session id")
        self._mode: str | None = None
        self._spec = Spec()
        self._provider: ProviderModel | None = None
        self._layers: list[str | PromptLayer] = []
        self._has_prompts = False
        """Whether some of the layers are this session's own, and not those of its plugins."""
        self._plugins: dict[str, Plugin] = {}
        """With their configurations for this session."""
        self._approval: list[Approval] = []
        self._budget: Budget | None = None
        self._parent: str | None = None
        self._store: Store | None = None
        self._plugin_tools: list[str] = []
        self._projections: dict[str, Projection] = {}
        self._final_answer: str | None = None
        self._emission: Emission | None = None

    def standard(self) -> Self:
        """The model calls tools in its provider's own way."""
        return self.mode("standard")

    def rlm(self, *, emission: Emission | None = None) -> Self:
        """The model writes cells of Python, whose variables stay.

        With the emission `tool` it hands them over by calling a tool, which some models do more reliably than writing
        them into the reply (`fence`, which is the default).
        """
        if emission not in (None, "fence", "tool"):
            raise InvalidValueError("emission", f"it is 'fence' or 'tool', not {emission!r}")
        self._emission = emission
        return self.mode(RLM)

    def rlm_final_answer_format(self, guidance: str) -> Self:
        """How an rlm agent gives its final answer: `markdown` (for people), `raw` (a value), or guidance in words.

        If nothing is said, it is `markdown`, and `raw` for a child of another session.
        """
        if not guidance.strip():
            raise InvalidValueError("final answer", "it is empty; use 'markdown', 'raw', or guidance in words")
        self._final_answer = guidance
        return self

    def bind(self, name: str, value: Any) -> Self:
        """Let cells read a value under a name: text, JSON, a `Path` to a file or folder, or a `Projection`.

        It is read when a cell first uses the name, and never stored with the session: bind it each time that you open
        the session.
        """
        check_name(name, RESERVED)
        if name in self._projections:
            raise InvalidValueError("projection", f"'{name}' is bound twice")
        is_made = isinstance(value, Projection)
        self._projections[name] = value if is_made else of_path(value) if isinstance(value, Path) else of_value(value)
        return self

    def mode(self, mode: str) -> Self:
        self._mode = mode
        return self

    def provider(self, provider: Provider, model: str | None = None) -> Self:
        """Use another provider than the runtime's, with a model of its own: this one, or the one that the spec names.

        If neither is there, the provider is asked for the model that it has itself, or else for one of its own name.
        """
        self._runtime.add_provider(provider)
        self._provider = ProviderModel(provider, model or "")
        return self

    def spec(self, spec: Spec | None = None, **fields: Any) -> Self:
        """Where the policy differs from the runtime's. Replaces an earlier `spec`. Raises `InvalidValueError`."""
        self._spec = checked(spec, "spec") if spec is not None else spec_from(fields)
        return self

    def prompt(self, layer: str | PromptLayer) -> Self:
        """Add to the instructions: a text, or a layer with slots, which may drop parts of lower layers."""
        checked_layer(layer)
        self._has_prompts = True
        self._layers.append(layer)
        return self

    def plugin(self, plugin: Plugin, config: Json = None) -> Self:
        """Give the session a plugin: its instructions as a layer, its tools, its rules and its hooks.

        Its id and the configuration are recorded. Another process uses the plugin that it knows by this id.
        """
        if plugin.id in self._plugins:
            raise PluginConflictError(plugin.id, self._id)
        self._runtime.plugins.add(plugin)
        configured = plugin.configured(check_config(plugin.id, config))
        self._plugins[plugin.id] = configured
        self._layers.append(configured.instructions())
        return self

    def approval(self, approval: Approval) -> Self:
        """Add rules about tool calls to those of plugins and of the parent."""
        check_approval(approval)
        self._approval.append(approval)
        return self

    def budget(self, budget: Budget | None = None, **limits: float) -> Self:
        """What the session may spend in its whole life, its subagents included: `max_tokens`, `max_cost`,
        `max_llm_calls`, `max_elapsed_ms`.

        A turn that would spend more ends as `stopped: budget`. Money needs the prices of the models: those of
        `ModelOptions`, or those that genai-prices knows. A session keeps the budget that it begins with.
        """
        try:
            self._budget = budget if budget is not None else msgspec.convert(limits, Budget)
        except msgspec.ValidationError as error:
            raise InvalidBudgetError(str(error)) from None
        if unknown := sorted(set(limits) - set(Budget.__struct_fields__)):
            there = ", ".join(Budget.__struct_fields__)
            raise InvalidBudgetError(f"no such limit: {', '.join(unknown)} (there are: {there})")
        return self

    def parent(self, session_id: str) -> Self:
        """Make this session a child of another one."""
        self._parent = check_id(session_id, "parent session id")
        return self

    def store(self, store: Store) -> Self:
        """Use a store of its own for this session. Children do not inherit it."""
        self._store = store
        return self

    # --- opening -----------------------------------------------------------------------------------

    async def open(self) -> AgentSession:
        """Open the stored session, or begin it.

        What is recorded of a stored session holds: its provider, model, instructions, limits and plugins, whatever the
        runtime's are. What this builder names explicitly and the record says otherwise is recorded, as by `configure`,
        before the first turn or item of this handle; opening alone writes nothing. Only the provider is not changed
        like that. It is not needed before a turn is run.
        """
        await self._install_plugins()
        policy = self._new_policy()
        mount = await self._mount(policy)
        stored = await self._stored(mount)
        recorded = (stored.next_policy if stored is not None else None) or Policy()
        self._check_named_provider(recorded)
        if stored is not None and self._budget is not None:
            await self._check_budget(mount)
        if stored is None:
            return await self._start(mount, await self._with_rules(mount, policy, None), None)
        policy = await self._with_rules(mount, self._changed_policy(recorded), stored)
        return await self._session(mount, HandleSettings(recorded, change_between(recorded, policy)), stored)

    async def open_fresh(self) -> AgentSession:
        """Start over under the same id. At the next turn, the stored conversation becomes a closed branch."""
        await self._install_plugins()
        policy = self._new_policy()
        return await self._start_over(await self._mount(policy), policy, NewConversation())

    async def open_with_state(self, state: AgentState) -> AgentSession:
        """Continue from a conversation that the host provides; it replaces the stored one at the next turn."""
        await self._install_plugins()
        policy = self._new_policy()
        mount = await self._mount(policy)
        if state.session_id != self._id:
            raise StoreSessionMismatchError(state.session_id, self._id)
        if state.policy is not None:
            policy = self._with_recorded_provider(state.policy, policy)
        return await self._start_over(mount, policy, NewConversation(state.messages), state.policy)

    # --- policies ----------------------------------------------------------------------------------

    def _new_policy(self) -> Policy:
        """The policy of a session that begins, or begins anew: the runtime's, with what this builder names."""
        runtime = self._runtime
        policy = resolve(self._spec_with_provider(), runtime.policy)
        mode = self._checked_mode(runtime.policy.mode)
        policy = msgspec.structs.replace(
            self._prompted(policy),
            mode=mode,
            projections=self._described_projections(),
            final_answer=self._answer_format("") if mode == RLM else "",
            emission=self._emission or "fence",
            approval=self._rules(),
            plugins=self._plugin_configs(),
            deadlines=runtime.tools.deadlines,
        )
        return runtime.windowed(self._with_plugin_tools(policy))

    def _changed_policy(self, recorded: Policy) -> Policy:
        """The recorded policy with what this builder names. A session without a provider yet gets the runtime's."""
        runtime, spec = self._runtime, self._spec_with_provider()
        policy = resolve(spec, runtime.provided(recorded))
        if self._has_prompts or spec.instructions is not None:
            base = resolve(spec, runtime.policy)
            policy = msgspec.structs.replace(policy, instructions=base.instructions, prompt=base.prompt)
            policy = self._prompted(policy)
        else:
            added = [each.instructions() for each in self._plugins.values() if each.id not in recorded.plugins]
            policy = msgspec.structs.replace(policy, instructions=_joined([policy.instructions, *added]))
        mode = self._checked_mode(recorded.mode)
        policy = msgspec.structs.replace(
            policy,
            mode=mode,
            projections={**recorded.projections, **self._described_projections()},
            final_answer=self._answer_format(recorded.final_answer) if mode == RLM else "",
            emission=self._emission or recorded.emission,
            approval=self._rules(),
            plugins={**recorded.plugins, **self._plugin_configs()},
            deadlines={**recorded.deadlines, **runtime.tools.deadlines},
        )
        return runtime.windowed(self._with_plugin_tools(policy))

    def _checked_mode(self, otherwise: str) -> str:
        if self._mode is not None and self._mode not in self._runtime.modes:
            raise ModeNotInstalledError(self._mode, sorted(self._runtime.modes))
        return self._mode or otherwise

    def _described_projections(self) -> dict[str, str]:
        return {name: each.about for name, each in self._projections.items()}

    def _answer_format(self, recorded: str) -> str:
        return self._final_answer or recorded or (MARKDOWN if self._parent is None else RAW)

    def _prompted(self, policy: Policy) -> Policy:
        """The policy with the instructions of all plugins and the prompts of this builder on top of its own."""
        everywhere = [each.instructions() for each in self._all_plugins() if each.id not in self._plugins]
        texts = [layer for layer in self._layers if isinstance(layer, str)]
        layers = [layer for layer in self._layers if isinstance(layer, PromptLayer)]
        instructions = _joined([policy.instructions, *everywhere, *texts])
        return msgspec.structs.replace(policy, instructions=instructions, prompt=[*policy.prompt, *layers])

    def _rules(self) -> list[Approval]:
        """The approval rules that are named now: by plugins of the runtime and of the session, and by this builder."""
        approval = _approval_layers(self._runtime.plugins.everywhere.values(), "runtime")
        approval += _approval_layers(self._plugins.values(), "")
        return approval + [msgspec.structs.replace(rules, origin="") for rules in self._approval]

    def _plugin_configs(self) -> dict[str, Json]:
        return {plugin_id: plugin.config for plugin_id, plugin in self._plugins.items()}

    async def _install_plugins(self) -> None:
        """Add the tools of the plugins to the runtime."""
        installed = [await self._runtime.plugins.install(each) for each in self._all_plugins()]
        self._plugin_tools = [name for names in installed for name in names]

    def _with_plugin_tools(self, policy: Policy) -> Policy:
        tools = [ALL_TOOLS] if policy.tools is None else policy.tools
        added = [name for name in self._plugin_tools if name not in tools]
        return msgspec.structs.replace(policy, tools=[*tools, *added]) if added else policy

    def _spec_with_provider(self) -> Spec:
        """The spec with the provider that was given as an object, and a model of that provider."""
        if self._provider is None:
            return self._spec
        provider = self._provider.provider
        model = self._provider.model or self._spec.model or own_model(provider)
        return msgspec.structs.replace(self._spec, provider=provider.id, model=model)

    def _all_plugins(self) -> list[Plugin]:
        """The plugins of every session and this session's own; its own configuration of a plugin wins."""
        return list({**self._runtime.plugins.everywhere, **self._plugins}.values())

    # --- inside ------------------------------------------------------------------------------------

    async def _with_rules(
        self, mount: MountedStore, policy: Policy, stored: Conversation | None, brought: Policy | None = None
    ) -> Policy:
        """The policy with the recorded approval rules and those of the parent added.

        A child may do no more than its parent. Plugins whose code decides about calls become the session's, too.
        """
        before = (stored.policy if stored is not None else None) or brought or Policy()
        above = await self._parent_policy(mount, self._parent or (stored.parent if stored is not None else None))
        inherited = [msgspec.structs.replace(layer, origin="parent") for layer in above.approval]
        layers = with_layers(before.approval, [*inherited, *policy.approval])
        known, named = {**above.plugins, **before.plugins}, {*self._runtime.plugins.everywhere, *policy.plugins}
        deciding = dict.fromkeys(layer.callback for layer in layers if layer.callback and layer.callback not in named)
        plugins = {**policy.plugins, **{plugin_id: known.get(plugin_id) for plugin_id in deciding}}
        return msgspec.structs.replace(policy, approval=layers, plugins=plugins)

    async def _parent_policy(self, mount: MountedStore, parent: str | None) -> Policy:
        if parent is not None:
            for each in (mount, *self._runtime.mounts):
                with contextlib.suppress(SessionNotFoundError):
                    return (await each.conversations.get(parent, fresh=True)).policy or Policy()
        return Policy()

    async def _mount(self, policy: Policy) -> MountedStore:
        if self._store is not None:
            return await self._runtime.mount_of(self._store)
        try:
            store = await self._runtime.make_store(self._id, self._relation(), policy)
        except Exception as error:
            raise StoreFactoryError(self._id, f"{type(error).__name__}: {error}") from error
        return await self._runtime.mount_of(store)

    def _relation(self) -> Mapping[str, str]:
        return {"kind": "child", "parent": self._parent} if self._parent is not None else {"kind": "root"}

    async def _stored(self, mount: MountedStore) -> Conversation | None:
        """The stored conversation, or None if there is no such session."""
        try:
            row = await mount.store.session(self._id)
        except SessionNotFoundError as error:
            if type(error) is not SessionNotFoundError:
                raise  # one that was deleted
            return None
        if row.summary.program_kind != KIND:
            raise NotAnAgentError(self._id, row.summary.program_kind)
        return await mount.conversations.get(self._id, fresh=True)

    async def _check_budget(self, mount: MountedStore) -> None:
        """Raise if the stored session has another budget than this builder names."""
        started = (await mount.holdfast.session(self._id)).started
        recorded = started.budget if started is not None else None
        if recorded != self._budget:
            had = "none" if recorded is None else encode(recorded).decode()
            why = f"session '{self._id}' keeps the budget that it began with ({had})"
            raise InvalidBudgetError(why)

    def _check_named_provider(self, recorded: Policy) -> None:
        """Raise if this builder names another provider than the recorded one, or one that is not there."""
        named = self._spec_with_provider().provider
        if named is not None and recorded.provider and named != recorded.provider:
            raise ProviderMismatchError(recorded.provider, named, self._id)
        if named is not None:
            self._runtime.check_provider(named, self._id)

    def _with_recorded_provider(self, recorded: Policy, policy: Policy) -> Policy:
        """The policy with the provider that a state is recorded with."""
        self._check_named_provider(recorded)
        if not recorded.provider or recorded.provider == policy.provider:
            return policy
        model = self._spec.model or recorded.model  # the runtime's model belongs to the runtime's provider
        return msgspec.structs.replace(policy, provider=recorded.provider, model=model)

    async def _start_over(
        self, mount: MountedStore, policy: Policy, begin: NewConversation, brought: Policy | None = None
    ) -> AgentSession:
        stored = await self._stored(mount)
        policy = await self._with_rules(mount, policy, stored, brought)
        if stored is None:
            return await self._start(mount, policy, begin if begin.messages else None)
        recorded = stored.next_policy or Policy()
        return await self._session(mount, HandleSettings(recorded, begin=begin.under(policy)), stored)

    async def _start(self, mount: MountedStore, policy: Policy, begin: NewConversation | None) -> AgentSession:
        ctx: dict[str, Any] = {"policy": msgspec.to_builtins(policy)}
        if self._parent is not None:
            ctx["parent"] = self._parent
        program = Program(kind=KIND, name=self._runtime.options.name)
        try:
            budget = self._budget or self._runtime.options.budget
            prices = session_prices(policy.model, self._runtime.models.prices, budget)
            await mount.holdfast.start(program, ctx=ctx, id=self._id, prices=prices, budget=budget, wait=0)
        except SessionExistsError:  # another process was faster
            return await self.open() if begin is None else await self._start_over(mount, policy, begin)
        return await self._session(mount, HandleSettings(policy, begin=begin), None)

    async def _session(
        self, mount: MountedStore, settings: HandleSettings, stored: Conversation | None
    ) -> AgentSession:
        parent = self._parent or (stored.parent if stored is not None else None)
        recorded = self._runtime.plugins.recorded(settings.recorded.plugins)
        plugins = {**recorded, **{plugin.id: plugin for plugin in self._all_plugins()}}
        for plugin in self._plugins.values():
            self._runtime.plugins.assign(self._id, plugin.source or plugin)
        if self._projections:
            self._runtime.projections.setdefault(self._id, {}).update(self._projections)
        if settings.recorded.mode == RLM:
            mount.agent_kind.cells.prepare()  # the first turn need not wait for a worker
        session = AgentSession(self._runtime, mount, self._id, settings, parent=parent, plugins=plugins)
        await session.loaded()  # tells its plugins
        return session


def _approval_layers(plugins: Iterable[Plugin], origin: str) -> list[Approval]:
    """The rules of plugins, marked with their origin. Raises `InvalidValueError` if they are invalid."""
    layers = [rules for plugin in plugins if (rules := plugin.approval()) is not None]
    for rules in layers:
        check_approval(rules)
    return [msgspec.structs.replace(rules, origin=origin) for rules in layers]


def _joined(texts: Iterable[str]) -> str:
    """Parts of the instructions as one text."""
    return "\n\n".join(text for text in texts if text)
