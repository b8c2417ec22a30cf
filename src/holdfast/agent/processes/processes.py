"""`Processes`: start, list, show, wait for, signal, cancel and abandon the background work of a store's sessions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.mailbox import EnqueueMessage
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.processes.errors import NotAProcessError, SignalRefusedError
from holdfast.agent.processes.handles import ProcessHandle, ProcessReport, handle_of, report_of, works_in
from holdfast.agent.processes.machine import (
    KIND,
    EndProcessMessage,
    JobQuery,
    SignalMessage,
    process_fold,
)
from holdfast.agent.processes.terms import (
    EmitWork,
    EventWork,
    OutsideWork,
    OwnerEnd,
    ProcessTerms,
    RecoveryContract,
    StrategyWork,
    ToolWork,
    TurnWork,
    Work,
    check_terms,
)
from holdfast.core.decide import FeedMessage, GivenAnswer, decide_start
from holdfast.core.errors import InvalidValueError, SessionExistsError, SessionNotFoundError
from holdfast.core.ids import check_id, new_item_id, new_session_id
from holdfast.core.queries import Failure, HumanQuery, Value
from holdfast.core.records import Program, StartedRecord
from holdfast.core.state import Session, State
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.starts import start_again
from holdfast.programs.lookup import find_program
from holdfast.programs.registry import Function, Strategy
from holdfast.store.session_rows import SessionFilter

OBSERVERS = "holdfast.observers"
"""The namespace of the edges from observers to processes."""

_ALIVE = [State.RUNNING, State.PAUSED]


class ProcessReceipt(msgspec.Struct, frozen=True):
    """Proof that a process is durable."""

    id: str
    replayed: bool = False
    """Whether it had been started before."""


def strategy(program: Strategy | Function | Program | str, ctx: Json = None) -> StrategyWork:
    """A strategy as work: by function, name, file or package, found now."""
    return StrategyWork(program=msgspec.to_builtins(find_program(program)), ctx=ctx)


def tool_call(tool: str, arguments: Mapping[str, Json] | None = None) -> ToolWork:
    """A tool call as work."""
    return ToolWork(tool=tool, arguments=dict(arguments or {}))


def derived_process_id(*parts: str) -> str:
    """The id of a process that is started because of something: the same whenever that is tried again."""
    return f"p-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:26]}"


class Processes:
    """The processes of one store."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._holdfast = holdfast

    async def start(
        self,
        work: Work,
        *,
        recovery: RecoveryContract,
        owner: str | None = None,
        owner_end: OwnerEnd = "cancel",
        wake: str | None = None,
        observers: Sequence[str] = (),
        label: str = "",
        id: str | None = None,
        service: str | None = None,
        llm: str | None = None,
        origin: Mapping[str, Json] | None = None,
    ) -> ProcessReceipt:
        """Start a process. It is durable when this returns, whoever works on it then.

        `recovery` says what becomes of the work when the OS process that runs it dies: it is `rerunnable`, bound to
        that one (`owner_bound`), or `external`. A start that is tried again with the same `id` is `replayed`.
        """
        terms = check_terms(
            ProcessTerms(
                work=work,
                recovery=recovery,
                label=label,
                owner=owner,
                owner_end=owner_end,
                wake=wake,
                observers=list(observers),
                origin=dict(origin or {}),
            )
        )
        engine = self._holdfast.engine
        services = engine.owner.offers.services
        started = decide_start(
            Program(kind=KIND, name=KIND),
            service=service if service is not None else services[0],
            llm=llm or "any",
            ctx=msgspec.to_builtins(terms),
            seed=engine.owner.random.getrandbits(32),
        )
        process = check_id(id, "process id") if id is not None else new_process_id(engine.owner.random.randbytes)
        for observer in terms.observers:  # first: an edge to a process that is not there yet does no harm
            await self._holdfast.store.put_state(OBSERVERS, _edge(observer, process), process)
        return await self._begin(process, started)

    async def _begin(self, process: str, started: StartedRecord) -> ProcessReceipt:
        engine = self._holdfast.engine
        try:
            await engine.begin(process, started)
        except SessionExistsError:
            await start_again(engine, process, started, wait=0)
            return ProcessReceipt(process, replayed=True)
        return ProcessReceipt(process)

    # --- looking ------------------------------------------------------------------------------------

    async def list(
        self, *, owner: str | None = None, every: bool = False, services: Sequence[str] = ()
    ) -> list[ProcessHandle]:
        """The processes that are not over, the newest first; with `every`, also those that are.

        With `owner`, those that belong to a session, and those that it observes.
        """
        where = SessionFilter(program=KIND, parent=owner, states=[] if every else _ALIVE, services=services)
        rows = await self._holdfast.store.all_sessions(where)
        ids = [row.session_id for row in rows if row.summary.program_kind == KIND]
        observed = [] if owner is None else [each for each in await self._observed(owner) if each not in ids]
        handles = [await self._handle(each) for each in [*ids, *observed]]
        return [each for each in handles if each is not None and (every or not each.is_over)]

    async def show(self, process: str) -> ProcessReport:
        """Everything about a process. Raises `NotAProcessError` for a session of another kind."""
        session = await self._session(process)
        return report_of(session, waits=await self._waits(session))

    async def wait(self, process: str, timeout: float | None = None) -> ProcessReport:  # noqa: ASYNC109
        """Wait until the work of a process is over. After a `TimeoutError` it can be waited for again."""
        with self._holdfast.engine.watch(process) as changes:
            async with asyncio.timeout(timeout):
                while True:
                    report = await self.show(process)
                    if report.handle.is_over and report.is_woken:
                        return report
                    await changes.changed()

    # --- acting -------------------------------------------------------------------------------------

    async def cancel(self, process: str, reason: str | None = None, *, by: str | None = None) -> ProcessReport:
        """End the work of a process. One whose work is over stays as it is."""
        return await self._end(process, EndProcessMessage("cancelled", reason, by))

    async def abandon(self, process: str, reason: str | None = None, *, by: str | None = None) -> ProcessReport:
        """Give a process up: nobody waits for its work any more, and what came of it is unknown."""
        return await self._end(process, EndProcessMessage("abandoned", reason, by))

    async def report(self, process: str, outcome: Json | Value | Failure, *, by: str | None = None) -> ProcessReport:
        """Say what came of an outside job: a value, or a `Failure`. The first report counts."""
        session = await self._session(process)
        terms = process_fold(session).terms
        if terms is None or not isinstance(terms.work, OutsideWork):
            raise InvalidValueError("report", f"the work of process '{process}' is not done outside")
        job = next((each for each, p in session.pending.items() if isinstance(p.query, JobQuery)), "q-0")
        answer = outcome if isinstance(outcome, Value | Failure) else Value(value=outcome)
        await self._holdfast.engine.deliver(process, FeedMessage([GivenAnswer(answer, job)], by))
        return await self.show(process)

    async def signal(
        self, process: str, name: str, value: Json = None, *, key: str | None = None, by: str | None = None
    ) -> None:
        """Send a signal to a process that is at work. The same `key` again is the same signal.

        A strategy gets it as the answer to the question of its own that it is named by; a turn gets it as an item that
        enters at its next safe point; whoever does an outside job finds it in `show`. A tool call takes none.
        """
        session = await self._session(process)
        terms = process_fold(session).terms
        assert terms is not None
        if process_fold(session).finished is not None or session.is_terminal:
            raise SignalRefusedError(process, name, "its work is over")
        match terms.work:
            case OutsideWork():
                key = key or new_item_id(self._holdfast.engine.owner.random.randbytes)
                await self._holdfast.send(process, SignalMessage(name, value, key, by))
            case TurnWork():
                await self._signal_turn(session, name, value, key, by)
            case StrategyWork():
                await self._signal_strategy(session, name, value, by)
            case ToolWork() | EmitWork() | EventWork():
                raise SignalRefusedError(process, name, "such work takes no signals; cancel it, or start another one")

    async def _signal_turn(self, session: Session, name: str, value: Json, key: str | None, by: str | None) -> None:
        target = works_in(session)
        assert target is not None
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        item_id = key or new_item_id(self._holdfast.engine.owner.random.randbytes)
        item = Item(id=item_id, content=[TextBlock(f"{name}: {text}")], delivery="boundary")
        await self._holdfast.send(target, EnqueueMessage(item, by))

    async def _signal_strategy(self, session: Session, name: str, value: Json, by: str | None) -> None:
        child = works_in(session)
        assert child is not None
        try:
            pending = (await self._holdfast.session(child)).pending
        except SessionNotFoundError:
            raise SignalRefusedError(session.id, name, "its strategy has not begun") from None
        asked = {p.query.prompt: each for each, p in pending.items() if isinstance(p.query, HumanQuery)}
        if name not in asked:
            questions = ", ".join(f"'{prompt}'" for prompt in asked) or "nothing"
            raise SignalRefusedError(session.id, name, f"its strategy waits for {questions}")
        await self._holdfast.feed(child, {asked[name]: Value(value=value)}, by=by, wait=0)

    async def _end(self, process: str, message: EndProcessMessage) -> ProcessReport:
        await self._session(process)
        await self._holdfast.send(process, message)
        return await self.show(process)

    # --- inside -------------------------------------------------------------------------------------

    async def _session(self, process: str) -> Session:
        session = await self._holdfast.session(process)
        if session.program_kind != KIND or process_fold(session).terms is None:
            raise NotAProcessError(process, session.program_kind)
        return session

    async def _handle(self, process: str) -> ProcessHandle | None:
        try:
            session = await self._session(process)
        except SessionNotFoundError:
            return None
        return handle_of(session, waits=await self._waits(session))

    async def _waits(self, session: Session) -> bool:
        """Whether the session that does the work of a process waits for a person."""
        where = None if session.is_terminal else works_in(session)
        if where is None:
            return False
        try:
            row = await self._holdfast.store.session(where)
        except SessionNotFoundError:
            return False
        return row.summary.state is State.PAUSED and "human" in row.summary.waiting_for.split(",")

    async def _observed(self, observer: str) -> Sequence[str]:
        store, prefix, after = self._holdfast.store, _edge(observer, ""), ""
        found, known = [], []
        while page := await store.list_state(OBSERVERS, prefix=prefix, after=after):
            found += [key.removeprefix(prefix) for key in page]
            after = page[-1]
        for process in found:
            try:
                await store.position(process)
                known.append(process)
            except SessionNotFoundError:  # pruned, or it never came to be
                await store.delete_state(OBSERVERS, prefix + process)
        return known


