"""The event loop of a simulation: virtual time, several simulated OS processes, and a seeded choice of what runs next.

Each simulated OS process has callbacks of its own, which run in the order in which asyncio promises to run them; which
process runs next is drawn. Time stands still while a callback runs, moves on a little after it, and jumps to the next
timer when nothing else is left to do. There are no threads, no sockets and no clock: a seed decides everything.

Whose a callback is follows from its `contextvars` context, which tasks and callbacks inherit, so the code under test
needs to know nothing of it. A process that is killed runs no line any more, not even a `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError

T = TypeVar("T")

CALLBACK_NS = 20_000
"""Virtual nanoseconds that each callback takes: without a price, a loop that never waits would never end."""

QUIET_NS = 20_000_000
"""Virtual nanoseconds without a callback that make a moment a quiet one: a call of the store that is neither slow nor
stuck takes less."""

NEVER_NS = 2**62
"""Later than any moment of a run (virtual ns)."""

THREAD_NS = (50_000, 3_000_000)
"""Virtual nanoseconds, from and to, that a function in a thread takes."""

MAX_CALLBACKS = 400_000
"""Callbacks of one run: a hundred times the usual, so more of them are a loop without an end."""


MAX_FINALLY = 100
"""Blocks of `finally` that wait, in one coroutine, when it is discarded."""


class EndlessRunError(HoldfastError):
    """A simulation does not come to an end: it runs in circles, or nothing is left that could happen."""

    kind = "endless_run"


class ProcessState:
    """What the loop knows of one simulated OS process, in one life: it is never brought back, only started again."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.is_dead = False
        self.stands_until = 0
        """Virtual time (ns) until which nothing of it runs."""
        self.steps = 0
        """Callbacks that were run so far."""
        self.on_step: tuple[int, Callable[[], None]] | None = None
        """What happens right before the callback of that number."""
        self.ready: deque[_Handle] = deque()


