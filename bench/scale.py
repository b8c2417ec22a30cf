"""The benchmark of size: what stores of many sessions, and sessions of many records, cost, idle and at work.

Figures are CPU time where they can be: that depends less on what else the machine does. `HOLDFAST_BENCH_SESSIONS` says
how many sessions the large stores have: 20,000 by default, which takes some ten minutes, or 1,000,000, which takes some
hours and 3 GB of disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from bench import Figure, Plan, Round, Target, UnavailableError, latencies
from bench.loader import SERVICE, load
from holdfast.agent.runtime import Runtime
from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import Store, open_store
from holdfast.testing.loop_meter import LoopMeter
from holdfast.testing.provider import ScriptedProvider

SESSIONS = int(os.environ.get("HOLDFAST_BENCH_SESSIONS") or 20_000)
"""Sessions of each large store."""

IDLE_S = 10.0
"""Seconds for which a process is watched that has nothing to do."""

FIRST_S = 6.0
"""Seconds before that, for what it does once when it begins."""

SAY_S = 10.0
"""Seconds between two lines of progress."""

KINDS = ("model", "tool", "person", "timer", "chat", "parent")
"""Kinds of paused sessions; see `bench.loader`."""

RECORDS = ((1_000, 0.03), (10_000, 0.15), (100_000, 1.5))
"""Records of a long session, and the seconds that the first feed of it may take."""

PENDING = 5_000
"""Queries that one session waits for at once."""

PICKED_UP = 60
"""Sessions whose way to another process is timed."""


@strategy(name="scale-long")
async def asks_for_ever(ctx: Context) -> None:
    """Asks one question after the other."""
    while True:
        await ctx.llm("and then?")


@strategy(name="scale-wide")
async def asks_at_once(ctx: Context) -> list[str]:
    """Asks many questions at once."""
    return list(await ctx.llm_batch([f"question {number}" for number in range(PENDING)]))


@strategy(name="scale-naps")
async def naps(ctx: Context) -> str:
    """Sleeps for a moment."""
    await ctx.sleep(0.3)
    return "awake"


@strategy(name="scale-asks")
async def asks_model(ctx: Context) -> str:
    """Asks whichever process has a model."""
    return str(await ctx.llm("hello?"))


def _at_most(name: str, unit: str, value: float, bound: float) -> Figure:
    return Figure(f"scale: {name}", unit, [Round(value)], targets=[Target("value", "<=", bound)])


# --- idle --------------------------------------------------------------------------------------------


async def idle(kind: str, plan: Plan) -> list[Figure]:
    """One idle process on a store of paused sessions of a kind: CPU, stalls, memory, and calls of the store."""
    figures: list[Figure] = []
    async with _stores(plan) as stores:
        for place, url_of in stores.items():
            url = await asyncio.to_thread(url_of, kind)
            name = f"{place}, {SESSIONS:,} sessions ({kind})"
            copies = SESSIONS // 2 if kind == "parent" else SESSIONS  # each parent has a child
            await load(url, kind, copies, _progress(plan, f"{name}: loaded"))
            found = await asyncio.to_thread(_watched, name, url) + await _periodic(plan, name, url)
            plan.say("; ".join(f"{each.name.rpartition(', ')[2]} {each.value:.3g} {each.unit}" for each in found))
            figures += found
            await _remove(url)
    return figures


def _watched(name: str, url: str) -> list[Figure]:
    """What a process of its own costs while it has nothing to do."""
    code = f"import asyncio, bench.scale; asyncio.run(bench.scale.watch_idle({url!r}))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    cpu, stall, memory, calls = map(float, done.stdout.split())
    return [
        _at_most(f"{name}, idle", "% of a core", cpu, 1),
        _at_most(f"{name}, longest callback", "ms of CPU", stall, 20),
        _at_most(f"{name}, memory", "MB", memory, 80),
        _at_most(f"{name}, calls of the store", "a second", calls, 5.5),
    ]


async def watch_idle(url: str) -> None:
    """Run in a process of its own: an idle worker with a model and tools. Prints what it cost."""
    async with Runtime(url, provider=ScriptedProvider([]), model="m") as runtime:
        calls = _counted_calls(runtime.mount.store)
        async with runtime.work():
            await asyncio.sleep(FIRST_S)
            calls.clear()
            with LoopMeter.running() as meter:
                spent, began = time.process_time(), time.monotonic()
                await asyncio.sleep(IDLE_S)
                cpu = 100 * (time.process_time() - spent) / (time.monotonic() - began)
            memory = _peak_memory()
            print(cpu, meter.longest_ms, memory, len(calls) / IDLE_S)


def _peak_memory() -> float:
    """The most memory that this process had (MB); that of `getrusage` includes the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise UnavailableError("the memory of a process is read from /proc")


