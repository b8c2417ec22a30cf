"""Processes to be killed, forked from a parent that has loaded Holdfast: they start in a fraction of the time.

The work of a process is a function of a module that it can import, with arguments that can be pickled. It runs until it
ends, kills itself at a seam (see `seams`), or is killed from outside.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Callable
from threading import Lock
from typing import Any

from holdfast.testing.patience import HANG_S

PATIENCE_S = 2 * HANG_S
"""Seconds after which a process that has not ended is killed: far above what any work takes, even on a busy machine."""

_PRELOADED = ["__main__", "asyncpg", "holdfast.engine.holdfast", "holdfast.agent.runtime", "holdfast.testing.crash"]
"""What takes long to import. The parent of the processes does not have the path of pytest, so it can't load tests."""

_context = multiprocessing.get_context("forkserver")
_one_at_a_time = Lock()
"""Whoever starts a process also looks which others have ended, and the exit code of one can be read only once."""


class CrashProcess:
    """A process that does some work, from the moment this is made. Safe to use from several threads."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        with _one_at_a_time:
            _context.set_forkserver_preload(_PRELOADED)
            self._process = _context.Process(target=work, args=arguments)
            self._process.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs, `-signal.SIGKILL` if it was killed."""
        with _one_at_a_time:
            return self._process.exitcode

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Wait until it has ended, and give its exit code. One that takes too long is killed."""
        multiprocessing.connection.wait([self._process.sentinel], patience_s)
        return self.kill()

    def kill(self) -> int:
        """Kill it, unless it has ended by itself, and give its exit code."""
        with _one_at_a_time:
            self._process.kill()
            self._process.join()
            code = self._process.exitcode
        assert code is not None
        return code

    def pause(self) -> None:
        """Stop it where it is; it does not notice that time passes until `resume`."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


def run_process(work: Callable[..., None], *arguments: Any, patience_s: float = PATIENCE_S) -> int:
    """Do some work in a process of its own, and give its exit code."""
    return CrashProcess(work, *arguments).wait(patience_s)
