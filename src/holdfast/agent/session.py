"""An agent session that was opened: take turns, read what was said, change how it is run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.phases import PhaseProbe
from holdfast.agent.plugins import Active
from holdfast.agent.results import ReadView, UsageReport, report_of, view_of
from holdfast.agent.turns import Input, TurnBuilder
from holdfast.core.conversation import Begin, Conversation
from holdfast.core.errors import FeedError, HoldfastError
from holdfast.core.policy import Policy, Spec, resolve, spec_from
from holdfast.core.queries import Failure, InputQuery, Value
from holdfast.core.turn import Stopped

if TYPE_CHECKING:
    from holdfast.agent.place import Place
    from holdfast.agent.runtime import Runtime


class AgentSession:
    """A handle. Clones share it; another handle, here or in another process, is kept apart by lease and position."""

    def __init__(
        self,
        runtime: Runtime,
        place: Place,
        session_id: str,
        policy: Policy,
        *,
        parent: str | None,
        begin: Begin | None,
        plugins: Mapping[str, Active],
    ) -> None:
        self.runtime = runtime
        self.place = place
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
        self.plugins = dict(plugins)
        self._is_closed = False

    # --- turns -------------------------------------------------------------------------------------

    def turn(self, given: Input) -> TurnBuilder:
        """A turn with this input, not begun yet: `.run()`, `.stream()` or `.stream_to(sink)` begin it."""
        self._check_open()
        return TurnBuilder(self, given)

    async def answer(self, query_id: str, value: Any) -> None:
        """Answer a query that the running turn waits for: a tool without a runner here, an approval.

        The first answer is the one that counts. Comes back once it is in the journal.
        """
        answer = value if isinstance(value, Value | Failure) else Value(value=value)
        await self.place.give(self.session_id, query_id, answer)
        with self.place.store.watch(self.session_id) as changes:
            is_theirs = False
            while query_id in (await self.conversation(fresh=True)).asked:
                is_theirs = True  # another process owns the session, and was sent the answer
                await changes.changed()
        if is_theirs:
            await self.place.give(self.session_id, query_id, answer)  # the same again, or there was another before

    async def stop(self, reason: str = "stopped by the user") -> bool:
        """Stop the running turn, and wait until it is over. It ends as `stopped: cancelled`, and is committed.

        False if there is none, or it came to its end before.
        """
        conversation = await self.conversation(fresh=True)
        if conversation.running is None:
            return False
        turn = conversation.running
        sent: list[str] = []
        with self.place.store.watch(self.session_id) as changes:
            while turn.ended is None:
                waiting = [asked for asked, query in conversation.asked.items() if not isinstance(query, InputQuery)]
                if waiting == sent:
                    await changes.changed()
                else:
                    sent = waiting
                    with contextlib.suppress(FeedError):  # it went on meanwhile
                        cancelled = dict.fromkeys(waiting, Failure(reason, "cancelled"))
                        await self.place.holdfast.feed(self.session_id, cancelled, wait=0)
                conversation = await self.conversation(fresh=True)
                turn = conversation.turns[turn.id]
        return isinstance(turn.ended, Stopped) and turn.ended.reason == "cancelled"

    # --- reading -----------------------------------------------------------------------------------

    async def conversation(self, *, fresh: bool = False) -> Conversation:
        """The conversation; with `fresh`, with what other processes have written until now."""
        return await self.place.conversations.get(self.session_id, fresh=fresh)

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

    # --- changing ----------------------------------------------------------------------------------

    def configure(self, patch: Spec | None = None, **changes: Any) -> Policy:
        """Change how turns are run, from the next one on: what is not named stays. Recorded with that turn."""
        spec = patch if patch is not None else spec_from(changes)
        policy = resolve(spec, self._policy)
        self.runtime.check_provider(policy.provider, self.session_id)
        self._policy = policy
        return policy

    def set_turn_phase_probe(self, probe: PhaseProbe | None) -> None:
        """Call a function with the name of each phase of a turn when it is reached here; None ends that."""
        self.place.conversations.probe(self.session_id, probe)

    async def close(self) -> None:
        """Let go of the session. It stays where it is; a turn that is under way goes on."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(f"session '{self.session_id}' was closed by this handle; open it again")

    # --- for turns ---------------------------------------------------------------------------------

    def changed_policy(self, conversation: Conversation) -> Policy | None:
        """The policy, where it is not the one that the journal has."""
        policy = msgspec.structs.replace(self._policy, deadlines=self.runtime.tools.deadlines)
        return None if conversation.policy == policy else policy

    def begin_in(self, conversation: Conversation) -> Begin | None:
        """How the conversation begins anew with the next turn, if it does."""
        if not self._begin_turns.isdisjoint(conversation.turns):
            self._begin, self._begin_turns = None, set()
        return self._begin

    def begin_with(self, turn_id: str, conversation: Conversation) -> Begin | None:
        """The same, for the turn that does it. It may not be taken; then it is for the next one."""
        begin = self.begin_in(conversation)
        if begin is not None:
            self._begin_turns.add(turn_id)
        return begin

    def has_begun_with(self, turn_id: str) -> None:
        """A turn that began anew was joined: the one that this session was opened for, by a client that tries again."""
        self._begin_turns.add(turn_id)
