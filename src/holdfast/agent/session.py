"""An agent session that was opened: take turns, read what was said, change how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.plugins import Active
from holdfast.agent.results import ReadView, UsageReport, report_of, view_of
from holdfast.agent.turns import Input, TurnBuilder
from holdfast.core.conversation import Begin, Conversation
from holdfast.core.errors import HoldfastError
from holdfast.core.policy import Policy, Spec, resolve
from holdfast.core.queries import Failure, InputQuery, Value

if TYPE_CHECKING:
    from holdfast.agent.place import Place
    from holdfast.agent.runtime import Runtime

Probe = Callable[[str, str], None]
"""Called with the session's id and the name of a phase of a turn."""


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
        self.plugins = dict(plugins)
        self._is_closed = False

    # --- turns -------------------------------------------------------------------------------------

    def turn(self, given: Input) -> TurnBuilder:
        """A turn with this input, not begun yet: `.run()`, `.stream()` or `.stream_to(sink)` begin it."""
        self._check_open()
        return TurnBuilder(self, given)

    async def answer(self, query_id: str, value: Any) -> None:
        """Answer a query that the running turn waits for: a tool without a runner here, an approval."""
        answer = value if isinstance(value, Value | Failure) else Value(value=value)
        await self.place.give(self.session_id, query_id, answer)

    async def stop(self, reason: str = "stopped by the user") -> bool:
        """Stop the running turn; False if there is none. It ends as `stopped: cancelled`, and is committed."""
        session = await self.place.store.load(self.session_id)
        waiting = [asked for asked, each in session.pending.items() if not isinstance(each.query, InputQuery)]
        if not waiting:
            return False
        failure = Failure(reason, "cancelled")
        await self.place.holdfast.feed(self.session_id, dict.fromkeys(waiting, failure), wait=0)
        return True

    # --- reading -----------------------------------------------------------------------------------

    async def conversation(self, *, fresh: bool = False) -> Conversation:
        """The conversation; with `fresh`, with what other processes have written until now."""
        return await self.place.conversations.get(self.session_id, fresh=fresh)

    async def read_view(self) -> ReadView:
        """What was said, as of now."""
        return view_of(await self.conversation(fresh=True))

    async def usage_report(self) -> UsageReport:
        """What all turns have used."""
        conversation = await self.conversation(fresh=True)
        return report_of(row for turn in conversation.turns.values() for row in turn.usage)

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
        spec = patch if patch is not None else msgspec.convert(changes, Spec)
        policy = resolve(spec, self._policy)
        self.runtime.check_provider(policy.provider, self.session_id)
        self._policy = policy
        return policy

    async def close(self) -> None:
        """Let go of the session. It stays where it is; a turn that is under way goes on."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(f"session '{self.session_id}' was closed by this handle; open it again")

    # --- for turns ---------------------------------------------------------------------------------

    def changed_policy(self, conversation: Conversation) -> Policy | None:
        """The policy, where it is not the one that the journal has."""
        return None if conversation.policy == self._policy else self._policy

    @property
    def begin(self) -> Begin | None:
        """How the conversation begins anew with the next turn, if it does."""
        return self._begin

    def take_begin(self) -> Begin | None:
        """The same for the turn that does it: once."""
        begin, self._begin = self._begin, None
        return begin

    def put_begin(self, begin: Begin | None) -> None:
        """The turn that was to begin anew was not taken."""
        self._begin = begin
