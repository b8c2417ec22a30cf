"""Writing to a SQLite file: everything that waits goes into one transaction, and one fsync.

Work is a function of a connection. It checks first and writes then, so that a refusal (a `HoldfastError`) leaves no
trace and the others in the same transaction go through. Any other error undoes the transaction, and its works are done
again one by one: a bad one fails alone.

The first work in a turn of the event loop that finds nobody else writing is written at once, where it stands: handing
it over and back would cost about as much as the fsync itself (docs/decisions/004-writing-in-place.md). That path never
waits for a lock, and is left for a while whenever the disk turns out to be slow. The works that come after it in the
same turn are written at its end: one alone likewise, several by a thread of their own, while the loop goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.store.limits import GROUP_COMMIT_MAX, IN_PLACE_MAX_MS, IN_PLACE_REST

T = TypeVar("T")


class _Job:
    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs works in the order they were given, many to a transaction. Belongs to one event loop.

    `patient` waits for other writers, and is used by the thread; `in_place` must be set never to wait.
    """

    def __init__(self, patient: sqlite3.Connection, in_place: sqlite3.Connection, path: str) -> None:
        self._patient = patient
        self._in_place = in_place
        self._path = path
        self._fresh: list[_Job] = []
        self._flush_is_due = False
        self._groups: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._with_thread = 0
        self._rest_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """A future of the work's result, done once the result is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = _Job(work, future)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
            if not self._with_thread and self._write_in_place(job):
                return future
        self._fresh.append(job)
        return future

    async def close(self) -> None:
        """Do all work that was submitted, then end."""
        self._flush()
        self._groups.put(None)
        await asyncio.to_thread(self._thread.join)

    def _flush(self) -> None:
        self._flush_is_due = False
        jobs = [job for job in self._fresh if not job.future.cancelled()]
        self._fresh = []
        if len(jobs) == 1 and not self._with_thread and self._write_in_place(jobs[0]):
            return
        for start in range(0, len(jobs), GROUP_COMMIT_MAX):
            group = jobs[start : start + GROUP_COMMIT_MAX]
            self._with_thread += 1
            self._groups.put(group)

    def _write_in_place(self, job: _Job) -> bool:
        """Write one work here and now; False, with nothing done, if that is not possible."""
        began = self._loop.time()
        if began < self._rest_until:
            return False
        try:
            self._in_place.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            return False  # somebody else is writing, or the thread will find out what is wrong
        self._transact(self._in_place, [job])
        job.settle()
        took = self._loop.time() - began
        if took * 1000 > IN_PLACE_MAX_MS:
            self._rest_until = self._loop.time() + took * IN_PLACE_REST
        return True

    def _run(self) -> None:
        while (jobs := self._groups.get()) is not None:
            self._commit(jobs)
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everyone who waited
                self._loop.call_soon_threadsafe(self._settle, jobs)

    def _settle(self, jobs: Sequence[_Job]) -> None:
        self._with_thread -= 1
        for job in jobs:
            job.settle()

    def _commit(self, jobs: list[_Job]) -> None:
        try:
            self._patient.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            for job in jobs:
                job.error = error
        else:
            if not self._transact(self._patient, jobs):
                for job in jobs:
                    self._commit([job])

    def _transact(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """Do the works in the transaction that was begun; False if it was undone and they should be tried alone."""
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = job.work(connection)
                except HoldfastError as refusal:
                    job.error = refusal
            connection.execute("COMMIT")
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            jobs[0].error = error
            return len(jobs) == 1
        # Tells watchers in other processes (see sqlite.notify); the commit is visible by now.
        with contextlib.suppress(OSError):
            os.utime(self._path)
        return True
