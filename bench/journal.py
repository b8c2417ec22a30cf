"""The benchmarks of the journal: appends, folds, bytes on disk, and the time to import it all."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench import Figure, Plan, Rate, Round, Target, UnavailableError, interleave, texts
from bench.floor import ROW_BYTES, PostgresFloor, SqliteFloor, asyncpg_module, warm_up
from holdfast.core.decide import FeedMessage, GivenAnswer, decide_feed, decide_pause, decide_start
from holdfast.core.queries import LlmQuery, Value
from holdfast.core.records import Entry, LoggedRecord, Program, Record
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.core.values import encode_plain
from holdfast.store.commits import Commit
from holdfast.store.contract import Store
from holdfast.store.journal_rows import JournalPart, decode_parts, encode_commit
from holdfast.store.sqlite.store import SqliteStore

APPENDERS = 200
"""Sessions written to at once in `append-200`."""

FOLD_RECORDS = 10_000
FOLD_RECORD_BYTES = 1024

STORED_BYTES = 4 * 1024 * 1024
"""Payload written for each line of `bytes`: enough that the empty file and its tables do not count."""

STORED_SESSIONS = 50
"""Sessions that take turns in `bytes`: their index entries come in no good order, as in life."""

TRACED_APPENDS = (200, 1_800)
"""Appends under strace; the difference of two runs leaves out opening and closing."""

IMPORTS = 15

OWNER = "bench"


class Appender:
    """The owner of one session, who writes log lines to it."""

    def __init__(self, store: Store, session_id: str, lines: Sequence[str] | None = None) -> None:
        self._store = store
        self._id = session_id
        self._lines = itertools.cycle(lines or texts(ROW_BYTES))
        self._position = 0
        self._epoch: int | None = None
        start = Entry(1, _now_ms(), decide_start(Program("native", "bench")))
        self._start = start
        self._summary = summarize(Session.fold(session_id, [start]))

    async def start(self) -> None:
        await self._commit(self._start)

    async def append(self) -> None:
        at = _now_ms()
        self._summary = msgspec.structs.replace(self._summary, updated_at=at)
        await self._commit(Entry(self._position + 1, at, LoggedRecord(message=next(self._lines))))

    async def append_until(self, until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            await self.append()
            done += 1
        return done

    async def _commit(self, entry: Entry) -> None:
        receipt = await self._store.append(
            Commit(
                session_id=self._id,
                expected=self._position,
                entries=[entry],
                bodies=[encode_plain(entry.record)],
                summary=self._summary,
                owner=OWNER,
                epoch=self._epoch,
            )
        )
        self._position, self._epoch = receipt.position, receipt.epoch


async def appending(store: Store, appenders: int) -> Rate:
    """Appends per second of several appenders at once, each on a session of its own."""
    crew = [Appender(store, f"bench-{number}") for number in range(appenders)]
    for appender in crew:
        await appender.start()

    async def rate(seconds: float) -> float:
        began = time.perf_counter()
        done = await asyncio.gather(*(appender.append_until(began + seconds) for appender in crew))
        return sum(done) / (time.perf_counter() - began)

    return rate


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- appends ---------------------------------------------------------------------------------------


async def append_1(plan: Plan) -> list[Figure]:
    """One writer, one session, SQLite: against raw commits of one row."""
    path = plan.directory / "append-1.db"
    floor_path = plan.directory / "append-1-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        async with SqliteStore(str(path)) as store:
            rate = await appending(store, 1)
            await warm_up(floor_path, floor.singles)
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "append-1", floor.singles, rate)
    return _figures("append-1", "SQLite, 1 row a commit", rates, costs, Target("ratio", ">=", 0.6))


async def append_200(plan: Plan) -> list[Figure]:
    """As many writers as sessions, one process, SQLite: against raw commits of as many rows."""
    path = plan.directory / "append-200.db"
    floor_path = plan.directory / "append-200-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        async with SqliteStore(str(path)) as store:
            rate = await appending(store, APPENDERS)
            await warm_up(floor_path, floor.groups)
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "append-200", floor.groups, rate)
    return _figures("append-200", "SQLite, 200 rows a commit", rates, costs, Target("value", ">=", 12_000))


async def pg_1(plan: Plan) -> list[Figure]:
    """One writer, PostgreSQL: against raw asyncpg on one connection."""
    return await _on_postgres(plan, "pg-1", 1)


async def pg_16(plan: Plan) -> list[Figure]:
    """Sixteen writers at once, PostgreSQL: against raw asyncpg on sixteen connections."""
    return await _on_postgres(plan, "pg-16", 16)


async def _on_postgres(plan: Plan, name: str, writers: int) -> list[Figure]:
    async with _database(plan) as url:
        from holdfast.store.postgres.store import PostgresStore

        floor = PostgresFloor(url)
        await floor.open(writers)
        async with PostgresStore(url) as store:
            rate = await appending(store, writers)
            for warming in (floor.singles, rate):
                await warming(plan.seconds)
            rates, costs = await interleave(plan, name, floor.singles, rate)
        await floor.close()
    connections = "1 connection" if writers == 1 else f"{writers} connections"
    return _figures(name, f"asyncpg, {connections}", rates, costs, Target("ratio", ">=", 0.6))


def _figures(name: str, floor: str, rates: list[Round], costs: list[Round], target: Target) -> list[Figure]:
    return [Figure(name, "appends/s", rates, floor, [target]), Figure(f"{name}: CPU per append", "us", costs, floor)]


@contextlib.asynccontextmanager
async def _database(plan: Plan) -> AsyncIterator[str]:
    """The URL of an empty database on a server of our own."""
    asyncpg_module()
    try:
        from holdfast.testing.postgres_server import postgres_server

        server = postgres_server(plan.directory, durable=True)
        url = await asyncio.to_thread(server.__enter__)
    except Exception as error:
        raise UnavailableError(f"no PostgreSQL server: {str(error) or type(error).__name__}") from error
    try:
        yield url
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


# --- folds -----------------------------------------------------------------------------------------


def long_journal(session_id: str) -> Iterator[Entry]:
    """A session of `FOLD_RECORDS` records, made by the decisions of the core: a pause, its answer, a pause, …"""
    session = Session(session_id)
    lines = itertools.cycle(texts(FOLD_RECORD_BYTES))
    at = _now_ms()
    while session.position < FOLD_RECORDS:
        records: list[Record]
        if session.started is None:
            records = [decide_start(Program("native", "bench"))]
        elif session.pending:
            given = GivenAnswer(answer=Value(value=next(lines)))
            records = decide_feed(session, FeedMessage(answers=[given])).records
        else:
            records = [decide_pause(session, [LlmQuery(prompt=next(lines))], at).record]
        for record in records:
            at += 1
            entry = Entry(session.position + 1, at, record)
            session.apply(entry)
            yield entry


async def fold(plan: Plan) -> list[Figure]:
    """A long journal, from decoded entries, from stored ones, and from the file."""
    path = plan.directory / "fold.db"
    entries = list(long_journal("bench"))
    summary = summarize(Session.fold("bench", entries))
    whole = Commit(session_id="bench", expected=0, entries=entries, summary=summary, owner=OWNER)
    stored = [JournalPart(row, row.first, row.last, "bench") for row in encode_commit(whole).rows]
    async with SqliteStore(str(path)) as store:
        await _write_journal(store, "bench", entries)
        raw = sqlite3.connect(path)

        async def select_only() -> int:
            rows = raw.execute("SELECT first, at, checksum, body FROM journal ORDER BY session, first")
            return len([msgspec.json.decode(body) for *_, body in rows])

        async def folded() -> int:
            return Session.fold("bench", entries).position

        async def decoded_and_folded() -> int:
            return Session.fold("bench", decode_parts("bench", stored, {})).position

        async def loaded() -> int:
            return (await store.load("bench")).position

        folds, decodes, loads = [], [], []
        for number in range(1, plan.repeat + 1):
            folds.append(Round(await _milliseconds(folded)))
            decodes.append(Round(await _milliseconds(decoded_and_folded)))
            before = await _milliseconds(select_only)
            loads.append(Round(await _milliseconds(loaded), before, await _milliseconds(select_only)))
            figures = f"{folds[-1].value:.0f}, {decodes[-1].value:.0f}, {loads[-1].value:.0f} ms"
            plan.say(f"fold: round {number}/{plan.repeat}: {figures}")
        raw.close()
    return [
        Figure("fold: decoded entries", "ms", folds, targets=[Target("value", "<=", 60)]),
        Figure("fold: decode + fold", "ms", decodes),
        Figure("fold: load() from SQLite", "ms", loads, "SELECT and untyped JSON"),
    ]


async def _write_journal(store: Store, session_id: str, entries: Sequence[Entry]) -> None:
    session = Session(session_id)
    epoch: int | None = None
    for start in range(0, len(entries), 500):
        some = entries[start : start + 500]
        for entry in some:
            session.apply(entry)
        receipt = await store.append(
            Commit(
                session_id=session_id,
                expected=start,
                entries=some,
                summary=summarize(session),
                owner=OWNER,
                epoch=epoch,
            )
        )
        epoch = receipt.epoch


async def _milliseconds(work: Callable[[], Awaitable[int]]) -> float:
    gc.collect()  # what earlier work left behind is not ours to pay for
    began = time.perf_counter()
    found = await work()
    took = time.perf_counter() - began
    if found != FOLD_RECORDS:
        raise AssertionError(f"expected {FOLD_RECORDS} records, got {found}")
    return took * 1000


# --- bytes -----------------------------------------------------------------------------------------


async def stored_bytes(plan: Plan) -> list[Figure]:
    """Bytes at rest for each byte of payload, and what one append writes and syncs."""
    figures = []
    for size in (200, 1024, 2048, 20 * 1024):
        plan.say(f"bytes: records of {size} bytes")
        targets = [Target("value", "<=", 1.3)] if size == 2048 else []
        ratio = await _at_rest(plan.directory / f"bytes-{size}.db", size) / STORED_BYTES
        figures.append(Figure(f"bytes: at rest, {size:,} B records", "x payload", [Round(ratio)], targets=targets))
    return figures + _traced(plan)


async def _at_rest(path: Path, size: int) -> float:
    """The size of a file, after a checkpoint, that holds `STORED_BYTES` of payload; no two records are the same."""
    lines = texts(size, STORED_BYTES // size)
    share = len(lines) // STORED_SESSIONS
    async with SqliteStore(str(path)) as store:
        crew = [
            Appender(store, f"bench-{number}", lines[number * share : (number + 1) * share])
            for number in range(STORED_SESSIONS)
        ]
        await asyncio.gather(*(appender.start() for appender in crew))
        for _ in range(share):
            await asyncio.gather(*(appender.append() for appender in crew))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size * STORED_BYTES / (share * STORED_SESSIONS * size)


def _traced(plan: Plan) -> list[Figure]:
    """What one append and one raw commit of the same text write and sync, counted by strace; nothing without it."""
    if shutil.which("strace") is None:
        plan.say("bytes: strace is not installed, so what is written and synced is left out")
        return []
    plan.say("bytes: counting under strace")
    ours, raw = _disk_work(plan, "append_alone"), _disk_work(plan, "commit_alone")
    return [
        Figure(f"bytes: {what} per append", unit, [Round(mine, floor, floor)], "SQLite, 1 row a commit")
        for (what, unit), mine, floor in zip(
            (("log", "bytes"), ("checkpoint", "bytes"), ("syncs", "calls")), ours, raw, strict=True
        )
    ]


def _disk_work(plan: Plan, child: str) -> list[float]:
    """Bytes written to the log, bytes copied back by checkpoints, and syncs, per append."""
    fewer, more = (_trace(plan.directory / f"{child}-{count}.db", child, count) for count in TRACED_APPENDS)
    appends = TRACED_APPENDS[1] - TRACED_APPENDS[0]
    return [(b - a) / appends for a, b in zip(fewer, more, strict=True)]


def _trace(path: Path, child: str, appends: int) -> tuple[int, int, int]:
    trace = path.with_suffix(".strace")
    program = f"from pathlib import Path; from bench import journal; journal.{child}(Path({str(path)!r}), {appends})"
    calls = "trace=fsync,fdatasync,write,pwrite64"
    tracer = ["strace", "-f", "-y", "-qq", "-s", "0", "-o", str(trace), "-e", calls]
    done = subprocess.run([*tracer, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"strace does not work here: {done.stderr.strip()[-200:]}")
    log = copied = syncs = 0
    for line in trace.read_text().splitlines():
        if str(path) not in line:
            continue
        if "sync(" in line:
            syncs += 1
        elif (written := re.search(r"= (\d+)$", line)) is not None:
            if f"{path}-wal>" in line:
                log += int(written[1])
            else:
                copied += int(written[1])
    return log, copied, syncs


def append_alone(path: Path, appends: int) -> None:
    """Run in a process of its own, under strace."""

    async def run() -> None:
        async with SqliteStore(str(path)) as store:
            appender = Appender(store, "bench")
            await appender.start()
            for _ in range(appends):
                await appender.append()

    asyncio.run(run())


def commit_alone(path: Path, commits: int) -> None:
    """The same for the floor."""
    with contextlib.closing(SqliteFloor(path)) as floor:
        for _ in range(commits):
            floor.commit_one()


# --- imports ---------------------------------------------------------------------------------------


async def import_time(plan: Plan) -> list[Figure]:
    """A Python that imports, less a Python that does nothing."""
    programs = {
        "import holdfast": "import holdfast",
        "import holdfast.store.sqlite.store": "import holdfast.store.sqlite.store",
    }
    rounds: dict[str, list[Round]] = {name: [] for name in programs}
    for program in ("pass", *programs.values()):
        _run_python(program)  # compiles what has changed
    for number in range(1, IMPORTS + 1):
        for name, program in programs.items():
            nothing = _run_python("pass")
            rounds[name].append(Round(_run_python(program) - nothing))
        if number % 5 == 0:
            plan.say(f"import-time: round {number}/{IMPORTS}")
    targets = {"import holdfast": [Target("value", "<=", 100)]}
    return [Figure(f"import-time: {name}", "ms", rounds[name], targets=targets.get(name, [])) for name in programs]


def _run_python(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return (time.perf_counter() - began) * 1000


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "append-1": append_1,
    "append-200": append_200,
    "pg-1": pg_1,
    "pg-16": pg_16,
    "fold": fold,
    "bytes": stored_bytes,
    "import-time": import_time,
}
