"""What this process holds of a session: the overlay of its context, its tool catalog, its plugins and its prompt.

All of it can be lost, and is rebuilt from the session's policy and from what the host provides. What is costly to build
is kept until something it depends on changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from holdfast.agent.errors import PluginError
from holdfast.agent.live_events import ends_turn
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.delegation import delegated_result
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.mailbox import EnqueueMessage
from holdfast.agent.machine.messages import ContentBlock, TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.prompt import Contribution, PromptLayer, layer_of
from holdfast.agent.plugins.hooks import Hooks
from holdfast.agent.plugins.plugin import Plugin, PluginSession
from holdfast.agent.plugins.registry import Wanted
from holdfast.agent.prompt_cache import PromptCache
from holdfast.agent.results import result_of
from holdfast.agent.tools.catalog import AnyTool, Catalog, DelegateTool, Toolish
from holdfast.agent.tools.results import full_result
from holdfast.agent.tools.session_catalog import SessionCatalog, select_tools
from holdfast.agent.tools.tool import Tool
from holdfast.core.ids import new_item_id
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, Entry
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime

log = logging.getLogger("holdfast.plugins")

KEPT_CATALOGS = 8
"""Catalogs kept for a session: a plugin that switches between a few does not rebuild them each time."""


class _CatalogKey(msgspec.Struct, frozen=True):
    """Everything that a catalog depends on, as values that change with it."""

    include_base: bool
    overlay: int
    generation: int
    plugins: tuple[object, ...]
    """The revisions of the plugins, and the access rules of the session."""


@dataclass(frozen=True)
class SessionContext:
    """What the plugins of a session may use of the runtime."""

    session_id: str
    mount: MountedStore
    publish: Callable[[LiveEvent], None]
    """Shows an event to watchers of the session, without waiting for them."""

    async def conversation(self) -> Conversation:
        """The conversation so far."""
        return await self.mount.conversations.get(self.session_id)

    async def inject(self, content: str | Sequence[ContentBlock], *, id: str | None = None) -> str:
        """Say something to the session as its input: in the running turn at its next safe point, else in a turn of its
        own, once somebody drains the inbox. Returns the item's id; the same id again is the same item.
        """
        item_id = id or new_item_id(self.mount.engine.owner.random.randbytes)
        blocks: list[ContentBlock] = [TextBlock(content)] if isinstance(content, str) else list(content)
        item = Item(id=item_id, content=blocks, delivery="boundary", slot="join")
        await self.mount.holdfast.send(self.session_id, EnqueueMessage(item, "plugin"))
        return item_id

    async def output(self, query: str) -> Json:
        """The whole output of a tool of this session; None if the model saw all of it, or there is no such call.

        `query` is the query of the call in this session's journal, so no output of another session can be read.
        """
        conversation = await self.mount.conversations.whole(self.session_id)
        calls = (call for turn in conversation.turns.values() for call in turn.calls)
        answered = next((call.position for call in calls if call.query == query and call.position), None)
        if answered is None:
            return None
        (entry,) = await self.mount.store.read(self.session_id, answered - 1, 1)
        match entry.record:
            case AnsweredRecord(answer=Value(value=value)):
                delegated = delegated_result(value)
                return full_result(value) if delegated is None else delegated
            case _:
                return None


class LoadedSession:
    """One session, as this process holds it."""

    def __init__(self, runtime: Runtime, mount: MountedStore, session_id: str) -> None:
        self.session_id = session_id
        self.services = SessionContext(session_id, mount, self._publish)
        self.prompts = PromptCache()
        self.hooks = Hooks(session_id, [], self._publish)
        self._runtime = runtime
        self.parent: str | None = None
        """The session on whose behalf this one runs."""
        self._methods: dict[str, Tool] = {}
        """Tools that are methods of this session's own plugins; the runtime has others of the same name."""
        self._built: Wanted | None = None
        """What the plugins were built from."""
        self._include_base = True
        self._overlay = Catalog()
        self._overlay_given: tuple[Toolish, ...] = ()
        self._overlay_revision = 0
        self._contributions: tuple[Contribution, ...] = ()
        self._holders: WeakSet[object] = WeakSet()
        """The open handles that have set a context."""
        self._releasing: asyncio.Task[None] | None = None
        self._is_released_after_turn = False
        self._catalogs: OrderedDict[_CatalogKey, SessionCatalog] = OrderedDict()
        self._prompt_layers: tuple[object, tuple[PromptLayer, ...]] | None = None
        self._loading = asyncio.Lock()
        self.notifying: asyncio.Task[None] | None = None
        """Calls `turn_ended` of the plugins."""
        self.builds = 0
        """How often a catalog was built."""

    # --- context -----------------------------------------------------------------------------------

    async def set_context(
        self, tools: Sequence[Toolish] = (), prompt: Sequence[Contribution] = (), *, include_base: bool = True
    ) -> None:
        """Set tools and prompt contributions of the session's own, on top of the runtime's or in place of them.

        The same objects again are no change. If a tool cannot be added, everything stays as it was.
        """
        same = len(tools) == len(self._overlay_given) and all(
            one is other for one, other in zip(tools, self._overlay_given, strict=True)
        )
        if same and include_base == self._include_base and tuple(prompt) == self._contributions:
            return
        before = self._overlay
        overlay = before if same else await self._composed(tools, include_base=include_base)
        self._overlay, self._overlay_given = overlay, tuple(tools)
        self._include_base, self._contributions = include_base, tuple(prompt)
        self._overlay_revision += 1
        self._catalogs.clear()
        if overlay is not before:
            await before.aclose(beside=overlay)

    def hold(self, handle: object) -> None:
        """Keep the context while a handle is open, and the session in memory with it."""
        self._is_released_after_turn = False
        self._holders.add(handle)

    async def let_go(self, handle: object) -> None:
        """A handle was closed. After the last one, the context is released, once no turn is running."""
        if handle not in self._holders:
            return
        self._holders.discard(handle)
        if self._holders:
            return
        if (await self.services.conversation()).running is not None:
            self._is_released_after_turn = True
        else:
            await self.set_context()

    async def refresh(self) -> None:
        """Ask the tool providers of the overlay and of the runtime which tools they have now."""
        await self._runtime.tools.refresh()
        await self._overlay.refresh()
        self._catalogs.clear()

    def invalidate(self) -> None:
        """Rebuild catalogs and prompt when they are needed next."""
        self._catalogs.clear()
        self.prompts.clear()
        self._prompt_layers = None

    async def _composed(self, tools: Sequence[Toolish], *, include_base: bool) -> Catalog:
        try:
            overlay = Catalog()
            overlay.add(*tools)
            await overlay.refresh()
            if include_base:
                overlay.check_beside(self._runtime.tools)
        except Exception as error:
            raise PluginError("", "context", self.session_id, str(error)) from error
        return overlay

    # --- tools -------------------------------------------------------------------------------------

    def tool(self, name: str) -> AnyTool | None:
        """A tool by its name, the session's own first; None if there is none."""
        own = self._overlay.get(name)
        if own is not None or not self._include_base:
            return own
        return self._runtime.tools.get(name)

    @property
    def own_tools(self) -> Mapping[str, Tool]:
        """The plugin tools, by name, that differ between sessions."""
        return self._methods

    def catalog(self, policy: Policy) -> SessionCatalog:
        """The tools that the model has. The same object until something changes."""
        delegate = self._runtime.subagents.tool(policy.delegation)
        listed = "" if delegate is None else delegate.description
        access = (None if policy.tools is None else tuple(policy.tools), tuple(policy.deny), listed)
        generation = self._runtime.tools.generation + self._overlay.generation
        revisions = self.hooks.revision if self.hooks.plugins else ()
        key = _CatalogKey(self._include_base, self._overlay_revision, generation, (*revisions, access))
        found = self._catalogs.get(key)
        if found is None:
            found = self._catalogs[key] = self._build(policy, delegate)
            while len(self._catalogs) > KEPT_CATALOGS:
                self._catalogs.popitem(last=False)
        else:
            self._catalogs.move_to_end(key)
        return found

    def _build(self, policy: Policy, delegate: DelegateTool | None) -> SessionCatalog:
        self.builds += 1
        base = self._runtime.tools if self._include_base else Catalog()
        entries = select_tools(base, self._overlay, policy.tools, policy.deny, delegate)
        made = SessionCatalog(entries)
        return made.with_summaries(self.hooks.catalog(made.summaries))

    # --- prompt ------------------------------------------------------------------------------------

    def prompt(self, policy: Policy, turn: PromptLayer | None, tools: SessionCatalog) -> str:
        """The system text: the layers of the runtime, the session, the plugins and the turn."""
        key = (policy, tools)  # another catalog is made whenever the plugins or the context change
        if self._prompt_layers is None or self._prompt_layers[0] != key:
            own = layer_of(*self.hooks.prompt(), *self._contributions)
            layers = (layer_of(policy.instructions), *policy.prompt, own)
            self._prompt_layers = (key, tuple(layer for layer in layers if layer.slots or layer.template))
        layers = self._prompt_layers[1]
        return self.prompts.render(layers if turn is None else (*layers, turn), tools.names)

    # --- plugins -----------------------------------------------------------------------------------

    async def load_plugins(self, policy: Policy) -> None:
        """Build the plugins that the session is recorded with and those that every session has, if they changed."""
        wanted = self._runtime.plugins.wanted(self.session_id, self.parent, policy.plugins)
        if wanted == self._built:
            return
        async with self._loading:  # tool calls arrive concurrently
            if wanted != self._built:
                await self._build_plugins(wanted)

    async def _build_plugins(self, wanted: Wanted) -> None:
        await self.hooks.closed()
        info = PluginSession(session_id=self.session_id, parent=self.parent, services=self.services)
        built: list[Plugin] = []
        for plugin_id, (source, config) in wanted.items():
            plugin = await self._runtime.plugins.built(plugin_id, source, info, config)
            if plugin is not None:
                built.append(plugin)
        own = (self._runtime.plugins.own_tool(each) for plugin in built for each in plugin.tools())
        self._methods = {tool.name: tool for tool in own if tool is not None}
        self._built, self.hooks = wanted, Hooks(self.session_id, built, self._publish)
        self.invalidate()  # plugins of the same revision may contribute something else under another configuration
        await self.hooks.opened()

    # --- what happens to the session ----------------------------------------------------------------

    @property
    def is_pinned(self) -> bool:
        """Whether a host that has set a context, which nothing else knows, has not closed the session."""
        return bool(self._holders)

    def committed(self, entries: Sequence[Entry]) -> None:
        """Tell plugins of entries that this process has just made durable, and of the end of a turn."""
        if self._is_released_after_turn and any(map(ends_turn, entries)):
            self._is_released_after_turn = False
            self._releasing = asyncio.get_running_loop().create_task(self.set_context())
        if not self.hooks.plugins:
            return
        self.hooks.committed(entries)
        if self.hooks.has("turn_ended") and any(map(ends_turn, entries)):
            self.notifying = asyncio.get_running_loop().create_task(self._notify_ended(entries, self.notifying))
            self.notifying.add_done_callback(self._notified)

    async def plugins_notified(self) -> None:
        """Wait until plugins know of the turns that have ended here."""
        if self.notifying is not None:
            await asyncio.shield(self.notifying)

    async def close(self) -> None:
        """Release the session, and what its own tool providers hold."""
        if self.notifying is not None:
            await asyncio.gather(self.notifying, return_exceptions=True)
        if self._releasing is not None:
            await asyncio.gather(self._releasing, return_exceptions=True)
        await self.hooks.closed()
        await self._overlay.aclose()

    async def _notify_ended(self, entries: Sequence[Entry], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        conversation = await self.services.conversation()
        ended = (turn for turn in conversation.turns.backwards() if turn.ended is not None)
        recent = takewhile(lambda turn: turn.ended_position >= entries[0].position, ended)
        for turn in reversed([turn for turn in recent if turn.ended_position <= entries[-1].position]):
            await self.hooks.turn_ended(result_of(turn, replayed=False))

    def _notified(self, done: asyncio.Task[None]) -> None:
        if self.notifying is done:
            self.notifying = None
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("session '%s': its plugins were not told of a turn's end", self.session_id, exc_info=error)

    def _publish(self, event: Any) -> None:
        self.services.mount.publish_soon(self.session_id, event)


class LoadedSessions:
    """The contexts of the agents of one engine. Nothing is kept here: a context hangs on its live session."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._engine = mount.holdfast.engine
        self._engine.owner.attachments[LoadedSession] = lambda session_id: LoadedSession(runtime, mount, session_id)

    def peek(self, session_id: str) -> LoadedSession | None:
        """A session if it is loaded already."""
        live = self._engine.alive(session_id)
        return None if live is None else live.attachments.peek(LoadedSession)

    async def get(self, session_id: str, policy: Policy, parent: str | None = None) -> LoadedSession:
        """A session with its plugins, loaded if need be."""
        loaded = self._engine.live(session_id).attachments.get(LoadedSession)
        loaded.parent = loaded.parent or parent
        await loaded.load_plugins(policy)
        return loaded

    async def at_work(self, conversation: Conversation, policy: Policy | None = None) -> LoadedSession:
        """A session whose turn is about to be worked on; its plugins have been told. Raises `AbortTurn`.

        `policy` is that of the conversation, for a caller who has it.
        """
        policy = policy or conversation.policy or Policy()
        loaded = await self.get(conversation.session_id, policy, conversation.parent)
        if loaded.hooks.plugins and conversation.running is not None:
            await loaded.hooks.turn_started(conversation.running)
        return loaded

    async def plugins_notified(self, session_id: str) -> None:
        """Wait until plugins know of the turns of a session that have ended here."""
        live = self._engine.alive(session_id)
        loaded = None if live is None else live.attachments.peek(LoadedSession)
        if loaded is not None and loaded.notifying is not None:
            await loaded.plugins_notified()
