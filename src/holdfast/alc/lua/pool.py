"""The pool of Lua workers: which VM lives in which process, what each of them is doing, and when to kill one.

A VM is a cache of its session's journal. It may vanish at any time, with its worker or to make room; whoever asks for a
step of it then gets `InstanceLostError`, and rebuilds the program somewhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import select
import subprocess
import sys
import time
from collections import OrderedDict, deque

import msgspec

from holdfast.alc.lua.frames import READ_BYTES, Frames, StepReply, StepsRequest, VmSpec, VmWaking, frame
from holdfast.alc.lua.limits import (
    CROWD,
    DEADLINE_S,
    GRACE_S,
    HOLD_S,
    HOT_VMS,
    IDLE_PATIENCE_S,
    IDLE_SHARE,
    IN_PLACE_S,
    MAX_FAILED_STARTS,
    MAX_WORKERS,
    MOST_WORKERS,
    PATIENCE_S,
    SPIN_S,
    START_S,
)
from holdfast.alc.lua.pipes import connected_pipes
from holdfast.alc.lua.process_clock import ProcessClock, StepClock
from holdfast.programs.errors import InstanceLostError, ProgramNotFoundError
from holdfast.store.patience import patience

_AWAKE_S = SPIN_S if (os.cpu_count() or 1) > 1 else 0.0
"""On a single processor, the worker could not run meanwhile."""


class StuckError(Exception):
    """A step did not end by its deadline, so its worker was killed."""


class StepJob:
    """A request under way, and what becomes of it. Most are answered at once, and need no future."""

    __slots__ = ("_error", "_future", "_steps", "deadline_s", "is_moved", "is_replay", "number", "vm")

    def __init__(self, number: int, vm: int, is_replay: bool, deadline_s: float) -> None:
        self.number = number
        self.vm = vm
        self.deadline_s = deadline_s
        self.is_replay = is_replay
        self.is_moved = False
        self._steps: list[bytes] | None = None
        self._error: Exception | None = None
        self._future: asyncio.Future[list[bytes]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was answered, has failed, or nobody waits for it any more."""
        if self._future is not None:
            return self._future.done()
        return self._steps is not None or self._error is not None

    def settle(self, steps: list[bytes]) -> None:
        self._steps = steps
        if self._future is not None and not self._future.done():
            self._future.set_result(steps)

    def fail(self, error: Exception) -> None:
        self._error = error
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)

    def outcome(self) -> list[bytes] | asyncio.Future[list[bytes]]:
        """The steps, or a future of them; raises if there are none."""
        if self._steps is not None:
            return self._steps
        if self._error is not None:
            raise self._error
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class WatchedStep:
    """A step that takes long, and what its worker has used for it since it was first looked at."""

    def __init__(self, job: StepJob, clock: StepClock) -> None:
        self.job = job
        self._clock = clock
        self._began = self._used = clock.processor_s()
        self._idle_s = 0.0

    def look(self) -> None:
        """Take note of what it has used since the last look, which was a moment ago."""
        used = self._clock.processor_s()
        if used - self._used < IDLE_SHARE * PATIENCE_S and not self._clock.wants_processor():
            self._idle_s += PATIENCE_S  # and no more, however late this look is: the engine may have been held up
        self._used = used

    def is_past(self, deadline_s: float) -> bool:
        """Whether it has computed for longer than that, or has waited for as long for something else than the
        processor. Waiting for the processor costs a step nothing: the machine is busy then."""
        return self._used - self._began > deadline_s or self._idle_s > deadline_s

    def is_taking_long(self, busy: float) -> bool:
        """Whether it takes long, not only because the machine is busy: moving others would not help then."""
        return self._used - self._began > PATIENCE_S / 2 or busy > IDLE_PATIENCE_S


