"""One phase of one peer, in the peer's interpreter: `python -m bench.peers.phases MODULE PHASE DATABASE [NUMBER]`.

Every phase runs in a process of its own, and prints its figures as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from bench import texts
from bench.peers import TEXT_BYTES, TORN, Peer, answer, expected, question

PAUSES = 20
"""Questions of a session, where nothing else is said."""

SESSIONS = 50
"""Sessions at a time, in the second half of `speed`."""

SINGLE = 5
"""Sessions one after another, in the first half."""

FLOOR_S = 0.5
"""Seconds for which bare commits are counted, before and after."""

Figures: TypeAlias = dict[str, Any]


async def speed(peer: Peer, db: Path, _: int) -> Figures:
    """Round trips per second, in one session after another and in many at a time, and bare commits in the same run."""
    await peer.open(db)
    await _run(peer, "warm", PAUSES)
    before = _floor(db)
    began = time.perf_counter()
    for number in range(SINGLE):
        await _run(peer, f"one-{number}", PAUSES)
    single = SINGLE * PAUSES / (time.perf_counter() - began)
    began = time.perf_counter()
    await asyncio.gather(*(_run(peer, f"many-{number}", PAUSES) for number in range(SESSIONS)))
    many = SESSIONS * PAUSES / (time.perf_counter() - began)
    return {"single": single, "many": many, "floor": (before + _floor(db)) / 2}


async def size(peer: Peer, db: Path, pauses: int) -> Figures:
    """Bytes of a session that is paused with so many answers behind it."""
    await peer.open(db)
    await _run(peer, "warm", 1)
    before, count = _used(db), 4
    for number in range(count):
        await _begin(peer, f"kept-{number}", pauses)
    return {"bytes": (_used(db) - before) / count}


async def prepare(peer: Peer, db: Path, pauses: int) -> Figures:
    """A session that `resume` takes up."""
    await peer.open(db)
    await _begin(peer, "left", pauses)
    return {}


async def resume(peer: Peer, db: Path, pauses: int) -> Figures:
    """Bring a session with so many answers behind it to its next question; whoever started the process times it."""
    await peer.open(db)
    began = time.perf_counter()
    shown = await peer.feed("left", pauses, answer("left", pauses))
    took = time.perf_counter() - began
    assert shown == question("left", pauses + 1), shown
    return {"feed_ms": took * 1000}


async def work(peer: Peer, db: Path, pauses: int) -> Figures:
    """Work, and say what is acknowledged, until somebody kills this process."""
    await peer.open(db)
    await peer.start("killed", pauses)
    for number in range(pauses):
        print(f"ack {number - 1}", flush=True)
        await peer.feed("killed", number, answer("killed", number))
    print(f"ack {pauses - 1}", flush=True)
    return {}


async def verify(peer: Peer, db: Path, pauses: int) -> Figures:
    """What is pending after the kill, and whether the session can be brought to its end."""
    await peer.open(db)
    pending = await peer.pending("killed")
    is_torn = pending == TORN
    if is_torn:
        await peer.mend("killed")
        pending = await peer.pending("killed")
    if not isinstance(pending, int):
        return {"pending": pauses if pending is None else -1, "torn": is_torn, "ended": pending is None}
    first, shown = pending, None
    for number in range(first, pauses):
        shown = await peer.feed("killed", number, answer("killed", number))
    return {"pending": first, "torn": is_torn, "ended": shown == ("done", expected("killed", pauses))}


async def _run(peer: Peer, session: str, pauses: int) -> None:
    """A session from its start to its end, with every question checked."""
    shown = await peer.start(session, pauses)
    for number in range(pauses):
        assert shown == question(session, number), (session, number, shown)
        shown = await peer.feed(session, number, answer(session, number))
    assert shown == ("done", expected(session, pauses)), (session, shown)


async def _begin(peer: Peer, session: str, pauses: int) -> None:
    """A session that is left with so many answers behind it."""
    await peer.start(session, pauses + 10)
    for number in range(pauses):
        await peer.feed(session, number, answer(session, number))


def _used(db: Path) -> int:
    """Bytes in use in a SQLite file, its log included."""
    with sqlite3.connect(db) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, bytes_each = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    connection.close()
    return (pages - free) * bytes_each


def _floor(db: Path) -> float:
    """Commits of one row of 2 KB per second, on a file beside the peer's."""
    path = db.with_name("floor.db")
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (body TEXT)")
    rows, commits, began = texts(2 * TEXT_BYTES), 0, time.perf_counter()
    while (took := time.perf_counter() - began) < FLOOR_S:
        connection.execute("INSERT INTO rows VALUES (?)", (rows[commits % len(rows)],))
        commits += 1
    connection.close()
    return commits / took


PHASES: dict[str, Callable[[Peer, Path, int], Awaitable[Figures]]] = {
    each.__name__: each for each in (speed, size, prepare, resume, work, verify)
}


async def main(module: str, phase: str, db: str, number: str = "0") -> None:
    figures = await PHASES[phase](import_module(f"bench.peers.{module}").peer(), Path(db), int(number))
    print(json.dumps(figures), flush=True)
    # What peers have running in the background must not decide how this ends; what counts is on disk.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
