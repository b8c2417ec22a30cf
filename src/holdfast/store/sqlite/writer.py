"""Writing to a SQLite file: everything that waits goes into one transaction, and one fsync.

Work is a function of a connection. It checks first and writes then, so that a refusal (a `HoldfastError`) leaves no
trace and the others in the same transaction go through. Any other error undoes the transaction, and its works are done
again one by one: a bad one fails alone.

The first work in a turn of the event loop that finds nobody else writing is written at once, where it stands: handing
it over and back would cost about as much as the fsync itself (docs/decisions/004-writing-in-place.md). That path never
waits for a lock, and is left for a while whenever the disk turns out to be slow. The works that come after it in the
same turn are written at its end, or as soon as they are many: one alone likewise, several by a thread of their own,
while the loop goes on. A task that was alone with its works in the last turn may write some in a row; so a turn is not
all that one commit costs.

Quick commits (see `sqlite.quick_commits`) are written with one statement, all of a group together. Where that fails,
and where more is to be done, works are done one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.store.group_size import GroupSize
from holdfast.store.limits import GROUP_COMMIT_EARLY, GROUP_COMMIT_MAX, IN_ROW_MAX, IN_ROW_MAX_MS
from holdfast.store.sqlite.append import SqliteAppend
from holdfast.store.sqlite.file_guard import FileGuard
from holdfast.store.sqlite.file_listeners import FileListeners
from holdfast.store.sqlite.known_rows import KnownRow
from holdfast.store.sqlite.loop_patience import SLOW_S, LoopPatience
from holdfast.store.sqlite.quick_commits import (
    BEGINNINGS,
    QuickCommit,
    need_transaction,
    prepare_quick_commits,
    write_quick_commits,
)
from holdfast.store.sqlite.schema import StoreConnection

T = TypeVar("T")

Work: TypeAlias = Callable[[StoreConnection], T]


class NotHereError(Exception):
    """A work was not done, because it cannot be done here and now."""


class _Job(msgspec.Struct, eq=False):
    work: Work[Any]
    future: asyncio.Future[Any]
    is_large: bool
    quick: QuickCommit | None = None
    """The work as a quick commit, while it may be written as one by the thread."""
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs works in the order they were given, many to a transaction. Belongs to one event loop.

    `in_place` must be set never to wait. The thread, which starts when it has something to do, uses a connection that
    `connect` makes: that one waits for other writers.
    """

    def __init__(
        self,
        in_place: StoreConnection,
        connect: Callable[[], StoreConnection],
        guard: FileGuard,
        listeners: FileListeners,
    ) -> None:
        self._in_place = in_place
        self._guard = guard
        self._listeners = listeners
        self._connect = connect
        self._fresh: list[_Job] = []
        self._flush_is_due = False
        self._first: asyncio.Task[Any] | None = None
        """Who wrote first in this turn of the loop, since when, and how often in a row."""
        self._first_at = 0.0
        self._in_row = 0
        self._was_alone = False
        """Whether nobody else had works in the last turn, and whether somebody has in this."""
        self._has_others = False
        self._data_version: int | None = None
        self._groups: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._with_thread = 0
        """Works that the thread has, in all its groups."""
        self._group_size = GroupSize(GROUP_COMMIT_EARLY)
        self._waits = LoopPatience()
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None

    def write_here(self, work: Work[T]) -> T:
        """The work's result, which is durable; `NotHereError`, with nothing done, if it is to be submitted instead."""
        if self._with_thread or self._fresh:
            raise NotHereError
        began = time.monotonic()
        if began < self._waits.rests_until:
            raise NotHereError
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
            self._first, self._first_at, self._in_row = asyncio.current_task(self._loop), began, 1
        elif (
            self._was_alone
            and self._first is asyncio.current_task(self._loop)
            and self._in_row < IN_ROW_MAX
            and (began - self._first_at) * 1000 < IN_ROW_MAX_MS
        ):
            self._in_row += 1
        else:
            raise NotHereError
        return self._do_here(work, began)

    def submit(self, work: Work[T], *, is_large: bool = False) -> asyncio.Future[T]:
        """A future of the work's result, done once the result is durable. A large one is left to the thread."""
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        if not self._has_others and self._first is not asyncio.current_task(self._loop):
            self._has_others = True
        self._fresh.append(_Job(work, future, is_large))
        if len(self._fresh) >= self._group_size.early and not self._with_thread:
            self._hand_over_fresh()
        return future

    def others_wrote(self) -> bool:
        """Whether the file was written to, since this was asked last, by any other connection than that in place."""
        try:
            version = self._in_place.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return True
        before, self._data_version = self._data_version, version
        return bool(version != before)

    async def close(self) -> None:
        """Do all work that was submitted, then end."""
        self._flush()
        if self._thread is not None:
            self._groups.put(None)
            await asyncio.to_thread(self._thread.join)

    def _flush(self) -> None:
        self._was_alone, self._has_others = not self._has_others, False
        self._flush_is_due, self._first = False, None
        if not self._fresh:
            return
        if len(self._fresh) == 1 and not self._with_thread:
            (job,) = self._fresh
            if not job.is_large and not job.future.cancelled() and self._write_in_place(job):
                self._fresh = []
                return
        self._hand_over_fresh()

    def _hand_over_fresh(self) -> None:
        jobs, self._fresh = [job for job in self._fresh if not job.future.cancelled()], []
        for start in range(0, len(jobs), GROUP_COMMIT_MAX):
            self._hand_over(jobs[start : start + GROUP_COMMIT_MAX])

    def _hand_over(self, group: list[_Job]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-sqlite-writer", daemon=True)
            self._thread.start()
        for job in group:
            if isinstance(job.work, SqliteAppend):
                job.quick = job.work.quick()
        self._with_thread += len(group)
        self._group_size.begun(self._with_thread)
        self._groups.put(group)

    def _write_in_place(self, job: _Job) -> bool:
        """Write one work here and now; False, with nothing done, if that is not possible."""
        began = time.monotonic()
        if began < self._waits.rests_until:
            return False
        try:
            job.result = self._do_here(job.work, began)
        except NotHereError:
            return False
        except Exception as error:
            job.error = error
        job.settle()
        return True

    def _do_here(self, work: Work[T], began: float) -> T:
        """Do a work in a transaction of its own, on the connection that never waits."""
        result: Any = None
        try:
            quick = work.quick() if isinstance(work, SqliteAppend) and began < self._guard.next_look_s else None
            if quick is not None:
                result = self._write_here(quick, began)
            if result is None:
                result = self._transact_here(work, began)
        finally:
            if (ended := time.monotonic()) - began > SLOW_S:
                self._waits.waited(began, ended)
        self._listeners.tell(ended)
        return cast(T, result)

    def _write_here(self, commit: QuickCommit, began: float) -> KnownRow | None:
        """Write a quick commit; None, with nothing done, if the row of its session is not as it is known."""
        connection = self._in_place
        try:
            if not connection.has_shapes:
                prepare_quick_commits(connection)
            if commit.shape is BEGINNINGS:
                return self._transact_here(partial(write_quick_commits, commits=[commit]), began)[0]
            self._guard.check_file()
            connection.quick.execute(commit.shape.single, commit.values)
            return commit.row
        except sqlite3.IntegrityError:
            return None
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                raise NotHereError from None
            raise

    def _transact_here(self, work: Work[T], began: float) -> T:
        connection = self._in_place
        run = connection.quick.execute
        try:
            run("BEGIN IMMEDIATE")
        except sqlite3.Error:
            raise NotHereError from None  # somebody else is writing, or the thread will find out what is wrong
        try:
            if began >= self._guard.next_look_s:
                self._guard.check_contents(connection, began)
            result = work(connection)
            self._guard.check_file()
            run("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return result

    def _run(self) -> None:
        patient: StoreConnection | None = None
        while (jobs := self._groups.get()) is not None:
            try:
                patient = patient or self._connect_patient()
            except Exception as error:
                for job in jobs:
                    job.error = error
            else:
                self._commit(patient, jobs)
                if any(job.is_large for job in jobs):
                    with contextlib.suppress(sqlite3.Error):  # or the next small work would have to do it, in place
                        patient.execute("PRAGMA wal_checkpoint(PASSIVE)")
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everyone who waited
                self._loop.call_soon_threadsafe(self._settle, jobs)

    def _settle(self, jobs: Sequence[_Job]) -> None:
        self._with_thread -= len(jobs)
        for job in jobs:
            job.settle()

    def _connect_patient(self) -> StoreConnection:
        connection = self._connect()
        prepare_quick_commits(connection)
        return connection

    def _commit(self, patient: StoreConnection, jobs: list[_Job]) -> None:
        """Do works together: quick commits as such, or with a look at each if that fails; or one by one."""
        if self._commit_together(patient, jobs):
            return
        for job in jobs:
            job.quick = None
        if not self._commit_together(patient, jobs):
            for job in jobs:
                self._commit_together(patient, [job])

    def _commit_together(self, connection: StoreConnection, jobs: list[_Job]) -> bool:
        """Do works in one transaction; False if it was undone and they should be tried in another way, or alone."""
        quick = [(job, job.quick) for job in jobs if job.quick is not None]
        commits = [commit for _, commit in quick]
        rest = [job for job in jobs if job.quick is None]
        now_s = time.monotonic()
        is_transaction = bool(rest) or need_transaction(commits) or now_s >= self._guard.next_look_s
        try:
            if is_transaction:
                connection.execute("BEGIN IMMEDIATE")
                if now_s >= self._guard.next_look_s:
                    self._guard.check_contents(connection, now_s)
            else:
                self._guard.check_file()
            for (job, _), row in zip(quick, write_quick_commits(connection, commits), strict=True):
                job.result = row
            for job in rest:
                job.error = None
                try:
                    job.result = job.work(connection)
                except HoldfastError as refusal:
                    job.error = refusal
            if is_transaction:
                self._guard.check_file()
                connection.execute("COMMIT")
        except Exception as error:
            _roll_back(connection)
            is_final = _is_busy(error) or (len(jobs) == 1 and not quick)
            for job in jobs if is_final else ():
                job.error = error
            return is_final
        self._listeners.tell(time.monotonic())
        return True


def _is_busy(error: BaseException) -> bool:
    """Whether somebody else was writing, and went on for longer than the connection waits."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _roll_back(connection: StoreConnection) -> None:
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
