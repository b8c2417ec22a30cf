"""An event loop in a thread of its own: what the synchronous facades of the engine and of agents stand on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from typing import Any, TypeVar

from holdfast.engine.errors import RuntimeClosedError
from holdfast.store.errors import StoreUnavailableError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, and the way to it from other threads."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._changing = threading.RLock()
        """Held while work is handed over, so that none is handed to a loop that will not run it. Handing over may
        collect an abandoned stream, which hands over its own end: hence it is a lock that can be taken twice."""

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast", daemon=True)
        self._thread.start()

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Take no more work, do a last piece of it, and end. Callers that still wait get an error."""
        with self._changing:
            loop, self._loop = self._loop, None
        assert loop is not None
        assert self._thread is not None
        try:
            if last is not None:
                asyncio.run_coroutine_threadsafe(last(), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have work done in the loop, and wait for what comes of it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the event loop's own thread, and would wait for itself; use the API with await")
        waiting = self.begin(work)
        if waiting is None:
            raise RuntimeClosedError
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise
        except (futures.CancelledError, StoreUnavailableError):
            if self._loop is None:  # the store may have closed before the work was cancelled
                raise RuntimeClosedError from None
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> futures.Future[T] | None:
        """Have work done in the loop, without waiting for it; None if there is no loop."""
        with self._changing:
            if self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        return None


async def _end_all() -> None:
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
