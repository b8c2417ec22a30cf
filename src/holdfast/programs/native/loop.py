"""A deterministic event loop for strategies: asyncio's tasks, futures, groups and timeouts, without clock or I/O.

The loop never waits. It runs what is ready, in order, until nothing is; then everything in the strategy is blocked on
queries, and that is a pause. Its time stands still while it runs. A timeout set on it (`asyncio.timeout`, `wait_for`)
is a timer query, so it survives a restart like everything else. Whatever would reach outside is refused with an
explanation, because it could not be replayed.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from types import BuiltinFunctionType
from typing import Any, TypeAlias

from holdfast.programs.errors import NotAQueryError

SetTimer = Callable[["Timer"], None]


class Timer(asyncio.TimerHandle):
    """A call that is due later, kept by whoever runs the loop. Two equal calls are still two."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


_UNUSED = asyncio.Handle.__new__(asyncio.Handle)
"""What tasks get for a call: they do not look at it."""

_Call: TypeAlias = tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]
"""A call without a handle: of those that asyncio's own tasks ask for, nobody keeps the handle or cancels the call."""


def _is_task_step(callback: Callable[..., object]) -> bool:
    """Whether this is how a task of asyncio goes on: by itself, or because the future that it waits for is done."""
    if type(callback) is BuiltinFunctionType:
        return callback.__name__ == "task_wakeup" and type(callback.__self__) is asyncio.Task
    return type(callback).__name__ == "TaskStepMethWrapper"


_Base: Any = asyncio.AbstractEventLoop  # most of its methods are refused below, by name


class EventLoop(_Base):  # type: ignore[misc]
    """Runs one strategy. `step` is the whole of it."""

    def __init__(self, set_timer: SetTimer, cancel_timer: SetTimer) -> None:
        self.now_ms = 0
        self._ready: deque[asyncio.Handle | _Call] = deque()
        self._set_timer = set_timer
        self._cancel_timer = cancel_timer
        self.unhandled: dict[str, Any] | None = None

    def fire(self, timer: Timer) -> None:
        """Run a timer's callback with the next `step`."""
        self._ready.append(timer)

    def step(self) -> None:
        """Run whatever is ready, and whatever becomes ready by that, until nothing is."""
        outer = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._ready:
                ready = self._ready.popleft()
                try:
                    if isinstance(ready, tuple):
                        callback, args, context = ready
                        context.run(callback, *args)
                    elif not ready.cancelled():
                        ready._run()
                except SystemExit:
                    pass  # a strategy that wants to exit ends itself, not the process: its task has noted the exception
                except Exception as error:
                    self.call_exception_handler({"message": "a task broke", "exception": error})
        finally:
            events._set_running_loop(outer)

    def discard(self) -> None:
        """Forget everything that was to run."""
        self._ready.clear()

    # --- what asyncio's own objects need -----------------------------------------------------------

    def time(self) -> float:
        return self.now_ms / 1000

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is not None and _is_task_step(callback):
            self._ready.append((callback, args, context))
            return _UNUSED
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if getattr(callback, "__name__", "") == "_set_result_unless_cancelled":
            raise NotAQueryError("asyncio.sleep cannot be replayed; use `await ctx.sleep(seconds)`")
        timer = Timer(when, callback, args, self, context)
        self._set_timer(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, Timer):
            self._cancel_timer(handle)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled = context

    async def shutdown_asyncgens(self) -> None:
        pass


def _refuse(what: str) -> Callable[..., Any]:
    def refused(self: EventLoop, *_: Any, **__: Any) -> Any:
        why = (
            f"{what} inside a strategy cannot be replayed; ask for it with `await ctx.tool(...)` and let a driver do it"
        )
        raise NotAQueryError(why)

    return refused


_OUTSIDE = {
    "threads (asyncio.to_thread, run_in_executor)": ("run_in_executor", "call_soon_threadsafe"),
    "network access": (
        *("create_connection", "create_server", "create_datagram_endpoint", "create_unix_connection"),
        *("create_unix_server", "getaddrinfo", "getnameinfo", "sock_accept", "sock_connect", "sock_recv"),
        *("sock_recv_into", "sock_recvfrom", "sock_sendall", "sock_sendto", "sock_sendfile", "sendfile", "start_tls"),
        *("add_reader", "add_writer", "remove_reader", "remove_writer", "connect_accepted_socket"),
    ),
    "a subprocess": ("subprocess_exec", "subprocess_shell"),
    "a pipe": ("connect_read_pipe", "connect_write_pipe"),
    "a signal handler": ("add_signal_handler", "remove_signal_handler"),
    "another event loop": ("run_until_complete", "run_forever"),
}
for _what, _names in _OUTSIDE.items():
    for _name in _names:
        setattr(EventLoop, _name, _refuse(_what))


def run_coroutine(loop: EventLoop, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """The task of a strategy's main coroutine; it runs with the next `step`."""
    outer = events._get_running_loop()
    events._set_running_loop(loop)
    try:
        return asyncio.Task(main, loop=loop, name="strategy")
    finally:
        events._set_running_loop(outer)
