"""The processes of the kill tests: one that works until it kills itself at a seam, and one that finishes its sessions.

Both write down what the outside world has seen in a ledger: a line is durable before the thing it tells of is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Attempt, Context, Holdfast, NotDone, QueryFailedError, Upkeep
from holdfast.core.decide import CancelMessage
from holdfast.core.errors import SessionNotFoundError
from holdfast.core.events import Event, PausedEvent
from holdfast.core.queries import LlmQuery, Query, ToolQuery
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.registry import Strategy
from holdfast.store import Store, open_store
from holdfast.store.contract import SessionRow
from holdfast.testing.crash.seams import Seam, SeamObserver
from holdfast.testing.patience import HANG_S, until

LEASE_MS = 500
"""Milliseconds an owner holds a session: long enough for a machine under load, short enough to wait for."""

UNANSWERED = "nobody answers"
"""How the prompts begin that the host leaves alone."""


# --- what both sides write down --------------------------------------------------------------------


class Ledger:
    """What the outside world has seen, line by line, in the order in which it was seen."""

    def __init__(self, directory: Path, who: str) -> None:
        self._file = os.open(directory / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._who = who

    def note(self, what: str, session: str, **more: Any) -> None:
        line = json.dumps({"who": self._who, "what": what, "session": session, **more})
        os.write(self._file, line.encode() + b"\n")
        os.fsync(self._file)


def read_ledger(directory: Path) -> list[dict[str, Any]]:
    path = directory / "ledger"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def has_ended(store: Store, session: str) -> bool:
    return (await store.session(session)).summary.state.is_terminal


async def nobody_owns_any(store: Store) -> bool:
    return not any(row.owner for row in (await store.sessions()).rows)


async def is_owned(store: Store, session: str) -> bool:
    return (await store.session(session)).owner is not None


# --- the programs ----------------------------------------------------------------------------------


class Gate:
    """Holds up what must not be over too soon. Open from the start in a process that only finishes sessions."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def block(self) -> None:
        """Wait as a strategy that computes does: without letting anybody else run in its thread."""
        deadline = time.monotonic() + HANG_S
        while not self.is_open and time.monotonic() < deadline:
            time.sleep(0.002)

    async def wait(self) -> None:
        await until(lambda: self.is_open)


thinking = Gate()
"""Holds up the steps of `thinker`."""


@holdfast.strategy
async def single(ctx: Context) -> Any:
    token = str(ctx.uuid())
    first = await ctx.llm(f"{ctx['name']}: first", token=token)
    second = await ctx.llm(f"{ctx['name']}: second after {first}")
    return [first, second, len(token)]


@holdfast.strategy
async def batch(ctx: Context) -> Any:
    answers = await ctx.llm_batch([f"{ctx['name']}: item {n}" for n in range(3)])
    ctx.progress(1, 2, "batch")
    return [answers, await ctx.llm(f"{ctx['name']}: about {len(answers)} answers")]


@holdfast.strategy
async def gathered(ctx: Context) -> Any:
    chance = ctx.random.random()
    both = await asyncio.gather(ctx.llm(f"{ctx['name']}: left"), ctx.llm(f"{ctx['name']}: right"))
    ctx.log("both are here")
    ctx.stats.record("chance", chance)
    return both


@holdfast.strategy
async def tooled(ctx: Context) -> Any:
    return [await _called(ctx, ctx["tool"], "once"), await ctx.llm(f"{ctx['name']}: after the tool")]


@holdfast.strategy
async def queued(ctx: Context) -> Any:
    return await asyncio.gather(_called(ctx, "queued", "one"), _called(ctx, "queued", "two"))


async def _called(ctx: Context, tool: str, what: str) -> Any:
    try:
        return await ctx.tool(tool, what=what)
    except QueryFailedError as error:
        return error.code


@holdfast.strategy
async def sleeper(ctx: Context) -> Any:
    await ctx.sleep(0.04)
    return await ctx.llm(f"{ctx['name']}: after the sleep")


