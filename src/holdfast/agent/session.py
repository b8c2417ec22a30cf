"""`AgentSession`: an open agent session. It runs turns, reads the conversation, and changes the policy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.admin import SessionAdmin
from holdfast.agent.cancellation import CancelReceipt, CancelRequest, cancel
from holdfast.agent.commands import PluginActions, SessionCommands
from holdfast.agent.errors import ModeNotInstalledError, ProviderMismatchError, SessionEndedError, UnknownTurnError
from holdfast.agent.inbox_drains import HandDrain, draining
from holdfast.agent.loaded_session import LoadedSession
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Command, Item
from holdfast.agent.machine.mailbox import ConfigureMessage, WithdrawMessage
from holdfast.agent.machine.policy import Policy, PolicyChange, Spec, change_from, resolve, spec_from
from holdfast.agent.machine.program import COMPACT
from holdfast.agent.machine.prompt import Contribution, PromptLayer, checked_layer
from holdfast.agent.machine.turn_input import NewConversation
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.observer import Observer
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.processes.processes import SessionProcesses
from holdfast.agent.queue import EnqueueBuilder, ItemOutcome, QueuedTurns, outcome_of
from holdfast.agent.results import ReadView, TurnResult, UsageReport, result_of, session_report, view_of
from holdfast.agent.subagents.tree import SessionNode, session_tree
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.agent.triggers.session_triggers import SessionTriggers
from holdfast.agent.turn_builder import Input, TurnBuilder
from holdfast.agent.turn_phases import PhaseProbe
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import check_id
from holdfast.core.queries import Failure, Value
from holdfast.core.values import Json, checked

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.rlm.execution import CodeExecutionContext
    from holdfast.agent.runtime import Runtime


@dataclass
class HandleSettings:
    """What a handle knows of the policy, and adds to it."""

    recorded: Policy
    """The policy when the handle was opened."""
    change: PolicyChange | None = None
    """Explicit settings that the record does not have yet."""
    begin: NewConversation | None = None
    """What the conversation starts over with at the next turn, if it does."""


class AgentSession:
    """A handle on a session. Lease and position keep it apart from other handles, here or in other processes."""

    def __init__(
        self,
        runtime: Runtime,
        mount: MountedStore,
        session_id: str,
        settings: HandleSettings,
        *,
        parent: str | None,
        plugins: Mapping[str, Plugin],
    ) -> None:
        self.runtime = runtime
        self.mount = mount
        self.session_id = session_id
        self.parent_session_id = parent
        self._settings = settings
        self._begin_turns: set[str] = set()
        """Turns that were to start the conversation over: at most one of them was accepted."""
        self.writer = asyncio.Lock()
        """Held while a turn is begun, so that one begins at a time."""
        self.own_turns: set[str] = set()
        """The last turn that this handle began, and attempts that were abandoned before."""
        self._is_draining = False
        """Whether this handle begins turns with items of the inbox."""
        self.plugins = dict(plugins)
        self._is_closed = False

    # --- turns -------------------------------------------------------------------------------------

    def turn(self, content: Input) -> TurnBuilder:
        """A turn with this input, not yet begun: `.run()`, `.stream()` or `.stream_to(sink)` begin it."""
        self._check_open()
        return TurnBuilder(self, content)

    def command(self, name: str, /, **arguments: Json) -> TurnBuilder:
        """A command, not yet begun. It runs between turns, like a turn, and its outcome is a `CommandOutcome`.

        Every session has the command `compact`; its plugins may bring others.
        """
        self._check_open()
        return TurnBuilder(self, "", Command(name, arguments))

    async def compact(self, instructions: str = "", *, keep: int | None = None) -> TurnResult:
        """Summarize the conversation now: the model continues with the summary and the latest messages.

        About `keep` tokens of the latest messages stay as they are. The older ones can still be read.
        """
        return await self.command(COMPACT, instructions=instructions or None, keep=keep).run()

    async def set_context(
        self, tools: Sequence[Toolish] = (), prompt: Sequence[Contribution] = (), *, include_base: bool = True
    ) -> None:
        """Set tools and prompt contributions for this session in this process, on top of the runtime's or instead.

        The same objects again are no change. If something is wrong with them, everything stays as it was. They are
        kept while a handle that has set a context is open; after the last one, their providers are closed.
        """
        loaded = await self.loaded()
        await loaded.set_context(tools, prompt, include_base=include_base)
        loaded.hold(self)

    async def catalog(self) -> SessionCatalog:
        """The tools that the model has now."""
        return (await self.loaded()).catalog(self.policy)

    async def refresh_catalog(self) -> None:
        """Ask all tool providers which tools they have now."""
        await (await self.loaded()).refresh()

    async def loaded(self) -> LoadedSession:
        """What this process holds of the session."""
        return await self.mount.loaded_sessions.get(self.session_id, self.policy, self.parent_session_id)

    async def answer(self, query_id: str, value: Any) -> None:
        """Answer a query that the running turn waits for: a call of a declared tool, or an approval.

        The first answer counts. Returns once it is in the journal. Raises `UnknownQueryError`, which names the open
        queries, if the id is not one that the session has asked.
        """
        answer = value if isinstance(value, Value | Failure) else Value(value=value)
        await self.mount.answer(self.session_id, query_id, answer)
        with self.mount.holdfast.engine.watch(self.session_id) as changes:
            is_theirs = False
            while query_id in (await self.conversation(fresh=True)).asked:
                is_theirs = True  # the answer was sent to another process, which owns the session
                await changes.changed()
        if is_theirs:
            await self.mount.answer(self.session_id, query_id, answer)  # raises if another answer came first

    # --- stopping ----------------------------------------------------------------------------------

    async def cancel(
        self, turn: str | None = None, *, item: str | None = None, reason: str | None = None, by: str | None = None
    ) -> CancelReceipt:
        """Stop a turn or withdraw an item by its id; with neither, stop the running turn.

        This is durable and works from any process: the owner of the session learns of it through the journal. A turn
        that had ended stays as it is, and so does the turn after it; one that has not begun will end as soon as it
        begins (`not_begun`). An item that still waits is removed from the inbox; for one that a turn has taken, the
        turn is stopped. Running turns of the session's children are stopped with it. Returns once the turn is over.
        """
        return await cancel(self.mount, self.session_id, turn, item, CancelRequest(reason, by))

    async def cancel_running_turns(self, reason: str = "stopped by the user") -> int:
        """Stop running turns that this handle began. Returns how many there were."""
        running = (await self.conversation(fresh=True)).running
        if running is None or not (running.id in self.own_turns or (self._is_draining and running.items)):
            return 0
        return int((await self.cancel(running.id, reason=reason)).state == "stopped")

    async def stop(self, reason: str = "stopped by the user") -> bool:
        """Stop the running turn, and wait until it is over. It ends as `stopped: cancelled`, and is committed.

        Returns False if there is none, or if it ended by itself first.
        """
        return (await self.cancel(reason=reason)).state == "stopped"

    # --- administration ----------------------------------------------------------------------------

    def admin(self) -> SessionAdmin:
        """What a host may do to the session beside its turns: config, commands, triggers, processes and tools."""
        self._check_open()
        return SessionAdmin(self)

    def commands(self) -> SessionCommands:
        """The commands that plugins and the host have for this session: list, run and enqueue them."""
        self._check_open()
        return SessionCommands(self)

    def plugin_actions(self) -> PluginActions:
        """What the plugins of the session let hosts do, by plugin."""
        self._check_open()
        return PluginActions(self)

    # --- background work ---------------------------------------------------------------------------

    def processes(self) -> SessionProcesses:
        """The background work of the session: start, list, show, wait for, signal, cancel and abandon it."""
        self._check_open()
        return SessionProcesses(self.mount.processes, self.session_id)

    def triggers(self) -> SessionTriggers:
        """What starts turns of the session, or work for it, by itself: events and schedules."""
        self._check_open()
        return SessionTriggers(self.mount.triggers, self.session_id)

    # --- inbox -------------------------------------------------------------------------------------

    def enqueue(self, content: Input) -> EnqueueBuilder:
        """Send an input to the session's inbox: `await session.enqueue("…").id("req-9")`.

        Whoever drains the inbox begins a turn with it: `queued_turn().run()`, or a worker in any process.
        """
        self._check_open()
        return EnqueueBuilder(self, content)

    def enqueue_command(self, name: str, /, **arguments: Json) -> EnqueueBuilder:
        """Send a command to the inbox. It runs before all waiting inputs, and alone."""
        self._check_open()
        return EnqueueBuilder(self, "", Command(name, arguments))

    def queued_turn(self, batch_ids: Sequence[str] | None = None, *, drain_id: str | None = None) -> QueuedTurns:
        """The turns that the inbox leads to; `.run()` runs them here.

        `batch_ids` are the items that may begin turns; None for all. `drain_id` names the drain: its turns are called
        `DRAIN_ID-1`, `DRAIN_ID-2`, …, and running it again returns those instead of beginning others.
        """
        self._check_open()
        if drain_id is not None:
            check_id(drain_id, "drain id")
        return QueuedTurns(self, None if batch_ids is None else frozenset(batch_ids), drain_id)

    async def queued_work(self) -> list[Item]:
        """The waiting items of the inbox, in order."""
        return list(agent_fold(await self.mount.holdfast.session(self.session_id)).inbox.waiting.values())

    async def cancel_queued_work(
        self, item_id: str, reason: str | None = None, *, by: str | None = None
    ) -> ItemOutcome:
        """Remove an item from the inbox if no turn has taken it yet. Returns its outcome."""
        await self.mount.holdfast.send(self.session_id, WithdrawMessage(item_id, reason, by))
        return await self.outcome(item_id)

    async def outcome(self, item_id: str) -> ItemOutcome:
        """What has become of an item so far. Raises `UnknownItemError`."""
        found = outcome_of(await self.mount.holdfast.session(self.session_id), item_id)
        if found.status != "done" or found.turn is None:
            return found
        conversation = await self.conversation()
        if found.turn not in conversation.turns or conversation.turns[found.turn].ended is None:
            conversation = await self.conversation(fresh=True)
        if not conversation.turns[found.turn].is_whole:
            conversation = await self.mount.conversations.whole(self.session_id)
        turn = conversation.turns[found.turn]
        return msgspec.structs.replace(found, result=result_of(turn, replayed=True))

    async def wait_for(self, item_id: str, timeout: float | None = None) -> ItemOutcome:  # noqa: ASYNC109
        """Wait until any process has settled an item. After a `TimeoutError` it can be waited for again."""
        with self.mount.holdfast.engine.watch(self.session_id) as changes:
            found = await self.outcome(item_id)
            async with asyncio.timeout(timeout if not found.is_settled else None):
                while not found.is_settled:
                    await changes.changed()
                    found = await self.outcome(item_id)
        return found

    async def turn_result(self, turn_id: str, timeout: float | None = None) -> TurnResult:  # noqa: ASYNC109
        """Wait until any process has ended a turn that has begun. After a `TimeoutError` it can be waited for again.

        Raises `UnknownTurnError` if the session has no such turn.
        """
        with self.mount.holdfast.engine.watch(self.session_id) as changes:
            turn = await self._found_turn(turn_id)
            async with asyncio.timeout(timeout if turn.ended is None else None):
                while turn.ended is None:
                    await changes.changed()
                    turn = await self._found_turn(turn_id)
        return result_of(turn, replayed=True)

    async def _found_turn(self, turn_id: str) -> TurnState:
        conversation = await self.conversation(fresh=True)
        if turn_id not in conversation.turns:
            raise UnknownTurnError(self.session_id, turn_id)
        if not conversation.turns[turn_id].is_whole:
            conversation = await self.mount.conversations.whole(self.session_id)
        return conversation.turns[turn_id]

    # --- reading -----------------------------------------------------------------------------------

    async def conversation(self, *, fresh: bool = False) -> Conversation:
        """The conversation; with `fresh`, including what other processes have written."""
        return await self.mount.conversations.get(self.session_id, fresh=fresh)

    async def code_execution_context(self) -> CodeExecutionContext:
        """What code is run with beside the turns of this session: on its variables, asking nobody, leaving nothing."""
        from holdfast.agent.machine.fold import agent_fold
        from holdfast.agent.rlm.execution import CodeExecutionContext

        folded = agent_fold(await self.mount.holdfast.session(self.session_id))
        owner = self.mount.engine.owner
        cells = self.mount.agent_kind.cells
        return CodeExecutionContext(self.session_id, folded.policies.next, folded.variables, cells, owner.now())

    def observe(self) -> Observer:
        """An observer of the session: its present state, the events after a cursor, and those to come."""
        return self.mount.observers.observe(self.session_id, tools=self.catalog)

    async def read_view(self) -> ReadView:
        """The conversation as it is now, or what a conversation that starts over will begin with."""
        conversation = await self.conversation(fresh=True)
        return view_of(conversation, self.begin_in(conversation))

    async def tree(self) -> SessionNode:
        """The session with its subagents and other children, of any depth, and the questions that wait for a person.

        `answer` takes the ids of those questions, too.
        """
        return await session_tree(self.mount.store, self.session_id)

    async def usage_report(self) -> UsageReport:
        """The usage of all turns, and of the session's processes that are over."""
        return session_report(await self.conversation(fresh=True))

    @property
    def policy(self) -> Policy:
        """The policy of the next turn: as recorded, as far as this process knows, with what this handle adds to it."""
        return self._policy_after(self.mount.conversations.at_hand(self.session_id))

    def _policy_after(self, known: Conversation | None) -> Policy:
        settings = self._settings
        if settings.begin is not None and settings.begin.policy is not None:
            return settings.begin.policy
        recorded = (known.next_policy if known is not None else None) or settings.recorded
        return recorded if settings.change is None else resolve(settings.change, recorded)

    @property
    def mode(self) -> str:
        return self.policy.mode

    async def fork(
        self,
        *,
        at: int | None = None,
        before: str | None = None,
        node: str | None = None,
        turn: str | None = None,
        id: str | None = None,
    ) -> AgentSession:
        """A new session with the history of this one up to a point, to continue differently from there.

        The point is a position (`at`), just before a query, at a node, or before the input of a turn; by default it is
        the end. Shared history is not copied.
        """
        event = await self.mount.holdfast.fork(self.session_id, at, before=before, node=node, turn=turn, id=id, wait=0)
        forked = (await self.mount.conversations.get(event.session_id)).next_policy or Policy()
        settings = HandleSettings(forked)
        parent, plugins = self.parent_session_id, self.plugins
        return AgentSession(self.runtime, self.mount, event.session_id, settings, parent=parent, plugins=plugins)

    # --- changing ----------------------------------------------------------------------------------

    async def configure(
        self,
        patch: Spec | None = None,
        *,
        prompt: str | PromptLayer | Sequence[PromptLayer] | None = None,
        by: str | None = None,
        **changes: Any,
    ) -> Policy:
        """Change the policy from the next turn on, whichever process runs it; what is not named stays.

        `prompt` is a layer of the system text, or several; they replace those on top of the instructions.

        Returns that policy once the change is durable. A provider that is named has to be there; without a model, it is
        asked for its own. Raises `InvalidValueError` and `ProviderUnavailableError`; nothing is changed then.
        """
        spec = checked(patch, "spec") if patch is not None else spec_from(changes)
        given = [prompt] if isinstance(prompt, str | PromptLayer) else prompt
        layers = None if given is None else [checked_layer(each) for each in given]
        conversation = await self.conversation(fresh=True)
        if conversation.ended is not None:
            raise SessionEndedError(self.session_id, conversation.ended)
        if spec.provider is not None:
            self.runtime.check_provider(spec.provider, self.session_id)
        spec = self.runtime.completed(spec, self.policy)
        if self._settings.begin is not None:  # it is recorded when the conversation starts over
            policy = resolve(spec, self.policy)
            policy = policy if layers is None else msgspec.structs.replace(policy, prompt=layers)
            self._settings.begin = self._settings.begin.under(policy)
            return self.policy
        change = change_from(spec, self._settings.change)
        if layers is not None:
            change = msgspec.structs.replace(change, prompt=layers)
        await self._record(change, by)
        return self.policy

    async def _record(self, change: PolicyChange, by: str | None) -> None:
        await self.mount.holdfast.send(self.session_id, ConfigureMessage(change, by))
        self._settings.change = None
        await self.conversation(fresh=True)

    def set_turn_phase_probe(self, probe: PhaseProbe | None) -> None:
        """Call a function with each phase of a turn when this process learns of it; None stops that."""
        self.mount.conversations.probe(self.session_id, probe)

    async def close(self) -> None:
        """Close this handle. The session stays stored, and a running turn continues.

        If it is the last open one that has set a context, that is released, once a running turn is over: the session's
        own tool providers and MCP servers are closed.
        """
        self._is_closed = True
        if (loaded := self.mount.loaded_sessions.peek(self.session_id)) is not None:
            await loaded.let_go(self)

    def _check_open(self) -> None:
        self.mount.engine.owner.callers.check_open(None)
        if self._is_closed:
            raise HoldfastError(f"session '{self.session_id}' is closed in this handle; open it again")

    @contextlib.contextmanager
    def draining(self, drain: HandDrain) -> Iterator[None]:
        """Let this process begin turns with items of the inbox while the context is open."""
        with draining(self.mount.holdfast, self.session_id, drain):
            self._is_draining = True
            try:
                yield
            finally:
                self._is_draining = False

    # --- for turns ---------------------------------------------------------------------------------

    def check_runs(self, conversation: Conversation) -> None:
        """Raise unless the next turn of the conversation can be run here."""
        policy, runtime = self._policy_after(conversation), self.runtime
        if policy.mode not in runtime.modes:
            raise ModeNotInstalledError(policy.mode, sorted(runtime.modes))
        if policy.provider and policy.provider not in runtime.providers and runtime.policy.provider:
            raise ProviderMismatchError(policy.provider, runtime.policy.provider, self.session_id)
        runtime.check_provider(policy.provider, self.session_id)

    async def record_settings(self) -> None:
        """Make durable what this handle was opened with and the record does not say, before it sends anything.

        Deadlines are those of the tools that this process has now.
        """
        settings, deadlines = self._settings, self.runtime.tools.deadlines
        if settings.change is None and not deadlines:
            return
        conversation = await self.conversation()
        recorded = conversation.next_policy
        if settings.begin is not None or recorded is None or conversation.ended is not None:
            return
        if any(recorded.deadlines.get(tool) != deadline for tool, deadline in deadlines.items()):
            late = PolicyChange(deadlines={**recorded.deadlines, **deadlines})
            settings.change = change_from(late, settings.change)
        if settings.change is not None:
            await self._record(settings.change, None)

    def begin_in(self, conversation: Conversation) -> NewConversation | None:
        """What the conversation starts over with at the next turn, or None if it does not."""
        if self._begin_turns and any(turn_id in conversation.turns for turn_id in self._begin_turns):
            self._settings.begin, self._begin_turns = None, set()
        return self._settings.begin

    def begin_with(self, turn_id: str, conversation: Conversation) -> NewConversation | None:
        """The same, for the turn that is about to begin. If that turn is not accepted, the next one starts over."""
        begin = self.begin_in(conversation)
        if begin is not None:
            self._begin_turns.add(turn_id)
        return begin

    def has_begun_with(self, turn_id: str) -> None:
        """Note that a joined turn has started over already, begun by an earlier attempt of the same client."""
        self._begin_turns.add(turn_id)