def _counted_calls(store: Store) -> list[str]:
    """A list to which every call of a store is added from now on."""
    calls: list[str] = []
    names = [name for name in dir(Store) if getattr(getattr(Store, name), "__isabstractmethod__", False)]
    for name in names:
        if name in ("open", "close") or not asyncio.iscoroutinefunction(work := getattr(store, name)):
            continue

        async def counted(*args: object, _name: str = name, _work: Callable[..., Awaitable[object]] = work) -> object:
            calls.append(_name)
            return await _work(*args)

        setattr(store, name, counted)
    return calls


async def _periodic(plan: Plan, name: str, url: str) -> list[Figure]:
    """The slowest of the statements that upkeep makes; of each the quickest time, without what else the machine did."""
    async with open_store(url) as store:
        services = [SERVICE]
        now = time.time_ns() // 1_000_000
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "lost": store.lost,
            "release_expired": store.release_expired,
            "due": lambda: store.due(now, 100, services=services),
            "next due": lambda: store.due(2**61, 1, services=services, after=now),
            "open_needs": lambda: store.open_needs(services),
            "open_sessions": lambda: store.open_sessions("run", services, limit=100),
            "open_mail": lambda: store.open_mail(services, 100),
            "open_children": lambda: store.open_children(services, limit=50),
            "prune": lambda: store.prune(0, 50, services=services),
        }
        quickest: dict[str, float] = {}
        for what, ask in asked.items():
            await ask()
            took = []
            for _ in range(15):
                began = time.perf_counter()
                await ask()
                took.append(1000 * (time.perf_counter() - began))
            quickest[what] = min(took)
    plan.say(f"scale: {name}: " + ", ".join(f"{what} {ms:.2f} ms" for what, ms in quickest.items()))
    return [_at_most(f"{name}, slowest periodic statement", "ms", max(quickest.values()), 5)]


# --- long and wide sessions ----------------------------------------------------------------------------