class WorkerProcess:
    """One process, seen from the engine."""

    def __init__(self, pool: Pool, is_trusted: bool) -> None:
        self._pool = pool
        self.is_trusted = is_trusted
        ours, theirs = connected_pipes()
        with theirs:
            ends = (theirs.reading, theirs.writing)
            environment = {"PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C", "TZ": "UTC"}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.alc.lua.worker", *map(str, (*ends, os.getpid()))],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**(_inherited() if is_trusted else {}), **environment},
            )
        ours.set_nonblocking()
        self._pipes = ours
        self._poll = select.poll()
        self._poll.register(ours.reading, select.POLLIN)
        self._frames = Frames(StepReply)
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.reading, self._read)
        self._timer: asyncio.TimerHandle | None = None
        self.is_up = False
        self._busy_since = time.monotonic()
        self._watched: WatchedStep | None = None
        """The step that was under way at the last look, and what it has used since the first."""
        self.is_stuck = False
        self.jobs: deque[StepJob] = deque()
        self.vms: set[int] = set()
        self.drops: list[int] = []
        self.is_dead = False

    # --- sending ---------------------------------------------------------------------------------

    def send(self, request: StepsRequest, job: StepJob) -> None:
        if not self.jobs:
            self._busy_since = time.monotonic()
        self.jobs.append(job)
        self._write(frame(request))
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_S, self._look)

    def _write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._pipes.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the worker is dead, which reading will tell
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._pipes.writing, self._flush)

    def _flush(self) -> None:
        try:
            sent = self._pipes.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._pipes.writing)

    # --- receiving -------------------------------------------------------------------------------

    def wait_briefly(self, job: StepJob) -> None:
        """Wait in place for the reply to the only request under way, if it comes soon."""
        now = time.perf_counter()
        awake_until, until = now + _AWAKE_S, now + patience(IN_PLACE_S)
        while now < until:
            if self._poll.poll(0 if now < awake_until else (until - now) * 1000):
                self._read()
                if job.is_over:
                    return
            now = time.perf_counter()

    def _read(self) -> None:
        try:
            data = self._pipes.receive(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.bury("its worker died", blames=True)
            return
        try:
            for reply in self._frames.feed(data):
                self._settle(reply)
        except (msgspec.MsgspecError, ValueError) as error:
            self.bury(f"its worker sent something else than a reply: {error}", blames=True)

    def _settle(self, reply: StepReply) -> None:
        """Take a reply; `ValueError` if it is not one to the request under way."""
        self.is_up, self.is_stuck, self._busy_since = True, False, time.monotonic()
        self._watched = None  # a replay has taken a step, and the next one has its own time
        if reply.steps is None and not reply.is_gone:
            return  # a sign of life
        if self.is_dead:
            return
        if not self.jobs or reply.number != self.jobs[0].number or reply.steps == []:
            raise ValueError("it does not fit the request")
        job = self.jobs.popleft()
        self._pool.settled(job)
        if reply.steps is None:
            job.fail(InstanceLostError("its VM is gone"))
        else:
            job.settle(reply.steps)
        if not self.jobs:
            self._pool.idle(self)
        elif all(waiting.is_moved for waiting in self.jobs):
            self.bury("all who waited for it were moved")

    # --- supervision ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Move those who wait for too long behind another session's step; kill a worker that is past its deadline."""
        self._timer = None
        if self.is_dead or not self.jobs:
            return
        busy = time.monotonic() - self._busy_since
        if not self.is_up and busy > START_S:
            self.bury("its worker did not start")
            return
        if self.is_up:
            job = self.jobs[0]
            if self._watched is None or self._watched.job is not job:
                self._watched = WatchedStep(job, ProcessClock(self.process.pid))
            else:
                self._watched.look()
            if self._watched.is_past(job.deadline_s + GRACE_S):
                self.jobs.popleft()
                job.fail(StuckError())
                self.bury("its worker was killed because of another session")
                return
            self.is_stuck = self._watched.is_taking_long(busy)
        if self.is_stuck and len(self.jobs) > 1:
            for job in list(self.jobs)[1:]:
                if not job.is_over:
                    self._pool.drop(job.vm)
                    job.is_moved = True
                    job.fail(InstanceLostError("its worker is busy with another session"))
        self._timer = self._loop.call_later(PATIENCE_S, self._look)

    @property
    def is_busy(self) -> bool:
        """Whether a request given to it now would perhaps wait behind a long step."""
        return self.is_up and bool(self.jobs) and time.monotonic() - self._busy_since > PATIENCE_S / 5

    def bury(self, why: str, *, blames: bool = False) -> None:
        """End the process, and fail all requests to it. With `blames`, the step under way may be the cause."""
        if self.is_dead:
            return
        self.is_dead = True
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(Exception):
            self._loop.remove_reader(self._pipes.reading)
            self._loop.remove_writer(self._pipes.writing)
        self._pipes.close()
        self.process.kill()
        self.process.wait()
        self._pool.buried(self)
        jobs, self.jobs = self.jobs, deque()
        for nth, job in enumerate(jobs):
            job.fail(InstanceLostError(why, is_suspect=blames and self.is_up and nth == 0))


class Pool:
    """All workers of an engine."""

    def __init__(self, *, workers: int = MAX_WORKERS, hot_vms: int = HOT_VMS) -> None:
        self._most = min(workers, os.cpu_count() or 1)
        self._hot_vms = hot_vms
        self._workers: list[WorkerProcess] = []
        self._homes: OrderedDict[int, WorkerProcess] = OrderedDict()
        """Where each VM lives, the least recently used first."""
        self._held: dict[int, float] = {}
        """VMs that must not make room for others now, and until when."""
        self._numbers = 0
        self._failed_starts = 0
        """How many workers in a row have died before they could do anything."""
        self._is_closed = False

    # --- what instances call -----------------------------------------------------------------------

    def request(
        self,
        vm: int,
        spec: VmSpec | None,
        wakings: list[VmWaking],
        *,
        deadline_s: float = DEADLINE_S,
        is_replay: bool = False,
    ) -> list[bytes] | asyncio.Future[list[bytes]]:
        """Take steps, in a new VM if a spec is given; else in the one that is there, or `InstanceLostError`.

        After a replay the VM is kept for a moment: its next step is what it was rebuilt for.
        """
        if self._is_closed:
            raise ProgramNotFoundError("lua", "the engine is closed")
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._failed_starts = 0  # whoever asks next may be luckier
            raise ProgramNotFoundError("lua", "its workers do not start; see what they wrote to standard error")
        if spec is not None:
            worker = self._roomiest(spec.is_trusted)
            worker.vms.add(vm)
            self._homes[vm] = worker
            self._held[vm] = math.inf
            self._make_room()
        else:
            found = self._homes.get(vm)
            if found is None:
                raise InstanceLostError("its VM is gone")
            worker = found
            self._homes.move_to_end(vm)
            self._held[vm] = math.inf
        self._numbers += 1
        job = StepJob(self._numbers, vm, is_replay, deadline_s)
        drops, worker.drops = worker.drops, []
        was_idle = not worker.jobs
        worker.send(StepsRequest(self._numbers, vm, spec, wakings, drops, is_replay), job)
        if was_idle and len(wakings) == 1:
            worker.wait_briefly(job)
        return job.outcome()

    def drop(self, vm: int) -> None:
        """Drop a VM. Its worker is told with the next request."""
        self._held.pop(vm, None)
        worker = self._homes.pop(vm, None)
        if worker is not None:
            worker.vms.discard(vm)
            worker.drops.append(vm)

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return [worker.process.pid for worker in self._workers]

    def close_vms(self) -> None:
        """Drop all VMs. Their sessions are rebuilt when they are needed."""
        for vm in list(self._homes):
            self.drop(vm)

    def close(self) -> None:
        self._is_closed = True
        for worker in list(self._workers):
            worker.bury("the engine closes")

    # --- what workers call -------------------------------------------------------------------------

    def buried(self, worker: WorkerProcess) -> None:
        self._workers.remove(worker)
        self._failed_starts = 0 if worker.is_up else self._failed_starts + 1
        for vm in worker.vms:
            self._homes.pop(vm, None)
            self._held.pop(vm, None)

    def settled(self, job: StepJob) -> None:
        """A request is answered, so its VM may be dropped to make room."""
        if job.vm not in self._homes:
            return
        if job.is_replay:
            self._held[job.vm] = time.monotonic() + HOLD_S
        else:
            self._held.pop(job.vm, None)
        self._make_room()

    def idle(self, worker: WorkerProcess) -> None:
        """A worker has nothing to do. If there are more than usual, because others were stuck, it is ended."""
        if len(self._workers) <= self._most:
            return
        if not any(each.is_stuck for each in self._workers) and not any(vm in self._held for vm in worker.vms):
            worker.bury("there were too many workers")

    # --- inside ------------------------------------------------------------------------------------

    def _roomiest(self, is_trusted: bool) -> WorkerProcess:
        """The worker for a new VM. Trusted programs and others never share one."""
        ours = [worker for worker in self._workers if worker.is_trusted == is_trusted]
        free = [worker for worker in ours if not worker.is_busy]
        best = min(free, key=lambda worker: (len(worker.jobs), len(worker.vms)), default=None)
        # Whoever waited behind a step that does not end may be the next that does not: then each gets its own.
        is_troubled = any(worker.is_stuck for worker in ours)
        crowd, most = (1, MOST_WORKERS) if is_troubled else (CROWD, self._most)
        if best is not None and (len(best.jobs) < crowd or len(self._workers) >= most):
            return best
        if best is None and ours and len(self._workers) >= most:
            return min(ours, key=lambda worker: (worker.is_stuck, len(worker.jobs)))
        worker = WorkerProcess(self, is_trusted)
        self._workers.append(worker)
        return worker

    def _make_room(self) -> None:
        """Drop what was not used for the longest time. Not what is in use: sessions would evict each other for ever."""
        surplus = len(self._homes) - self._hot_vms
        if surplus > 0:
            now = time.monotonic()
            idle = (vm for vm in self._homes if self._held.get(vm, 0.0) <= now)
            for vm in list(itertools.islice(idle, surplus)):
                self.drop(vm)


def _inherited() -> dict[str, str]:
    """What trusted programs see of the engine's environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_"))}
