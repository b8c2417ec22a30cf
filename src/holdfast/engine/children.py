"""Child sessions: how they start, resume and end, and how their parents get their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

from holdfast.core.budget import for_child
from holdfast.core.decide import CancelMessage, FeedMessage, GivenAnswer, Message, decide_start
from holdfast.core.errors import HoldfastError, SessionExistsError, SessionNotFoundError
from holdfast.core.events import Event
from holdfast.core.queries import Answer, ChildQuery, Failure, Value
from holdfast.core.records import CancelledRecord, CompletedRecord, Parent, StartedRecord
from holdfast.core.state import Session
from holdfast.engine.owner import SEED_BITS, Owner
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.lookup import budget_in_ctx, child_program, registered_program
from holdfast.store.errors import StoreUnavailableError


class Sessions(Protocol):
    """How sessions of any process are reached."""

    async def begin(self, session_id: str, started: StartedRecord) -> Event:
        """Start a session."""
        ...

    async def deliver(self, session_id: str, message: Message) -> Event:
        """Deliver a message to a session."""
        ...

    async def attend(self, session_id: str) -> bool:
        """Go on with what was left undone in a session."""
        ...

    async def known(self, session_id: str) -> Session:
        """A session as it is now."""
        ...


class ChildSessions:
    """The children of the sessions of one process."""

    def __init__(self, owner: Owner, sessions: Sessions) -> None:
        self._owner = owner
        self._sessions = sessions
        self._busy: dict[str, asyncio.Task[None]] = {}
        """What is being done about a child here."""
        self.stuck: dict[str, str] = {}
        """Why a child could not go on, the last time that was tried here."""

    def take_up(self, parent: str, query: ChildQuery) -> None:
        """Start the session that a query asks for; or go on with it, or tell its parent what became of it."""
        child_id = child_session_id(parent, query.id)
        if child_id not in self._busy:
            self._do(child_id, self._take_up(child_id, parent, query))

    def tell(self, child: Session, parent: Parent) -> None:
        """Tell a parent that its child has ended."""
        self._do(child.id, self._tell(child, parent))

    def drop(self, parent: Session, asked: str) -> None:
        """End the session of a query that nobody waits for any more."""
        self._owner.spawn(self._cancel(parent, asked))

    async def end_if_abandoned(self, child_id: str, parent_id: str) -> bool:
        """End a child whose parent does not wait for it: a process may have died before it could tell it so."""
        asked = child_id.removeprefix(f"{parent_id}.")
        try:
            parent = await self._sessions.known(parent_id)
            if asked not in parent.pending:
                await self._cancel(parent, asked)
        except SessionNotFoundError:
            await self._sessions.deliver(child_id, CancelMessage(f"its parent {parent_id} is gone"))
        return True

    # --- inside ------------------------------------------------------------------------------------

    def _do(self, child_id: str, work: Coroutine[Any, Any, None]) -> None:
        def forget(done: asyncio.Task[None]) -> None:
            if self._busy.get(child_id) is done:
                del self._busy[child_id]

        task = self._busy[child_id] = self._owner.spawn(work)
        task.add_done_callback(forget)

    async def _take_up(self, child_id: str, parent: str, query: ChildQuery) -> None:
        store = self._owner.store
        try:
            if (await store.session(child_id)).summary.state.is_terminal:
                await self._tell(await store.load(child_id), Parent(parent, query.id))
            else:
                await self._sessions.attend(child_id)
            self.stuck.pop(child_id, None)
        except SessionNotFoundError:
            await self._start(child_id, parent, query)
        except HoldfastError as error:
            self._note_stuck(child_id, error)

    def _note_stuck(self, child_id: str, error: HoldfastError) -> None:
        """A child could not be taken up. That is tried again and again, but reported once."""
        if self.stuck.get(child_id) != str(error):
            self._owner.report(child_id, error)
        self.stuck[child_id] = str(error)

    async def _start(self, child_id: str, parent: str, query: ChildQuery) -> None:
        owner, sessions = self._owner, self._sessions
        try:
            seed = owner.random.getrandbits(SEED_BITS)
            await sessions.begin(child_id, _started(await sessions.known(parent), query, owner.now(), seed))
        except SessionExistsError:
            return  # another process was quicker
        except StoreUnavailableError as error:
            self._note_stuck(child_id, error)  # it may have started; whoever looks at its parent next finds out
            return
        except HoldfastError as error:
            if isinstance(error, ProgramNotFoundError) and query.program_kind == "native":
                self._note_stuck(child_id, error)  # its parent knows it: a process that has both will start it
                return
            failure = Failure(f"child session {child_id} cannot be started: {error}", error.kind)
            with contextlib.suppress(HoldfastError):
                await sessions.deliver(parent, FeedMessage([GivenAnswer(failure, query.id)], child_id))
            return
        with contextlib.suppress(HoldfastError):  # looked at again, as every child is from time to time
            await self.end_if_abandoned(child_id, parent)

    async def _tell(self, child: Session, parent: Parent) -> None:
        answer: Answer
        if isinstance(child.ended, CompletedRecord):
            answer = Value(value=child.ended.result)
        else:
            why = getattr(child.ended, "error", None) or getattr(child.ended, "reason", None) or "no reason given"
            answer = Failure(f"child session {child.id} {child.state}: {why}", f"child_{child.state}")
        result = GivenAnswer(answer, parent.query_id, child.metrics.usage())
        with contextlib.suppress(HoldfastError):
            await self._sessions.deliver(parent.session_id, FeedMessage([result], child.id))

    async def _cancel(self, parent: Session, asked: str) -> None:
        reason = f"its parent {parent.id} does not wait for it any more"
        if isinstance(parent.ended, CancelledRecord):
            reason = f"its parent {parent.id} was cancelled: {parent.ended.reason or 'no reason was given'}"
        with contextlib.suppress(HoldfastError):
            await self._sessions.deliver(child_session_id(parent.id, asked), CancelMessage(reason))


def child_session_id(parent: str, asked: str) -> str:
    """The id of a child session: the same whenever its query is taken up again."""
    return f"{parent}.{asked}"


def answers_parent(child: str, parent: str) -> bool:
    """Whether a session answers a query of its parent; a parent does not wait for its other children."""
    return child.startswith(child_session_id(parent, ""))


def _started(parent: Session, query: ChildQuery, now: int, seed: int) -> StartedRecord:
    """How a child begins: with the program found now, and with its share of its parent's budget."""
    assert parent.started is not None
    if query.program_kind == "any":
        program = child_program(query.program, parent.started.program)
    else:
        program = registered_program(query.program)
    return decide_start(
        program,
        service=parent.started.service,
        llm=parent.llm,
        ctx=query.ctx,
        budget=for_child(parent, query.id, budget_in_ctx(program, query.ctx), now),
        prices=parent.started.prices,
        parent=Parent(parent.id, query.id),
        seed=seed,
    )