async def long(plan: Plan) -> list[Figure]:
    """The first feed of long sessions in a new engine, a look at one, and an answer to one of many queries."""
    figures: list[Figure] = []
    for records, bound in RECORDS:
        url = f"sqlite:///{plan.directory / f'long-{records}.db'}"
        async with open_holdfast(url, upkeep=Upkeep(on=False)) as holdfast:
            event = await holdfast.start(asks_for_ever, id="s", llm="host")
            say = _progress(plan, f"{records:,} records: written")
            for number in range(records // 2):
                event = await holdfast.feed("s", "and then")
                say(2 * number)
        assert isinstance(event, PausedEvent)
        last = event.queries[0].id
        name = f"{records:,} records"
        if records == RECORDS[-1][0]:
            for what, bound_ms in (("status", 10.0), ("the same answer again", 10.0)):
                took, _ = await _timed(url, what, f"q-{int(last[2:]) - 1}")
                figures.append(_at_most(f"{name}, {what}", "ms of CPU", 1000 * took, bound_ms))
        took, held = await _timed(url, "feed", last)
        figures.append(_at_most(f"{name}, first feed", "s of CPU", took, bound))
        figures.append(_at_most(f"{name}, longest callback", "ms of CPU", held, 50))
        plan.say(f"scale: {name}: first feed {took:.3f} s, the loop held for {held:.0f} ms")
    return [*figures, await _one_of_many(plan)]


async def _timed(url: str, what: str, asked: str) -> tuple[float, float]:
    """CPU seconds that something takes in a new engine, and the CPU milliseconds of the longest callback."""
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as holdfast:
        await holdfast.sessions(limit=1)  # the connections are there
        with LoopMeter.running() as meter:
            spent = time.process_time()
            await (holdfast.status("s") if what == "status" else holdfast.feed("s", {asked: "and then"}))
            return time.process_time() - spent, meter.longest_ms


async def _one_of_many(plan: Plan) -> Figure:
    async with open_holdfast(f"sqlite:///{plan.directory / 'wide.db'}", upkeep=Upkeep(on=False)) as holdfast:
        event = await holdfast.start(asks_at_once, llm="host")
        spent = time.process_time()
        for number in range(200):
            await holdfast.feed(event.session_id, {f"q-{number}": "yes"})
        took = 1000 * (time.process_time() - spent) / 200
    return _at_most(f"a feed of one of {PENDING:,} pending queries", "ms of CPU", took, 2)


# --- ends ----------------------------------------------------------------------------------------------


async def ends(plan: Plan) -> list[Figure]:
    """Deletions a second, the longest step, and what is left of a file."""
    figures: list[Figure] = []
    count = min(SESSIONS, 100_000)
    async with _stores(plan) as stores:
        for place, url_of in stores.items():
            url = await asyncio.to_thread(url_of, "ended")
            await load(url, "ended", count, _progress(plan, f"{place}, {count:,} ended sessions: loaded"))
            path = Path(url.removeprefix("sqlite:///")) if place == "sqlite" else None
            before = path.stat().st_size if path else 0
            async with open_store(url) as store:
                # A server's own CPU time is not seen here.
                clock, unit = (time.process_time, "of CPU") if place == "sqlite" else (time.perf_counter, "")
                rate, longest = await _deleted(store, count, clock)
                while await store.give_back_space():
                    pass
            bound = [Target("value", ">=", 2_000)]  # retention rests as long as it works
            figures.append(Figure(f"scale: {place}, deletions", f"a second {unit}", [Round(rate)], targets=bound))
            figures.append(_at_most(f"{place}, longest step of deletions", "ms of CPU", longest, 50))
            if path:
                figures.append(_at_most("sqlite, file left", "%", 100 * path.stat().st_size / before, 40))
    return figures


async def _deleted(store: Store, count: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Sessions deleted in a second without the rests in between, and the CPU milliseconds of the longest step."""
    longest = 0.0
    began = clock()
    while True:
        spent = time.process_time()
        gone = await store.prune(2**50, 50)
        longest = max(longest, 1000 * (time.process_time() - spent))
        if len(gone) < 50:
            return count / (clock() - began), longest


async def doctor(plan: Plan) -> list[Figure]:
    """`holdfast doctor` on 100,000 sessions."""
    count = min(SESSIONS, 100_000)
    url = f"sqlite:///{plan.directory / 'doctor.db'}"
    await load(url, "model", count, _progress(plan, f"{count:,} sessions for doctor: loaded"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "holdfast.cli", "--store", url, "--json", "doctor"]
    began = time.monotonic()
    await asyncio.to_thread(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    name = f"doctor on {count:,} sessions"
    return [_at_most(name, "s", took, 5), Figure(f"scale: {name}, all its processes", "s of CPU", [Round(spent)])]


# --- other processes -----------------------------------------------------------------------------------


async def pickup(plan: Plan) -> list[Figure]:
    """How soon another process takes up what was left to it: timers, sessions that were let go, and messages."""
    figures: list[Figure] = []
    async with _stores(plan) as stores:
        for place, url_of in stores.items():
            url = await asyncio.to_thread(url_of, "pickup")
            async with open_holdfast(url, upkeep=Upkeep(on=False)) as here, _other_process(url):
                await _until_served(here)
                for what, timed in (("a timer", _nap), ("a session let go", _let_go)):
                    took = sorted([await timed(here, f"{what.split()[-1]}-{number}") for number in range(PICKED_UP)])
                    p50, p99 = latencies(plan, f"{what} is picked up", f"scale: {place}", took, 200)
                    figures += [_at_most(p50.name.removeprefix("scale: "), "ms", p50.value, 60), p99]
    return figures


@contextlib.asynccontextmanager
async def _other_process(url: str) -> AsyncIterator[None]:
    code = f"import asyncio, bench.scale; asyncio.run(bench.scale.serve({url!r}))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def serve(url: str) -> None:
    """Run in a process of its own: serves sessions until its input ends."""
    async with open_holdfast(url) as holdfast:
        holdfast.drive("llm", lambda query: "hello")
        await asyncio.to_thread(sys.stdin.read)


async def _until_served(here: Holdfast) -> None:
    await here.start(asks_model, id="first", llm="any")
    await here.result("first", 60)


async def _nap(here: Holdfast, session_id: str) -> float:
    """Milliseconds from the time that a session is due until it has ended elsewhere."""
    await here.start(naps, id=session_id, wait=0)
    due = (await here.store.session(session_id)).summary.due_at
    await here.result(session_id, 60)
    return max(0.0, (await here.store.session(session_id)).summary.updated_at - (due or 0))


async def _let_go(here: Holdfast, session_id: str) -> float:
    """Milliseconds from the start of a session, which this process cannot go on with, until it has ended elsewhere."""
    await here.start(asks_model, id=session_id, llm="any", wait=0)
    row = await here.store.session(session_id)
    await here.result(session_id, 60)
    return float((await here.store.session(session_id)).summary.updated_at - row.summary.created_at)


# --- stores --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stores(plan: Plan) -> AsyncIterator[dict[str, Callable[[str], str]]]:
    """How a new store of a name is made, on SQLite and on PostgreSQL."""
    stores: dict[str, Callable[[str], str]] = {"sqlite": lambda name: f"sqlite:///{plan.directory / name}.db"}
    try:
        from holdfast.testing.postgres_server import fresh_database, postgres_server
    except ImportError:
        yield stores
        return
    with postgres_server(plan.directory, durable=True) as server:
        stores["postgres"] = lambda name: fresh_database(server)
        yield stores


async def _remove(url: str) -> None:
    """Give the disk back before the next store is made."""
    if url.startswith("sqlite:///"):
        for ending in ("", "-wal", "-shm", "-holders"):
            Path(url.removeprefix("sqlite:///") + ending).unlink(missing_ok=True)
        return
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("drop schema holdfast cascade")
    finally:
        await connection.close()


def _progress(plan: Plan, what: str) -> Callable[[int], None]:
    """Says how far something is, every few seconds."""
    next_at = time.monotonic() + SAY_S

    def say(count: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            plan.say(f"scale: {what} {count:,}")
            next_at = time.monotonic() + SAY_S

    return say


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "scale-long": long,
    "scale-ends": ends,
    "scale-doctor": doctor,
    "scale-pickup": pickup,
    **{f"scale-idle-{kind}": partial(idle, kind) for kind in KINDS},
}