class _Handle:
    """A callback: what asyncio's own handle does, for a third of the time, which a run spends on little else."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "when_ns")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, when_ns: int = 0
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.when_ns = when_ns
        self.is_cancelled = False

    def cancel(self) -> None:
        """See `asyncio.Handle.cancel`."""
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """See `asyncio.Handle.cancelled`."""
        return self.is_cancelled

    def when(self) -> float:
        """See `asyncio.TimerHandle.when`."""
        return self.when_ns / 1e9


def _nothing() -> None:
    """What is left of a callback that was cancelled."""


_outside = ProcessState("outside", 0)
CURRENT: contextvars.ContextVar[ProcessState] = contextvars.ContextVar("simulated process", default=_outside)
"""The simulated OS process that the running code belongs to."""


class _Task(asyncio.Task[T]):
    """A task whose place in a set does not depend on where it is in memory."""

    serial = 0

    def __hash__(self) -> int:
        return self.serial

    __eq__ = object.__eq__


class _Future(asyncio.Future[T]):
    """A future whose place in a set does not depend on where it is in memory."""

    serial = 0

    def __hash__(self) -> int:
        return self.serial

    __eq__ = object.__eq__


class _DiscardedError(BaseException):
    """Raised in coroutines that nobody runs any more, so that they come to their end."""


def _discard(left: Any) -> None:
    """End a coroutine that nobody runs any more. One that waits in a `finally` has to be asked again."""
    with contextlib.suppress(BaseException):
        for _ in range(MAX_FINALLY):
            left.throw(_DiscardedError())


_Base: Any = asyncio.AbstractEventLoop  # what is not overridden reaches outside, and is refused


class SimulatedLoop(_Base):  # type: ignore[misc]
    """Runs simulated OS processes; `run` is the whole of it."""

    def __init__(self, random: Random, *, shuffled: float = 0.0) -> None:
        """`shuffled` is the share of callbacks that are not run in the order in which they became ready."""
        self.now_ns = 0
        self.callbacks = 0
        self.unhandled: list[tuple[ProcessState, dict[str, Any]]] = []
        """Exceptions that nobody has seen, with the process that they happened in."""
        self.on_quiet: Callable[[], None] | None = None
        """Called when every process waits, and goes on waiting for a while."""
        self._random = random
        self._shuffled = shuffled
        self._outside = ProcessState("outside", 0)
        self._processes = [self._outside]
        """Those that are not dead."""
        self._number_of_processes = 1
        self._timers: list[tuple[int, int, _Handle, ProcessState]] = []
        self._serial = count(1)
        self._tasks: list[asyncio.Task[Any]] = []
        """All of them, so that those of a dead process are not freed, which would run their `finally`."""
        self._is_deaf = False
        self._thread = 0
        """The one thread that all of it runs in."""
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """The same for two runs in which the same processes ran at the same moments, in the same order, and did the
        same as far as it was noted."""
        return self._digest.hexdigest()

    def note(self, what: bytes) -> None:
        """Let the digest tell runs apart in which this differs."""
        self._digest.update(what)

    # --- processes ---------------------------------------------------------------------------------

    def new_process(self, name: str) -> ProcessState:
        """A simulated OS process, in which nothing runs yet."""
        made = ProcessState(name, self._number_of_processes)
        self._number_of_processes += 1
        self._processes.append(made)
        return made

    def context_of(self, process: ProcessState) -> contextvars.Context:
        """A context in which everything belongs to a process."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, process)
        return context

    def start(self, process: ProcessState, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a process."""
        return self.create_task(main, context=self.context_of(process))

    def kill(self, process: ProcessState) -> None:
        """End a process in between two callbacks. Nothing of it runs any more."""
        process.is_dead = True
        process.ready.clear()
        if process in self._processes:
            self._processes.remove(process)

    # --- running -----------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine outside of all processes until it returns, and everything else meanwhile."""
        outer, hooks, collects = events._get_running_loop(), sys.get_asyncgen_hooks(), gc.isenabled()
        if outer is not None:
            raise RuntimeError("a simulation cannot be run inside an event loop; call it from a function without async")
        gc.disable()  # what is collected runs code, and when that happens depends on everything else in memory
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        events._set_running_loop(self)
        self._thread = threading.get_ident()
        try:
            task = self.start(self._outside, main)
            self._run_until(task)
            return task.result()
        finally:
            self._close()
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collects:
                gc.enable()

    def _run_until(self, task: asyncio.Task[Any]) -> None:
        """Run callbacks until a task is done. A run does little else, so this is one loop without calls of its own."""
        timers, processes, random, shuffled, digest = (
            self._timers,
            self._processes,
            self._random.random,
            self._shuffled,
            self._digest.update,
        )
        is_done = task.done
        while not is_done():
            now = self.now_ns
            while timers and timers[0][0] <= now:
                _, _, handle, process = heapq.heappop(timers)
                if not process.is_dead and not handle.is_cancelled:
                    process.ready.append(handle)
            able = [each for each in processes if each.ready and each.stands_until <= now]
            if not able:
                self._pass_time()
                continue
            process = able[0] if len(able) == 1 else able[int(random() * len(able))]
            ready = process.ready
            if shuffled and len(ready) > 1 and random() < shuffled:
                ready.rotate(-int(random() * len(ready)))
            process.steps += 1
            self.callbacks += 1
            if self.callbacks > MAX_CALLBACKS:
                raise EndlessRunError(f"{MAX_CALLBACKS} callbacks were run, and it goes on")
            if process.on_step is not None and process.on_step[0] == process.steps:
                process.on_step[1]()
                if process.is_dead or process.stands_until > now:
                    continue
            handle = ready.popleft()
            digest(b"%d %d;" % (now, process.number))
            if not handle.is_cancelled:
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    said = {"message": f"{handle.callback!r} raised", "exception": error}
                    handle.context.run(self.call_exception_handler, said)
            self.now_ns = now + CALLBACK_NS

    def _pass_time(self) -> None:
        """Nothing can run now: go on at the next moment at which something can."""
        soonest = self._timers[0][0] if self._timers else NEVER_NS
        for each in self._processes:
            if each.ready and each.stands_until < soonest:
                soonest = each.stands_until
        if soonest == NEVER_NS:
            raise EndlessRunError("everything waits, and nothing will ever happen")
        if self.on_quiet is not None and soonest - self.now_ns >= QUIET_NS:
            self.on_quiet()
        self.now_ns = soonest

    def _close(self) -> None:
        """Let go of everything that is left, without running it any further than its `finally` blocks."""
        self._is_deaf = True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _discard(task.get_coro())
        self._tasks.clear()
        self._timers.clear()
        for process in self._processes:
            process.ready.clear()

    # --- what asyncio's own objects need -----------------------------------------------------------

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, contextvars.copy_context() if context is None else context)
        process = handle.context.get(CURRENT, self._outside)
        if not process.is_dead and not self._is_deaf:
            process.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        """As `call_soon`: the threads of a simulation are its own, so a call from another one cannot be repeated."""
        if threading.get_ident() != self._thread:
            message = f"{callback!r} comes from a thread that the simulation does not run"
            process = CURRENT.get(self._outside) if context is None else context.get(CURRENT, self._outside)
            self.unhandled.append((process, {"message": message}))
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self._call_at_ns(self.now_ns + round(delay * 1e9), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self._call_at_ns(round(when * 1e9), callback, args, context)

    def _call_at_ns(
        self, when: int, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> _Handle:
        handle = _Handle(callback, args, contextvars.copy_context() if context is None else context, when)
        process = handle.context.get(CURRENT, self._outside)
        if not process.is_dead and not self._is_deaf:
            heapq.heappush(self._timers, (when, next(self._serial), handle, process))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        made: _Future[Any] = _Future(loop=self)
        made.serial = next(self._serial)
        return made

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        made: _Task[Any] = _Task(coro, loop=self, name=name, context=context)
        made.serial = next(self._serial)
        self._tasks.append(made)
        return made

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """A function in a thread: it runs a little later, all at once, and its result comes later still."""
        future = self.create_future()

        def work() -> None:
            try:
                outcome, error = func(*args), None
            except BaseException as raised:
                outcome, error = None, raised
            self.call_later(self._random.randint(*THREAD_NS) / 1e9, deliver, outcome, error)

        def deliver(outcome: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(outcome)

        self.call_later(self._random.randint(*THREAD_NS) / 1e9, work)
        return future

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_deaf and not CURRENT.get().is_dead:
            self.create_task(generator.aclose())

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = CURRENT.get()
        if not self._is_deaf and not process.is_dead:
            self.unhandled.append((process, context))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_deaf

    def get_task_factory(self) -> None:
        return None

    async def shutdown_asyncgens(self) -> None:
        pass
