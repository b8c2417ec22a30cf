"""`Holdfast`: the door. Start, feed, cancel, look at, watch, fork and delete sessions, from any process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from holdfast.core.budget import Budget, Price
from holdfast.core.compare import Comparison, compare
from holdfast.core.decide import AdoptMessage, AssignMessage, CancelMessage, FeedMessage, Message, decide_start
from holdfast.core.errors import HoldfastError, InvalidValueError, SessionExistsError
from holdfast.core.events import Event
from holdfast.core.fork_points import ForkPoint
from holdfast.core.ids import DEFAULT_SERVICE, new_session_id
from holdfast.core.kinds import find_kind
from holdfast.core.labels import LabelMessage
from holdfast.core.needs import ANY, HOST, why_left
from holdfast.core.queries import Usage
from holdfast.core.records import CompletedRecord, Entry, Program
from holdfast.core.state import Session, State
from holdfast.core.values import Json
from holdfast.engine.adoption import AdoptionReport, adoption_report
from holdfast.engine.dispatch import Dispatch, open_dispatch
from holdfast.engine.drivers import DEFAULT_CONCURRENCY, MAX_DEATHS, Driver, Effect, Finder, Probe, Recovery
from holdfast.engine.engine import Engine
from holdfast.engine.errors import ResultTimeoutError, SessionFailedError, TooManyEntriesError
from holdfast.engine.fleet_limits import LimitReport, limit_reports, parse_limits, remove_limits
from holdfast.engine.forks import ForkRequest, fork_points, make_fork
from holdfast.engine.given_answers import Answers, given_answers
from holdfast.engine.given_budget import given_budget
from holdfast.engine.host_view import feed, until_needed
from holdfast.engine.offers import Offer
from holdfast.engine.own_drivers import own_effects
from holdfast.engine.owner import CLOSE_S, SEED_BITS, Observer, Owner, Seam
from holdfast.engine.process_rows import ProcessRow, processes
from holdfast.engine.questions import QuestionPage, waiting_questions
from holdfast.engine.replay_check import ReplayOutcome, check_replay, check_stored_replay
from holdfast.engine.session_status import session_status
from holdfast.engine.starts import start_again
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.contract import ProgramKind
from holdfast.programs.language import StepLimits
from holdfast.programs.lookup import budget_in_ctx, find_program
from holdfast.programs.registry import Function, Strategy
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.environment import Environment
from holdfast.store.limits import DEFAULT_LEASE_MS, READ_LIMIT
from holdfast.store.session_rows import SessionFilter, SessionPage
from holdfast.store.supervisor import TaskTrouble

HOT_PROGRAMS = 1_000
"""Programs kept in memory between pauses: about 20 MB of small strategies. The others are rebuilt when needed."""

DISPATCHED_LEASE_MS = 10_000
"""How long a session is held without a sign of life where a dispatcher brings work: a machine that has stopped is taken
over from soon, and a lease is renewed every 3 s all the same."""

COMPARED_ENTRIES = 20_000
"""Entries of the longer of two sessions that are compared: half a second of reading."""


class Holdfast:
    """Sessions on one store. Made by `holdfast.open`, used as an async context manager."""

    def __init__(
        self,
        store: Store,
        *,
        hot_programs: int = HOT_PROGRAMS,
        service: str | Sequence[str] = DEFAULT_SERVICE,
        lease_ms: int | None = None,
        upkeep: Upkeep | None = None,
        dispatch: str | Dispatch | None = None,
        seam: Seam | None = None,
        environment: Environment | None = None,
        max_deaths: int = MAX_DEATHS,
        close_s: float = CLOSE_S,
        limits: Iterable[str] | Mapping[str, Any] = (),
    ) -> None:
        """`service` names the services that this process serves; sessions that are started here belong to the first.

        `hot_programs` are kept in memory at most; `lease_ms` is how long a session is held without a sign of life: 30
        s, or 10 s with a dispatcher. `dispatch` names an engine that brings work to the processes of a fleet on
        PostgreSQL, as `restate+http://host:8080` or `nats://host:4222`, else HOLDFAST_DISPATCH does; without one, each
        process hears of work from the store, and looks for it. A call at which `max_deaths` processes have died, one
        after the other, is answered by a failure. When it is closed, effects that cannot be run again have `close_s`
        seconds to end. `limits` are declared for all processes on the store, as `limit` does.
        """
        self.store = store
        self._limits = parse_limits(limits)
        services = [service] if isinstance(service, str) else service
        self._upkeep = upkeep or Upkeep()
        dispatcher = open_dispatch(dispatch, store, is_alone=self._upkeep.is_alone)
        if lease_ms is None:
            lease_ms = DEFAULT_LEASE_MS if dispatcher is None else DISPATCHED_LEASE_MS
        self._owner = Owner(store, lease_ms, environment or Environment(), services=services, seam=seam)
        if max_deaths < 1:
            raise InvalidValueError("max_deaths", f"a call is begun at least once, got {max_deaths}")
        self._owner.max_deaths = max_deaths
        self._owner.close_s = close_s
        self._engine = Engine(self._owner, hot_programs=hot_programs)
        if dispatcher is not None:
            self._upkeep.use(dispatcher)
        self.drive_own_tools()

    @property
    def engine(self) -> Engine:
        """The engine inside, for what is built on it: workers, and other attendants of sessions."""
        return self._engine

    @property
    def upkeep(self) -> Upkeep:
        """What this process does by itself."""
        return self._upkeep

    async def __aenter__(self) -> Self:
        await self.store.open()
        await self._owner.agree_on_time()
        await self._owner.permits.declare(self._limits)
        self._upkeep.start(self._engine)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._owner.callers.close()
        await self._upkeep.stop()
        await self._engine.close()
        await self._upkeep.dispatch.detach()
        await self._owner.permits.close()
        await self.store.close()

    async def start(
        self,
        program: Strategy | Function | Program | str,
        *,
        ctx: Json = None,
        budget: Budget | Mapping[str, Any] | None = None,
        prices: Mapping[str, Price] | None = None,
        service: str | None = None,
        llm: str | None = None,
        title: str = "",
        labels: Sequence[str] = (),
        id: str | None = None,
        wait: float | None = None,
    ) -> Event:
        """Start a session. Gives back what it says when it needs a host, has ended, or `wait` seconds are over.

        `program` is a strategy, `module:name`, `FILE.py:name`, `FILE.lua`, the name of a Lua package, or a `Program`.
        `service` names the service that the session belongs to. One that is not served here is left to those who
        serve it: the session is only recorded. `llm` says who answers its `llm` queries: `host` (only `feed`), `any`
        (any process of the service with a model), or the name of a model. Without it, that is `any` if something
        drives `llm` here, and else `host`. `title` and `labels` are what people find it by; `label` changes them.

        A start that is tried again, with the same `id` and content, gets the same event, `replayed`; with other content
        it raises `SessionExistsError`, which says what differs.
        """
        found = find_program(program)
        limits = budget_in_ctx(found, ctx) if budget is None else given_budget(budget)
        started = decide_start(
            found,
            service=service if service is not None else self._owner.offers.services[0],
            llm=llm if llm is not None else ANY if "llm" in self._owner.drivers.kinds else HOST,
            ctx=ctx,
            budget=limits,
            prices=prices,
            seed=self._owner.random.getrandbits(SEED_BITS),
            title=title,
            labels=labels,
        )
        session_id = id or new_session_id(self._owner.random.randbytes)
        try:
            event = await self._engine.begin(session_id, started)
        except SessionExistsError:
            return await start_again(self._engine, session_id, started, wait)
        return await until_needed(self._engine, session_id, event, wait)

    async def feed(
        self,
        session_id: str,
        answers: Answers,
        *,
        usage: Usage | None = None,
        by: str | None = None,
        wait: float | None = None,
    ) -> Event:
        """Answer one query, or several at once by their ids: all answers are taken, or none.

        An answer is a value, or a `Failure`; a `GivenAnswer` carries usage too. A bare answer goes to the only open
        query. A mapping is answers by query id, and an id that was not asked is refused; to answer with an object, feed
        it as `Value(…)`.
        Queries of children are answered under the ids that they are shown with (`q-3.q-0`); for those, all answers are
        checked before the first is taken.
        """
        return await feed(self._engine, session_id, FeedMessage(given_answers(answers, usage), by), wait)

    async def cancel(self, session_id: str, reason: str | None = None, *, by: str | None = None) -> Event:
        """End a session, and the children it waits for."""
        event = await self._engine.deliver(session_id, CancelMessage(reason, by))
        alive = [State.RUNNING, State.PAUSED]
        children = await self.store.sessions(SessionFilter(parent=session_id, states=alive))
        for row in children.rows:
            kind = find_kind(row.summary.program_kind)
            if kind is not None and not kind.ends_with_parent:
                continue
            with contextlib.suppress(HoldfastError):
                await self.cancel(row.session_id, f"its parent {session_id} was cancelled: {reason}", by=by)
        return event

    async def assign(self, session_id: str, llm: str, *, by: str | None = None) -> Event:
        """Let somebody else answer the `llm` queries of a session: `host`, `any`, or a model by its name.

        Agents have their provider and model from their policy, and are not affected.
        """
        await self._engine.deliver(session_id, AssignMessage(llm, by))
        return await self._engine.resume(session_id)

    async def label(
        self, session_id: str, *, title: str | None = None, labels: Sequence[str] | None = None, by: str | None = None
    ) -> Event:
        """Give a session that has not ended another title, or other labels in place of those it has."""
        return await self._engine.deliver(session_id, LabelMessage(title, None if labels is None else list(labels), by))

    async def adoption(self, session_id: str) -> AdoptionReport:
        """What an imported session would run here if it were adopted, for whoever decides that."""
        return adoption_report(await self.store.load(session_id), self._owner.offers)

    async def adopt(self, session_id: str, *, by: str | None = None, wait: float | None = None) -> Event:
        """Let a session run that was imported from a file. Until then it does nothing; `adoption` says what it would.

        Whoever calls this vouches for the session. It does not make its program trusted: what may run outside of a
        sandbox is up to each process. Adopting a session again changes nothing.
        """
        await self._engine.deliver(session_id, AdoptMessage(by))
        return await until_needed(self._engine, session_id, await self._engine.resume(session_id), wait)

    async def send(self, session_id: str, message: Message) -> Event:
        """Send a message to a session. Comes back once it is decided, by whichever process owns the session.

        Whoever does not wait for that has sent it all the same.
        """
        return await self._engine.deliver(session_id, message)

    async def session(self, session_id: str) -> Session:
        """A session as it is now, folded. Not to be changed, and not to be kept: while this process has the session,
        the object goes on with it, also to what is not durable yet."""
        return await self._engine.known(session_id)

    def now(self) -> int:
        """The time by the engine's clock (unix ms)."""
        return self._owner.now()

    async def status(self, session_id: str, *, pending: object = "full", history: bool = False) -> dict[str, Any]:
        """What a session looks like now: phase, metrics, pending queries and those of its children, who owns it."""
        now, has_limits = self._owner.now(), bool(self._owner.permits.limits)
        return await session_status(
            self._owner, session_id, now, pending=pending, history=history, has_limits=has_limits
        )

    def troubles(self) -> list[TaskTrouble]:
        """What this process does by itself and has failed at lately: it is tried again. Empty if all is well.

        `processes` tells it of others, and `holdfast doctor` shows it.
        """
        return self._owner.troubles()

    async def processes(self) -> list[ProcessRow]:
        """The processes at work on the store that have said so lately, what each of them offers, and how it is."""
        now = self._owner.now()
        return [row for row in await processes(self.store) if row.is_here(now)]

    async def sessions(
        self, where: SessionFilter | None = None, *, after: str | None = None, limit: int = READ_LIMIT
    ) -> SessionPage:
        """Sessions that meet a filter, the newest first, a page at a time."""
        return await self.store.sessions(where, after=after, limit=limit)

    async def questions(
        self,
        where: SessionFilter | None = None,
        *,
        kind: str | None = None,
        after: str | None = None,
        limit: int = READ_LIMIT,
    ) -> QuestionPage:
        """All that waits for a person or a host, over all sessions that meet a filter: of `limit` sessions a page."""
        return await waiting_questions(self._engine, where or SessionFilter(), after, limit, kind)

    async def result(self, session_id: str, timeout: float | None = None) -> Json:  # noqa: ASYNC109
        """The result of a session, once it has one. `SessionFailedError` if it ended otherwise."""
        session = await self._until_ended(session_id, timeout)
        ended = session.ended
        if isinstance(ended, CompletedRecord):
            return ended.result
        why = getattr(ended, "error", None) or getattr(ended, "reason", None) or "no reason was given"
        raise SessionFailedError(session_id, session.state, why)

    async def watch(self, session_id: str, from_: int = 0) -> AsyncIterator[Entry]:
        """A session's entries after a position, and then each new one, until the session has ended."""
        position = from_
        with self._engine.watch(session_id) as changes:
            while True:
                row = await self.store.session(session_id)
                for entry in await self.store.read(session_id, position):
                    yield entry
                    position = entry.position
                if position >= row.position:
                    if row.summary.state.is_terminal:
                        return
                    await changes.changed()

    async def fork(
        self,
        session_id: str,
        at: int | None = None,
        *,
        before: str | None = None,
        id: str | None = None,
        limits: StepLimits | None = None,
        wait: float | None = None,
        **places: str | None,
    ) -> Event:
        """A new session with the beginning of another one; it continues from there, as after `start`.

        `at` is the last record to keep; `before` a query, which the program then asks anew. A program kind may have
        places of its own: of an agent, `turn` names a turn, whose input the fork then waits for, and `node` a node of
        the conversation: before it, if it is the input of a turn, else after it. Without any of them, everything is
        kept. `fork_points` lists the places. What a program wrote at once is kept whole or not at all: inside of it,
        the place before is taken.

        With other `limits`, a session that a limit has stopped continues before the step that was stopped.
        A fork that is asked for again, with the same `id`, gets what it says now, `replayed`.
        The shared records are not copied, and the other session is not touched. What was under way in it is done again
        in the fork, as effects of its own with idempotency keys of their own.
        """
        place = ForkRequest.chosen(at, before, places, limits)
        event = await make_fork(self._engine, session_id, place, id)
        return await until_needed(self._engine, event.session_id, event, wait)

    async def fork_points(self, session_id: str) -> list[ForkPoint]:
        """The places where a session can be forked, the earliest first, with what is asked or said there."""
        return await fork_points(self.store, session_id)

    async def compare(self, left: str, right: str, *, most_entries: int = COMPARED_ENTRIES) -> Comparison:
        """How far two sessions say the same, and how they go on from there.

        Both are read whole, so each may have `most_entries` at most, else `TooManyEntriesError`.
        """
        for session_id in (left, right):
            if (length := await self.store.position(session_id)) > most_entries:
                raise TooManyEntriesError(session_id, length, most_entries)
        sides = [[entry async for entry in self.store.journal(each)] for each in (left, right)]
        return compare((left, sides[0]), (right, sides[1]))

    async def check_replay(self, history: str | Path) -> ReplayOutcome:
        """Whether the code here still does what a session has recorded: the session with an id, or an export file.
        The program is run again on its journal, as after a restart. Nothing is written, and nobody is asked."""
        if isinstance(history, Path):
            from holdfast.store.export import read_export  # with all that makes temporary files

            session_id, entries, _ = await asyncio.to_thread(read_export, history)
            return await check_replay(self._owner.programs, session_id, entries)
        return await check_stored_replay(self._owner.programs, self.store, history)

    async def resume(self, session_id: str, *, wait: float | None = None) -> Event:
        """Go on with a session here: take over what a process that is gone has left, and say what it needs."""
        event = await self._engine.resume(session_id)
        return await until_needed(self._engine, session_id, event, wait)

    async def delete(self, session_id: str) -> None:
        """Remove a session with everything that belongs to it. Its id is not used again."""
        await self.store.delete(session_id, self._owner.now())
        await self._engine.release(session_id)

    def drive(
        self,
        what: str,
        effect: Effect,
        *,
        recovery: Recovery | None = None,
        probe: Probe | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> None:
        """Let a function answer queries: all of a kind (`llm`, `human`), or those to the tool of that name.

        After a crash, `recovery` decides about queries that were under way. A model is asked again (`safe`), a tool is
        not run twice (`never`), unless it says otherwise.
        """
        kind = what in ("llm", "human")
        policy: Recovery = recovery or ("safe" if kind else "never")
        name = what if kind else f"tool:{what}"
        self._owner.drivers.add(Driver(name, effect, recovery=policy, probe=probe, concurrency=concurrency))
        self._upkeep.look_soon()

    def drive_own_tools(self, home: Path | None = None) -> None:
        """Let the runtime's own tools keep what they write below `home` alone: not in Holdfast's directory, and not in
        the store, for all to find."""
        for name, (effect, recovery) in own_effects(self.store, home).items():
            self.drive(name, effect, recovery=recovery)

    async def limit(self, limits: Iterable[str] | Mapping[str, Any]) -> None:
        """Let all processes on the store keep to limits: `["service:billing=20", "model:openai:gpt-5=60/m"]`.

        A limit on the same subject is replaced. See the page about limits for what can be limited.
        """
        await self._owner.permits.declare(parse_limits(limits))

    async def unlimit(self, names: Iterable[str]) -> list[str]:
        """Remove limits by what they are on, as `limits` names it; gives those that were there."""
        removed = await remove_limits(self.store, names)
        await self._owner.permits.read()
        return removed

    async def limits(self) -> list[LimitReport]:
        """The limits that all processes on the store keep to, and how much of each is in use."""
        return await limit_reports(self.store)

    async def clean(self) -> tuple[list[str], list[str]]:
        """End what was idle for too long, and delete ended sessions that were kept for long enough, or that the store
        has no room for, now.

        How long and how much that is, is up to the options of `Upkeep`; by default, for ever. Gives the ids of the
        sessions in which something expired, and of the deleted ones.
        """
        return await self._upkeep.retention.clean(self._engine)

    def on_commit(self, observer: Observer) -> None:
        """Call a function with the session and the entries of each commit made here, once it is durable."""
        self._owner.on_commit.append(observer)

    def offer(self, offer: Offer) -> None:
        """Let something say which needs of sessions are met here, beside what was given to `drive`."""
        self._owner.offers.add(offer)
        self._upkeep.look_soon()

    def look_again(self) -> None:
        """Look at sessions that were left to others again: something was added that they may need."""
        self._upkeep.look_soon()

    def find_tools_with(self, finder: Finder) -> None:
        """Let a function find the drivers of tools that were not given to `drive` by name."""
        self._owner.drivers.find_tools_with(finder)
        self._upkeep.look_soon()

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now, without waiting for anything."""
        return await self._engine.event(session_id)

    def add_kind(self, kind: ProgramKind) -> None:
        """Make a kind of program known to this engine, or replace one; `programs.kinds` has those of every engine."""
        self._owner.programs.add(kind)

    async def _until_ended(self, session_id: str, timeout: float | None) -> Session:  # noqa: ASYNC109
        deadline = None if timeout is None else self._owner.clock.monotonic() + timeout
        with self._engine.watch(session_id) as changes:
            while True:
                row = await self.store.session(session_id)
                if row.summary.state.is_terminal:
                    return await self.store.load(session_id)
                left = None if deadline is None else deadline - self._owner.clock.monotonic()
                if left is not None and left <= 0:
                    why = why_left(await self.store.load(session_id), self._owner.offers)
                    raise ResultTimeoutError(session_id, timeout or 0.0, row.summary.state, why)
                await changes.changed(timeout=left)


def open_holdfast(url: str | Store, **options: Any) -> Holdfast:
    """Sessions on the store behind a URL: `async with holdfast.open("sqlite:///sessions.db") as hf: …`."""
    return Holdfast(open_store(url) if isinstance(url, str) else url, **options)