@holdfast.strategy
async def impatient(ctx: Context) -> Any:
    try:
        async with asyncio.timeout(0.04):
            return await ctx.llm(f"{UNANSWERED} {ctx['name']}")
    except TimeoutError:
        return await ctx.llm(f"{ctx['name']}: out of patience")


@holdfast.strategy
async def parent(ctx: Context) -> Any:
    try:
        told = await ctx.child(sibling, {"name": f"{ctx['name']}'s child"})
    except QueryFailedError as error:
        told = error.code
    return [told, await ctx.llm(f"{ctx['name']}: after the child")]


@holdfast.strategy
async def sibling(ctx: Context) -> Any:
    return [ctx["name"], await ctx.llm(f"{ctx['name']}: as a child")]


@holdfast.strategy
async def counter(ctx: Context) -> Any:
    before = await ctx.state.update("count", _plus_one)
    await ctx.llm(f"{ctx['name']}: between")
    after = await ctx.state.update("count", _plus_one)
    await ctx.state.set("last", ctx["name"])
    return [before, after]


def _plus_one(value: Any) -> Any:
    return (value or 0) + 1


@holdfast.strategy
async def thinker(ctx: Context) -> Any:
    time.sleep(0.03)  # noqa: ASYNC251 - longer than is prompt, so that its next step is run in a thread
    first = await ctx.llm(f"{ctx['name']}: to think about")
    thinking.block()
    return [first, await ctx.llm(f"{ctx['name']}: thought")]


@holdfast.strategy
async def busy(ctx: Context) -> Any:
    return await asyncio.gather(ctx.tool("held", what="on"), ctx.llm(f"{ctx['name']}: meanwhile"))


@holdfast.strategy
async def idle(ctx: Context) -> Any:
    return await ctx.llm(f"{UNANSWERED} {ctx['name']}")


# --- effects and the host --------------------------------------------------------------------------


