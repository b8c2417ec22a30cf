"""An agent session that was opened: take turns, read what was said, change how it is run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.cancellation import CancelReceipt, CancelRequest, cancelled
from holdfast.agent.loaded_session import LoadedSession
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Command, Item
from holdfast.agent.machine.mailbox import WithdrawMessage
from holdfast.agent.machine.policy import Policy, Spec, resolve, spec_from
from holdfast.agent.machine.program import COMPACT
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.machine.turn_input import NewConversation
from holdfast.agent.observer import Observer
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.queue import EnqueueBuilder, ItemOutcome, QueuedTurns, outcome_of
from holdfast.agent.results import ReadView, TurnResult, UsageReport, report_of, result_of, view_of
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.agent.turn_builder import Input, TurnBuilder
from holdfast.agent.turn_phases import PhaseProbe
from holdfast.agent.worker import draining
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure, Value
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime


class AgentSession:
    """A handle. Clones share it; another handle, here or in another process, is kept apart by lease and position."""

    def __init__(
        self,
        runtime: Runtime,
        mount: MountedStore,
        session_id: str,
        policy: Policy,
        *,
        parent: str | None,
        begin: NewConversation | None,
        plugins: Mapping[str, Plugin],
    ) -> None:
        self.runtime = runtime
        self.mount = mount
        self.session_id = session_id
        self.parent_session_id = parent
        self._policy = policy
        self._begin = begin
        self._begin_turns: set[str] = set()
        """The turns that were to begin anew: one of them may have been taken, the others were not."""
        self.writer = asyncio.Lock()
        """Held while a turn is begun: one at a time."""
        self.own_turns: set[str] = set()
        """The last turn that was begun by this handle, and those that were given up before they were."""
        self._is_draining = False
        """Whether this handle begins turns with what waits in the inbox."""
        self.plugins = dict(plugins)
        self._is_closed = False

    # --- turns -------------------------------------------------------------------------------------

    def turn(self, given: Input) -> TurnBuilder:
        """A turn with this input, not begun yet: `.run()`, `.stream()` or `.stream_to(sink)` begin it."""
        self._check_open()
        return TurnBuilder(self, given)

    def command(self, name: str, **arguments: Json) -> TurnBuilder:
        """A command, not begun yet: it takes its place among the turns, and comes to a `CommandOutcome`.

        `compact` is one that every session has; the others are those of its plugins.
        """
        self._check_open()
        return TurnBuilder(self, "", Command(name, arguments))

    async def compact(self, instructions: str = "", *, keep: int | None = None) -> TurnResult:
        """Sum up the conversation now: it goes on in a fresh window with the summary, and the latest of what was said.

        `keep` is about how many tokens of that stay as they are. What was said before can still be read.
        """
        return await self.command(COMPACT, instructions=instructions or None, keep=keep).run()

    async def set_context(
        self, tools: Sequence[Toolish] = (), prompt: Sequence[Contribution] = (), *, include_base: bool = True
    ) -> None:
        """Give the session tools and words of its own in this process, on top of the runtime's or instead of them.

        The same objects again are no change; if something is wrong with them, everything stays as it was.
        """
        await (await self.loaded()).set_context(tools, prompt, include_base=include_base)

    async def catalog(self) -> SessionCatalog:
        """The tools that the model has, as of now."""
        return (await self.loaded()).catalog(self._policy)

    async def refresh_catalog(self) -> None:
        """Ask all providers of tools what they have now."""
        await (await self.loaded()).refresh()

    async def loaded(self) -> LoadedSession:
        """The session as this process has it."""
        return await self.mount.loaded_sessions.get(self.session_id, self._policy, self.parent_session_id)

    async def answer(self, query_id: str, value: Any) -> None:
        """Answer a query that the running turn waits for: a tool without a runner here, an approval.

        The first answer is the one that counts. Comes back once it is in the journal.
        """
        answer = value if isinstance(value, Value | Failure) else Value(value=value)
        await self.mount.give(self.session_id, query_id, answer)
        with self.mount.store.watch(self.session_id) as changes:
            is_theirs = False
            while query_id in (await self.conversation(fresh=True)).asked:
                is_theirs = True  # another process owns the session, and was sent the answer
                await changes.changed()
        if is_theirs:
            await self.mount.give(self.session_id, query_id, answer)  # the same again, or there was another before

    # --- stopping ----------------------------------------------------------------------------------

    async def cancel(
        self, turn: str | None = None, *, item: str | None = None, reason: str | None = None, by: str | None = None
    ) -> CancelReceipt:
        """Stop a turn, or take back an item: by its id, or, with neither, whatever turn is under way now.

        Durable, and from any process: whoever works on it is told through the journal. A turn that was over before is
        not concerned, nor is the one after it. An item that no turn has taken is taken out of the inbox; one that a
        turn has taken stops that turn. What children of the session are at work on is stopped with it. Comes back once
        the turn is over.
        """
        return await cancelled(self.mount, self.session_id, turn, item, CancelRequest(reason, by))

    async def cancel_running_turns(self, reason: str = "stopped by the user") -> int:
        """Stop the turns that were begun by this handle and are under way; how many that were."""
        running = (await self.conversation(fresh=True)).running
        if running is None or not (running.id in self.own_turns or (self._is_draining and running.items)):
            return 0
        return int((await self.cancel(running.id, reason=reason)).state == "stopped")

    async def stop(self, reason: str = "stopped by the user") -> bool:
        """Stop the running turn, and wait until it is over. It ends as `stopped: cancelled`, and is committed.

        False if there is none, or it came to its end before.
        """
        return (await self.cancel(reason=reason)).state == "stopped"

    # --- inbox -------------------------------------------------------------------------------------

    def enqueue(self, given: Input) -> EnqueueBuilder:
        """Send something to the session, to be worked when its turn comes: `await session.enqueue("…").id("req-9")`.

        A turn is begun with it by whoever drains the inbox: `queued_turn().run()`, or a worker in any process.
        """
        self._check_open()
        return EnqueueBuilder(self, given)

    def enqueue_command(self, name: str, **arguments: Json) -> EnqueueBuilder:
        """Send a command. It goes before all that waits, and alone."""
        self._check_open()
        return EnqueueBuilder(self, "", Command(name, arguments))

    def queued_turn(self) -> QueuedTurns:
        """The turns that what waits in the inbox comes to; `.run()` works them here."""
        self._check_open()
        return QueuedTurns(self)

    async def queued_work(self) -> list[Item]:
        """The items that wait in the inbox, in their order."""
        return list(agent_fold(await self.mount.holdfast.session(self.session_id)).inbox.waiting.values())

    async def cancel_queued_work(
        self, item_id: str, reason: str | None = None, *, by: str | None = None
    ) -> ItemOutcome:
        """Take an item out of the inbox, if no turn has taken it yet. Gives what became of it."""
        await self.mount.holdfast.send(self.session_id, WithdrawMessage(item_id, reason, by))
        return await self.outcome(item_id)

    async def outcome(self, item_id: str) -> ItemOutcome:
        """What became of an item, as of now. Raises `UnknownItemError`."""
        found = outcome_of(await self.mount.holdfast.session(self.session_id), item_id)
        if found.status != "done" or found.turn is None:
            return found
        conversation = await self.conversation()
        if found.turn not in conversation.turns or conversation.turns[found.turn].ended is None:
            conversation = await self.conversation(fresh=True)
        if not conversation.turns[found.turn].is_whole:
            conversation = await self.mount.conversations.whole(self.session_id)
        turn = conversation.turns[found.turn]
        return msgspec.structs.replace(found, result=result_of(conversation, turn, replayed=True))

    async def wait_for(self, item_id: str, timeout: float | None = None) -> ItemOutcome:  # noqa: ASYNC109
        """Wait until an item is settled, by whatever process. Raises `TimeoutError`; it can be waited for again."""
        with self.mount.store.watch(self.session_id) as changes:
            found = await self.outcome(item_id)
            async with asyncio.timeout(timeout if not found.is_settled else None):
                while not found.is_settled:
                    await changes.changed()
                    found = await self.outcome(item_id)
        return found

    # --- reading -----------------------------------------------------------------------------------

    async def conversation(self, *, fresh: bool = False) -> Conversation:
        """The conversation; with `fresh`, with what other processes have written until now."""
        return await self.mount.conversations.get(self.session_id, fresh=fresh)

    def observe(self) -> Observer:
        """A way to watch the session: what it is now, what came after a cursor, and what comes."""
        return self.mount.observers.observe(self.session_id)

    async def read_view(self) -> ReadView:
        """What was said, as of now; of a session that begins anew, what it begins with."""
        conversation = await self.conversation(fresh=True)
        return view_of(conversation, self.begin_in(conversation))

    async def usage_report(self) -> UsageReport:
        """What all turns have used."""
        conversation = await self.conversation(fresh=True)
        return report_of(conversation.turns.values())

    @property
    def policy(self) -> Policy:
        """How turns are run from the next one on."""
        return self._policy

    @property
    def mode(self) -> str:
        return self._policy.mode

    async def fork(
        self,
        *,
        at: int | None = None,
        before: str | None = None,
        node: str | None = None,
        turn: str | None = None,
        id: str | None = None,
    ) -> AgentSession:
        """A new session with what was said here up to a place, to go on otherwise from there.

        The place is a position, a query before which it is, a node, or a turn before whose input it is; at the end if
        nothing is said. What is shared is not copied.
        """
        event = await self.mount.holdfast.fork(self.session_id, at, before=before, node=node, turn=turn, id=id, wait=0)
        return AgentSession(
            self.runtime,
            self.mount,
            event.session_id,
            self._policy,
            parent=self.parent_session_id,
            begin=None,
            plugins=self.plugins,
        )

    # --- changing ----------------------------------------------------------------------------------

    def configure(self, patch: Spec | None = None, **changes: Any) -> Policy:
        """Change how turns are run, from the next one on: what is not named stays. Recorded with that turn."""
        spec = patch if patch is not None else spec_from(changes)
        before = self._policy
        policy = resolve(spec, before)
        if policy.model != before.model and spec.window is None:
            policy = self.runtime.windowed(msgspec.structs.replace(policy, window=None))
        self.runtime.check_provider(policy.provider, self.session_id)
        self._policy = policy
        return policy

    def set_turn_phase_probe(self, probe: PhaseProbe | None) -> None:
        """Call a function with the name of each phase of a turn when it is reached here; None ends that."""
        self.mount.conversations.probe(self.session_id, probe)

    async def close(self) -> None:
        """Let go of the session. It stays where it is; a turn that is under way goes on."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(f"session '{self.session_id}' was closed by this handle; open it again")

    @contextlib.contextmanager
    def draining(self, turns: int | None) -> Iterator[None]:
        """Begin turns with what waits in the inbox, here, for as long as this is open."""
        with draining(self.mount.holdfast, self.session_id, turns):
            self._is_draining = True
            try:
                yield
            finally:
                self._is_draining = False

    # --- for turns ---------------------------------------------------------------------------------

    def changed_policy(self, conversation: Conversation) -> Policy | None:
        """The policy, where it is not the one that the journal has."""
        policy = msgspec.structs.replace(self._policy, deadlines=self.runtime.tools.deadlines)
        return None if conversation.policy == policy else policy

    def begin_in(self, conversation: Conversation) -> NewConversation | None:
        """How the conversation begins anew with the next turn, if it does."""
        if not self._begin_turns.isdisjoint(conversation.turns):
            self._begin, self._begin_turns = None, set()
        return self._begin

    def begin_with(self, turn_id: str, conversation: Conversation) -> NewConversation | None:
        """The same, for the turn that does it. It may not be taken; then it is for the next one."""
        begin = self.begin_in(conversation)
        if begin is not None:
            self._begin_turns.add(turn_id)
        return begin

    def has_begun_with(self, turn_id: str) -> None:
        """A turn that began anew was joined: the one that this session was opened for, by a client that tries again."""
        self._begin_turns.add(turn_id)
