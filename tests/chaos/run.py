"""`python -m tests.chaos.run`: 60 s of trouble on each store, after which every session ends or says what it waits for.

Processes are killed and stopped, connections dropped, rows and files locked, the disk filled, and clocks set: seeded,
one after the other. Each fault has an end. Then all is calm, and nobody may be left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from holdfast.core.decide import FeedMessage
from holdfast.core.errors import HoldfastError, UnknownQueryError
from holdfast.core.queries import Value
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.patience import HANG_S, patience
from tests.chaos.programs import asked, driven
from tests.store.postgres.helpers import connected, end_connections

PROCESSES = 3
ASKED = 4
CALM_S = patience(5)
"""Seconds of calm after which every session has ended, or says what it waits for."""
HOUR = 3_600_000
STEPS_MS = (HOUR, 60_000, 8 * 24 * HOUR, -HOUR)


class LostAnswerError(HoldfastError):
    """An answer that was acknowledged is nowhere."""

    kind = "lost_answer"


class Chaos:
    """One run on one store."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self._folder = folder
        self._random = Random(seed)
        self._clock = folder / "clock"
        self._processes: list[asyncio.subprocess.Process] = []
        self.started: list[str] = []
        self.acknowledged: Counter[str] = Counter()
        """Answers that were acknowledged, by session."""
        self.faults: Counter[str] = Counter()
        self.early: Counter[str] = Counter()
        """How often a client answered a question that was not asked yet: a step that a busy machine has stalled is run
        in a thread, and its answer is acknowledged first; or the owner has not taken it from the mailbox yet."""

    # --- processes -----------------------------------------------------------------------------------

    async def _start_process(self) -> asyncio.subprocess.Process:
        arguments = [sys.executable, "-m", "tests.chaos.child", self.url, str(self._clock)]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        async with asyncio.timeout(HANG_S):
            await process.stdout.readline()
        return process

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self._processes = list(await asyncio.gather(*(self._start_process() for _ in range(PROCESSES))))
        try:
            yield
        finally:
            for process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    # --- faults --------------------------------------------------------------------------------------

    async def kill(self) -> None:
        number = self._random.randrange(PROCESSES)
        with contextlib.suppress(ProcessLookupError):
            self._processes[number].kill()
        await self._processes[number].wait()
        self._processes[number] = await self._start_process()

    async def stop(self) -> None:
        process = self._random.choice(self._processes)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._random.choice((0.5, 2.0, 4.0)))
            process.send_signal(signal.SIGCONT)

    async def set_clock(self) -> None:
        self._clock.write_text(str(self._random.choice(STEPS_MS)))
        await asyncio.sleep(self._random.uniform(0.5, 3.0))
        self._clock.write_text("0")

    async def drop_connections(self) -> None:
        await end_connections(self.url)

    async def lock(self) -> None:
        held_s = self._random.uniform(0.5, 2.0)
        if self.url.startswith("postgresql"):
            with contextlib.suppress(Exception):  # it is dropped like any other connection
                async with connected(self.url) as connection, connection.transaction():
                    await connection.execute("select from holdfast.sessions order by num desc limit 3 for update")
                    await asyncio.sleep(held_s)
            return
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        with contextlib.closing(connection), contextlib.suppress(sqlite3.Error):
            connection.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(held_s)
            connection.execute("ROLLBACK")

    async def fill_disk(self) -> None:
        filler = self._folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4_096)
        await asyncio.sleep(self._random.uniform(1.0, 3.0))
        filler.unlink()

    @property
    def _path(self) -> str:
        return self.url.removeprefix("sqlite:///")

    def _known_faults(self) -> list[Callable[[], Awaitable[None]]]:
        known: list[Callable[[], Awaitable[None]]] = [self.kill, self.stop, self.set_clock, self.lock]
        if self.url.startswith("postgresql"):
            known.append(self.drop_connections)
        elif os.path.ismount(self._folder):
            known.append(self.fill_disk)
        return known

    # --- the run -------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> list[str]:
        """Make trouble for a while; gives the problems that are left after it."""
        async with open_holdfast(self.url, upkeep=Upkeep(on=False)) as client, self._running():
            over = asyncio.Event()
            clients = [asyncio.create_task(self._answer(client, f"asked-{n}", over)) for n in range(ASKED)]
            clients.append(asyncio.create_task(self._begin_more(client, over)))
            deadline = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < deadline:
                fault = self._random.choice(self._known_faults())
                self.faults[getattr(fault, "__name__", "")] += 1
                await fault()
                await asyncio.sleep(self._random.uniform(0.1, 0.5))
            over.set()
            await asyncio.gather(*clients)
            return await self._left_behind(client)

    async def _begin_more(self, client: Holdfast, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            await self._insist(client.start, driven, id=f"driven-{number}", wait=0)
            self.started.append(f"driven-{number}")
            number += 1
            await asyncio.sleep(0.2)

    async def _answer(self, client: Holdfast, session_id: str, over: asyncio.Event) -> None:
        await self._insist(client.start, asked, id=session_id, llm="host", wait=0)
        number = 0
        while not over.is_set():
            while True:
                try:
                    await self._insist(client.feed, session_id, {f"q-{number}": Value(value=f"{number}")}, wait=0)
                    break
                except UnknownQueryError:
                    self.early[session_id] += 1
                    await self._insist(self._check_sent, client, session_id, number - 1)
                    await asyncio.sleep(0.05)
            number += 1
            self.acknowledged[session_id] = number
            await asyncio.sleep(0.02)

    @staticmethod
    async def _check_sent(client: Holdfast, session_id: str, number: int) -> None:
        """Raise unless the last answer is recorded, or lies in the mailbox of whoever owns the session."""
        waiting = [item.message for item in await client.store.mailbox(session_id)]
        sent = [each.query_id for message in waiting if isinstance(message, FeedMessage) for each in message.answers]
        session = await client.session(session_id)
        if f"q-{number}" in session.pending and f"q-{number}" not in sent:
            raise LostAnswerError(f"{session_id} asks q-{number} again, whose answer was acknowledged")

    @staticmethod
    async def _insist(call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return await call(*args, **kwargs)
            except StoreUnavailableError:
                await asyncio.sleep(0.05)

    async def _left_behind(self, client: Holdfast) -> list[str]:
        """What is wrong with the sessions after some seconds of calm."""
        calm = asyncio.get_running_loop().time()
        while True:
            problems = [problem for each in self.started if (problem := await self._problem(client, each))]
            problems += [problem for each in self.acknowledged if (problem := await self._lost(client, each))]
            if not problems or asyncio.get_running_loop().time() - calm > CALM_S:
                return problems
            await asyncio.sleep(0.2)

    @staticmethod
    async def _problem(client: Holdfast, session_id: str) -> str:
        status = await client.status(session_id)
        outcome = status.get("outcome")
        if outcome is None:
            return f"{session_id} has not ended, owner {status['owner']}: {status.get('waits')}"
        return "" if outcome.get("result") == 4 else f"{session_id} has ended as {outcome}"

    async def _lost(self, client: Holdfast, session_id: str) -> str:
        session = await client.session(session_id)
        wait = (await client.status(session_id)).get("waits")
        if list(session.pending) != [f"q-{self.acknowledged[session_id]}"]:
            return f"{session_id} asks {list(session.pending)} after {self.acknowledged[session_id]} answers"
        return "" if wait and wait["answers"] else f"{session_id} does not say what it waits for: {wait}"


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A small file system if one may be mounted here; otherwise the folder, whose disk is not filled."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and not subprocess.call(command, stderr=subprocess.DEVNULL)
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.call(["umount", "-l", str(folder)])


async def chaos(store: str, folder: Path, seconds: float, seed: int) -> tuple[Chaos, list[str]]:
    """A run on a store: `sqlite`, or the URL of a database."""
    url = f"sqlite:///{folder}/sessions.db" if store == "sqlite" else store
    run = Chaos(url, folder, seed)
    try:
        return run, await run.run(seconds)
    except HoldfastError as error:
        return run, [f"a client got {error!r}"]


def main() -> int:
    from holdfast.testing.postgres_server import fresh_database, running_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], action="append", help="only this one")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as home, running_server(home) as server:
        stores = {"sqlite": "sqlite", "postgresql": fresh_database(server.get_uri())}
        for name, store in stores.items():
            if options.store and name not in options.store:
                continue
            folder = Path(tempfile.mkdtemp(dir=home))
            with disk(folder):
                run, problems = asyncio.run(chaos(store, folder, options.seconds, options.seed))
            answers, early = sum(run.acknowledged.values()), sum(run.early.values())
            counts = f"{len(run.started)} sessions, {answers} answers, {early} before their question was asked"
            print(f"{name}, seed {options.seed}: {dict(run.faults)}; {counts}", flush=True)
            for problem in problems:
                print(f"  {problem}")
            failed += bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