class World:
    """What lies outside a session: receivers of effects, which remember the keys they have seen in the ledger."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self._directory = directory
        self._ledger = ledger
        self.held = Gate()

    def drive(self, hf: Holdfast) -> None:
        for name in ("never", "safe", "idempotent", "ask"):
            hf.drive(name, self._tool(name), recovery=name)
        hf.drive("confirm", self._tool("confirm"), recovery="confirm", probe=self._probe)
        hf.drive("queued", self._tool("queued"), recovery="never", concurrency=1)
        hf.drive("held", self._tool("held"), recovery="safe")
        hf.drive("late", self._tool("late"), recovery="idempotent")

    def _tool(self, tool: str) -> Callable[..., Awaitable[str]]:
        async def effect(what: str, attempt: Attempt) -> str:
            self._ledger.note(
                "effect", attempt.session_id, query=attempt.query_id, tool=tool, key=attempt.key, number=attempt.number
            )
            if tool in ("held", "late"):
                await self.held.wait()
            return did(tool, what)

        return effect

    def _probe(self, attempt: Attempt) -> str | NotDone:
        seen = read_ledger(self._directory)
        done = any(line["what"] == "effect" and line["key"] == attempt.key for line in seen)
        return did("confirm", "once") if done else NotDone()


def did(tool: str, what: str) -> str:
    return f"{tool} did {what}"


class Host:
    """Whoever answers from outside: always the same to the same question."""

    def __init__(self, hf: Holdfast, ledger: Ledger) -> None:
        self.hf = hf
        self._ledger = ledger

    async def start(self, session: str, *, wait: float | None = None) -> Event:
        program, ctx = PROGRAMS[session]
        event = await self.hf.start(program, ctx={"name": session, **ctx}, id=session, wait=wait)
        self._ledger.note("started", session)
        return self.shown(event)

    async def feed(self, session: str, queries: Sequence[Query]) -> Event:
        answers = {query.id: answer_to(query) for query in queries}
        event = await self.hf.feed(session, answers, by="host")
        for asked, answer in answers.items():
            self._ledger.note("acked", session, query=asked, content=answer)
        return self.shown(event)

    async def converse(self, event: Event) -> Event:
        """Answer until there is nothing more to answer."""
        while isinstance(event, PausedEvent):
            event = await self.feed(event.session_id, event.queries)
        return event

    async def cancel(self, session: str) -> None:
        await self.hf.cancel(session, "enough")
        self._ledger.note("cancelled", session)

    async def fork(self, session: str) -> Event:
        event = await self.hf.fork("single", at=FORKED_AT, id=session)
        self._ledger.note("started", session)
        return self.shown(event)

    def shown(self, event: Event) -> Event:
        """Note which queries an event puts to the host."""
        if isinstance(event, PausedEvent):
            for query in event.queries:
                self.put(event.session_id, query)
        return event

    def put(self, session: str, query: Query) -> None:
        self._ledger.note("put", session, query=query.id)

    async def asked(self, session: str) -> list[Query]:
        """Wait until a session asks the host something."""
        while True:
            if queries := await pending_for_host(self.hf.store, session):
                for query in queries:
                    self.put(session, query)
                return queries
            await asyncio.sleep(0.005)


async def pending_for_host(store: Store, session: str) -> list[Query]:
    """What a session asks that a host would answer, and no driver or clock."""
    pending = (await store.load(session)).pending.values()
    return [each.query for each in pending if is_for_host(each.query, each.attempts)]


def is_for_host(query: Query, attempts: int) -> bool:
    match query:
        case LlmQuery(prompt=prompt):
            return not prompt.startswith(UNANSWERED)
        case ToolQuery(name="ask"):
            return attempts > 0
        case _:
            return False


def answer_to(query: Query) -> str:
    match query:
        case LlmQuery(prompt=prompt):
            return f"<{prompt}>"
        case ToolQuery(name=tool, arguments=arguments):
            return did(tool, arguments["what"])
        case _:
            raise AssertionError(f"{query} is not for a host")


# --- the scenario ----------------------------------------------------------------------------------

PROGRAMS: dict[str, tuple[Strategy, dict[str, str]]] = {
    "single": (single, {}),
    "batch": (batch, {}),
    "gather": (gathered, {}),
    "never": (tooled, {"tool": "never"}),
    "safe": (tooled, {"tool": "safe"}),
    "idempotent": (tooled, {"tool": "idempotent"}),
    "confirm": (tooled, {"tool": "confirm"}),
    "ask": (tooled, {"tool": "ask"}),
    "queued": (queued, {}),
    "timer": (sleeper, {}),
    "deadline": (impatient, {}),
    "child": (parent, {}),
    "state": (counter, {}),
    "slow": (thinker, {}),
    "cancel": (parent, {}),
    "stop": (thinker, {}),
    "takeover": (tooled, {"tool": "late"}),
    "busy": (busy, {}),
    "idle": (idle, {}),
}
"""The sessions that are started in the scenario, by their ids: each is a step of its own."""

STEPS = (*PROGRAMS, "fork")

FORKED_AT = 3
"""Position in the journal of `single` after its first answer."""

CANCELLED = ("cancel", "stop")


class Scenario:
    """Steps, one after the other. The order of the seams is the same in every run."""

    def __init__(self, url: str, directory: Path, seams: SeamObserver, steps: Sequence[str]) -> None:
        self._url = url
        self._directory = directory
        self._steps = steps
        self._seams = seams
        self._ledger = Ledger(directory, "child")
        self._world = World(directory, self._ledger)

    def _open(self, **options: Any) -> Holdfast:
        store = self._seams.guard(open_store(self._url))
        return open_holdfast(store, lease_ms=LEASE_MS, seam=self._seams, **options)

    async def run(self) -> None:
        async with asyncio.timeout(HANG_S), self._open() as hf:
            self._world.drive(hf)
            host = Host(hf, self._ledger)
            for step in self._steps:
                await self._step(host, step)

    async def _step(self, host: Host, session: str) -> None:
        self._seams.step = session
        await getattr(self, f"_{session}", self._converse)(host, session)
        await until(lambda: has_ended(host.hf.store, session))

    async def _converse(self, host: Host, session: str) -> None:
        """The usual step: the host answers until the session has ended."""
        await host.converse(await host.start(session))

    async def _single(self, host: Host, session: str) -> None:
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        first = event.queries
        event = await host.feed(session, first)
        again = await host.hf.feed(session, {query.id: answer_to(query) for query in first})
        assert again.replayed
        await host.converse(event)

    async def _batch(self, host: Host, session: str) -> None:
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        await host.feed(session, event.queries[:1])
        await host.converse(await host.feed(session, event.queries[1:]))

    async def _deadline(self, host: Host, session: str) -> None:
        await host.start(session)
        await host.converse(await host.feed(session, await host.asked(session)))

    async def _child(self, host: Host, session: str) -> None:
        await host.start(session)
        child = f"{session}.q-0"
        await host.converse(await host.feed(child, await host.asked(child)))
        await host.converse(await host.feed(session, await host.asked(session)))

    async def _slow(self, host: Host, session: str) -> None:
        event = await host.start(session)
        thinking.close()
        self._seams.at("after feed", thinking.open)
        await host.converse(event)

    async def _cancel(self, host: Host, session: str) -> None:
        await host.start(session)
        child = f"{session}.q-0"
        await host.asked(child)
        await host.cancel(session)
        await until(lambda: has_ended(host.hf.store, child))

    async def _stop(self, host: Host, session: str) -> None:
        """Another process cancels a session while its owner computes."""
        self._seams.at("after feed", lambda: None)
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        thinking.close()
        feeding = asyncio.create_task(host.feed(session, event.queries))
        async with self._open(upkeep=Upkeep(on=False)) as other:
            await until(lambda: is_owned(other.store, session))
            await Host(other, self._ledger).cancel(session)
        await feeding
        thinking.open()

    async def _takeover(self, host: Host, session: str) -> None:
        """An owner lets go of a session whose effect is under way."""
        world = World(self._directory, self._ledger)
        world.held.close()
        async with self._open(upkeep=Upkeep(on=False)) as gone:
            world.drive(gone)
            begun = Gate()
            begun.close()
            self._seams.at("before effect", begun.open)
            await Host(gone, self._ledger).start(session, wait=0)
            await begun.wait()
        event = host.shown(await host.hf.resume(session))
        await host.converse(event)

    async def _busy(self, host: Host, session: str) -> None:
        """Another process answers a query of a session whose owner holds on to it for the sake of an effect."""
        self._world.held.close()
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        async with self._open(upkeep=Upkeep(on=False)) as other:
            await Host(other, self._ledger).feed(session, event.queries)
        self._seams.at("after renew", self._world.held.open)

    async def _idle(self, host: Host, session: str) -> None:
        await host.start(session)
        await asyncio.sleep(0.01)
        async with self._open(upkeep=Upkeep(idle_ttl_ms=1)) as janitor:
            await until(lambda: has_ended(janitor.store, session))

    async def _fork(self, host: Host, session: str) -> None:
        await host.converse(await host.fork(session))


# --- a process that finishes what another has left -------------------------------------------------


async def finish(url: str, directory: Path, steps: Sequence[str], *, patient: bool) -> None:
    """Bring every session of these steps to its end. A patient finisher first waits until all leases have run out."""
    ledger = Ledger(directory, "finisher")
    world = World(directory, ledger)
    async with asyncio.timeout(HANG_S):
        await _note_what_is_recorded(url, ledger, patient)
        async with open_holdfast(url, lease_ms=LEASE_MS) as hf:
            world.drive(hf)
            host = Host(hf, ledger)
            await _begin_the_rest(host, steps)
            while left := [row for row in (await hf.sessions()).rows if _is_left(row)]:
                for row in left:
                    await _answer(host, row)
                await asyncio.sleep(0.01)
            await _until_mail_is_taken(hf)
        async with open_holdfast(url, lease_ms=LEASE_MS) as hf:  # what was begun while the other one closed
            await until(lambda: _nothing_is_left(hf))
        if "idle" in steps:
            async with open_holdfast(url, upkeep=Upkeep(idle_ttl_ms=1)) as janitor:
                await until(lambda: has_ended(janitor.store, "idle"))


async def _nothing_is_left(hf: Holdfast) -> bool:
    return not any(_is_left(row) for row in (await hf.sessions()).rows)


def _is_left(row: SessionRow) -> bool:
    return row.session_id != "idle" and not row.summary.state.is_terminal


async def _answer(host: Host, row: SessionRow) -> None:
    store, session, parent = host.hf.store, row.session_id, row.summary.parent
    if parent is not None and await has_ended(store, parent):
        return  # nobody waits for it; it has to be ended without the help of the host
    if queries := await pending_for_host(store, session):
        for query in queries:
            host.put(session, query)
        await host.feed(session, queries)


async def _note_what_is_recorded(url: str, ledger: Ledger, patient: bool) -> None:
    async with open_store(url) as store:
        if patient:
            await until(lambda: nobody_owns_any(store))
        for row in (await store.sessions()).rows:
            session = await store.load(row.session_id)
            ledger.note("found", session.id, settled=list(session.settled), state=row.summary.state)


async def _begin_the_rest(host: Host, steps: Sequence[str]) -> None:
    """Do again what the host had asked for without hearing that it was done."""
    store = host.hf.store
    for session in steps:
        exists = await _exists(store, session)
        if session == "fork" and not exists:
            if await store.position("single") < FORKED_AT:
                await host.feed("single", await host.asked("single"))
            await host.fork(session)
        elif not exists:
            await host.start(session, wait=0)
        if session in CANCELLED and not await has_ended(store, session):
            mail = [item.message for item in await store.mailbox(session)]
            if not any(isinstance(message, CancelMessage) for message in mail):
                await host.cancel(session)


async def _exists(store: Store, session: str) -> bool:
    try:
        await store.session(session)
    except SessionNotFoundError:
        return False
    return True


async def _until_mail_is_taken(hf: Holdfast) -> None:
    """Mail should not wait for ever."""

    async def is_taken() -> bool:
        return not any([await hf.store.mailbox(row.session_id) for row in (await hf.sessions()).rows])

    with contextlib.suppress(TimeoutError):  # what was left is told by those who look at the store afterwards
        await until(is_taken)


# --- an owner that is paused -----------------------------------------------------------------------


async def own(url: str, directory: Path, session: str) -> None:
    """Own a session, in an effect or a step that goes on until the file `go` is there; then look what became of it."""
    ledger = Ledger(directory, "owner")
    world = World(directory, ledger)
    seams = SeamObserver(
        directory / "trace", refused=lambda session, error: ledger.note("refused", session, error=error)
    )
    store = seams.guard(open_store(url))
    async with asyncio.timeout(HANG_S), open_holdfast(store, lease_ms=LEASE_MS) as hf:
        world.drive(hf)
        host = Host(hf, ledger)
        world.held.close()
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        if session == "slow":
            thinking.close()
            await hf.feed(session, {query.id: answer_to(query) for query in event.queries}, wait=0)
        ledger.note("owning", session)
        await until((directory / "go").exists)
        world.held.open()
        thinking.open()
        await until(lambda: has_ended(store, session))
        await asyncio.sleep(0.2)
        ledger.note("result", session, content=await hf.result(session))


# --- jobs ------------------------------------------------------------------------------------------


def scenario_job(url: str, directory: Path, steps: Sequence[str], deadly: Seam | None) -> None:
    _run(directory, Scenario(url, directory, SeamObserver(directory / "trace", deadly), steps).run())


def finish_job(url: str, directory: Path, steps: Sequence[str], patient: bool) -> None:
    _run(directory, finish(url, directory, steps, patient=patient))


def own_job(url: str, directory: Path, session: str) -> None:
    _run(directory, own(url, directory, session))


def _run(directory: Path, work: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end; what goes wrong is left in the file `error`."""
    code = 1
    try:
        asyncio.run(work)
        code = 0
    except BaseException:
        with (directory / "error").open("a") as file:
            traceback.print_exc(file=file)
    os._exit(code)  # a strategy in a thread is not waited for