class SessionProcesses:
    """The processes of one session: they belong to it, and end with it unless they say otherwise."""

    def __init__(self, processes: Processes, session_id: str) -> None:
        self._processes = processes
        self._session_id = session_id

    async def start(
        self, work: Work, *, recovery: RecoveryContract, wake: bool = False, **terms: Any
    ) -> ProcessReceipt:
        """Start a process of this session, as `Processes.start` does; with `wake`, it puts an item into the session's
        inbox once its work is over."""
        woken = self._session_id if wake else None
        return await self._processes.start(work, recovery=recovery, owner=self._session_id, wake=woken, **terms)

    async def list(self, *, every: bool = False) -> list[ProcessHandle]:
        """The processes of this session, and those that it observes."""
        return await self._processes.list(owner=self._session_id, every=every)

    async def show(self, process: str) -> ProcessReport:
        """Everything about a process."""
        return await self._processes.show(process)

    async def wait(self, process: str, timeout: float | None = None) -> ProcessReport:  # noqa: ASYNC109
        """Wait until the work of a process is over."""
        return await self._processes.wait(process, timeout)

    async def signal(self, process: str, name: str, value: Json = None, *, key: str | None = None) -> None:
        """Send a signal to a process."""
        await self._processes.signal(process, name, value, key=key, by=self._session_id)

    async def report(self, process: str, outcome: Json | Value | Failure) -> ProcessReport:
        """Say what came of an outside job."""
        return await self._processes.report(process, outcome, by=self._session_id)

    async def cancel(self, process: str, reason: str | None = None) -> ProcessReport:
        """End the work of a process."""
        return await self._processes.cancel(process, reason, by=self._session_id)

    async def abandon(self, process: str, reason: str | None = None) -> ProcessReport:
        """Give a process up."""
        return await self._processes.abandon(process, reason, by=self._session_id)


def new_process_id(random_bytes: Any) -> str:
    """A fresh process id: `p-` and 26 characters."""
    return "p-" + new_session_id(random_bytes).removeprefix("s-")


def _edge(observer: str, process: str) -> str:
    return f"{hashlib.sha256(observer.encode()).hexdigest()[:32]}:{process}"
