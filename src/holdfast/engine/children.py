"""Child sessions: how they start, resume and end, and how their parents get their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from holdfast.core.budget import for_child, least
from holdfast.core.decide import CancelMessage, FeedMessage, GivenAnswer, Message, decide_start
from holdfast.core.errors import HoldfastError, SessionExistsError, SessionNotFoundError
from holdfast.core.events import Event
from holdfast.core.ids import child_session_id
from holdfast.core.labels import inherited_labels
from holdfast.core.queries import Answer, ChildQuery, Failure, Value
from holdfast.core.records import CancelledRecord, CompletedRecord, Parent, Program, StartedRecord
from holdfast.core.state import Session, State
from holdfast.engine.owner import SEED_BITS, ChildStart, Owner
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.lookup import budget_in_ctx, child_program, registered_program
from holdfast.programs.namespaces import check_child_namespace
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

    def is_busy_with(self, session_id: str) -> bool:
        """Whether something is being done here about a session, as a child, or about a child of its own."""
        own = child_session_id(session_id, "")
        return any(child_id == session_id or child_id.startswith(own) for child_id in self._busy)

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
            state = (await store.session(child_id)).summary.state
            if state.is_terminal or state is State.IMPORTED:
                await self._take_result(await store.load(child_id), Parent(parent, query.id))
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
            await sessions.begin(child_id, await self._started(await sessions.known(parent), query, seed))
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

    async def _started(self, parent: Session, query: ChildQuery, seed: int) -> StartedRecord:
        """How a child begins: with the program found now, and with its share of its parent's budget."""
        assert parent.started is not None
        check_child_namespace(parent.started, query.ctx)
        if query.found is not None:
            start = ChildStart(program=msgspec.convert(query.found, Program), ctx=query.ctx)
        elif query.program_kind == "agent":
            start = await self._agent(parent, query)
        elif query.program_kind == "any":
            start = ChildStart(program=child_program(query.program, parent.started.program), ctx=query.ctx)
        else:
            start = ChildStart(program=registered_program(query.program), ctx=query.ctx)
        own = least(query.budget, start.budget, budget_in_ctx(start.program, start.ctx))
        return decide_start(
            start.program,
            service=parent.started.service,
            llm=parent.llm,
            ctx=start.ctx,
            budget=for_child(parent, query.id, own, self._owner.now()),
            prices=parent.started.prices if start.prices is None else start.prices,
            parent=Parent(parent.id, query.id),
            seed=seed,
            labels=inherited_labels(parent.labels),
        )

    async def _agent(self, parent: Session, query: ChildQuery) -> ChildStart:
        if self._owner.start_agent is None:
            raise ProgramNotFoundError(query.program, "this process has no subagents")
        return await self._owner.start_agent(parent, query)

    async def _tell(self, child: Session, parent: Parent) -> None:
        answer: Answer
        if await self._is_stranger(child, parent):
            return
        if isinstance(child.ended, CompletedRecord):
            answer = Value(value=child.ended.result)
        else:
            why = getattr(child.ended, "error", None) or getattr(child.ended, "reason", None) or "no reason given"
            answer = Failure(f"child session {child.id} {child.state}: {why}", f"child_{child.state}")
        own = child.kind_fold.parent_answer(child)
        usage = child.metrics.usage(child.kind_fold.usage_by_model())
        result = GivenAnswer(answer if own is None else own, parent.query_id, usage)
        with contextlib.suppress(HoldfastError):
            await self._sessions.deliver(parent.session_id, FeedMessage([result], child.id))

    async def _take_result(self, child: Session, parent: Parent) -> None:
        """Tell a parent what became of a session that has ended, or was imported under the id of its child."""
        if await self._is_stranger(child, parent):
            why = f"child session {child.id} cannot be started: a session from a file was imported under its id"
            failure = GivenAnswer(Failure(why, "child_imported"), parent.query_id)
            with contextlib.suppress(HoldfastError):
                await self._sessions.deliver(parent.session_id, FeedMessage([failure], child.id))
        elif child.ended is not None:
            await self._tell(child, parent)

    async def _is_stranger(self, child: Session, parent: Parent) -> bool:
        """Whether a session came from a file and its parent did not: what it says is not the parent's to believe."""
        if child.started is None or child.started.imported is None:
            return False
        try:
            known = await self._sessions.known(parent.session_id)
        except HoldfastError:
            return False
        return known.started is not None and known.started.imported is None

    async def _cancel(self, parent: Session, asked: str) -> None:
        reason = f"its parent {parent.id} does not wait for it any more"
        if isinstance(parent.ended, CancelledRecord):
            reason = f"its parent {parent.id} was cancelled: {parent.ended.reason or 'no reason was given'}"
        with contextlib.suppress(HoldfastError):
            await self._sessions.deliver(child_session_id(parent.id, asked), CancelMessage(reason))


def answers_parent(child: str, parent: str) -> bool:
    """Whether a session answers a query of its parent; a parent does not wait for its other children."""
    return child.startswith(child_session_id(parent, ""))
