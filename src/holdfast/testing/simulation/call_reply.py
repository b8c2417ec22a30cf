"""`CallReply`: the future of one call of the simulated store.

Most of what a run does are calls of its store. Whoever waits for a reply goes on in the very callback that brings it: a
future of asyncio would take another callback for that, in which nothing else could happen.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import Any


class CallReply:
    """What a task awaits as it awaits a future."""

    __slots__ = ("_asyncio_future_blocking", "_callbacks", "_error", "_is_done", "_loop", "_value")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[tuple[Callable[[Any], object], contextvars.Context]] = []

    def bring(self, outcome: Any) -> None:
        """The reply is there: a value, or the error to be raised."""
        if self._is_done:
            return
        self._is_done = True
        if isinstance(outcome, Exception):
            self._error = outcome
        else:
            self._value = outcome
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            context.run(callback, self)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    # --- what tasks and `asyncio.wait` need ----------------------------------------------------------

    def result(self) -> Any:
        """See `asyncio.Future.result`."""
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        """See `asyncio.Future.done`."""
        return self._is_done

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See `asyncio.Future.get_loop`."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """See `asyncio.Future.add_done_callback`."""
        context = contextvars.copy_context() if context is None else context
        if self._is_done:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callbacks.append((callback, context))

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """See `asyncio.Future.remove_done_callback`."""
        before = len(self._callbacks)
        self._callbacks = [each for each in self._callbacks if each[0] != callback]
        return before - len(self._callbacks)

    def cancel(self, msg: str | None = None) -> bool:
        """See `asyncio.Future.cancel`: the task that waits is cancelled, and what comes later is ignored."""
        if self._is_done:
            return False
        self._is_done, self._error = True, asyncio.CancelledError()
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)
        return True
