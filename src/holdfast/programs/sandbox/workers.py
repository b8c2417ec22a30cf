"""The worker processes of sandboxed Python, and the threads that talk to them. No program stays in a worker while it
waits: each step checks one out, and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from logging import getLogger
from pathlib import Path
from typing import Any

from pydantic_monty import Monty, MontyError, MontySession
from pydantic_monty._binary import find_monty_binary

from holdfast.programs.errors import InstanceLostError
from holdfast.programs.sandbox.jail import Jail, find_bwrap
from holdfast.programs.sandbox.limits import (
    DEADLINE_S,
    KILL_GRACE_S,
    MAX_RECURSION,
    MAX_SUSPENSIONS,
    MAX_WORKERS,
    MEMORY_MIB,
)
from holdfast.programs.sandbox.threads import Threads

_logger = getLogger("holdfast.sandbox")


class Workers:
    """Worker processes, started when the first is needed."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most or min(MAX_WORKERS, os.cpu_count() or 1)
        self.threads = Threads(self._most, "holdfast-sandbox", after=self._after_step, at_end=self._let_go)
        self._own = threading.local()
        self._starting = threading.Lock()
        self._pool: Monty | None = None
        self._jail: Jail | None = None
        self._is_closed = False

    @property
    def is_jailed(self) -> bool:
        """Whether the workers that run are inside bubblewrap."""
        return self._jail is not None

    def prepare(self) -> None:
        """Start the first worker, if none was started yet: somebody will need it soon."""
        if self._pool is None and not self._is_closed:
            starting = self.threads.submit(self._started, then=lambda _: None)
            starting.add_done_callback(asyncio.Future.exception)  # whoever needs a worker is told

    @contextlib.contextmanager
    def checkout(self, *, deadline_s: float, memory_mib: int, seed: int = 0, **options: Any) -> Iterator[MontySession]:
        """A worker with an interpreter that has run nothing, for as long as the block takes."""
        self._let_go()
        with self._made(deadline_s, memory_mib, seed, options) as session:
            yield session

    @contextlib.contextmanager
    def for_snapshot(self, *, deadline_s: float, memory_mib: int) -> Iterator[MontySession]:
        """As `checkout`, for a program that brings its state along. For one with the usual limits it is ready already.

        Handing a worker back and preparing the next one happen after the step's result was handed over: they take a
        third of the step's time.
        """
        ready: MontySession | None = getattr(self._own, "ready", None)
        is_usual = (deadline_s, memory_mib) == (DEADLINE_S, MEMORY_MIB)
        if not is_usual or ready is None:
            with self.checkout(deadline_s=deadline_s, memory_mib=memory_mib) as session:
                yield session
        else:
            self._own.ready = None
            try:
                yield ready
            except BaseException:
                self._hand_back(ready)
                raise
            self._own.spent = ready

    def _after_step(self) -> None:
        """In a thread that has handed over its result: prepare the next worker."""
        self._let_go()
        if self._pool is not None and not self._is_closed:
            with contextlib.suppress(MontyError, RuntimeError, OSError):
                self._own.ready = self._made(DEADLINE_S, MEMORY_MIB, 0, {}).__enter__()

    def _let_go(self) -> None:
        """Hand back what this thread holds: each holds one worker at most, so that none waits for another's."""
        for name in ("spent", "ready"):
            held: MontySession | None = getattr(self._own, name, None)
            if held is not None:
                setattr(self._own, name, None)
                self._hand_back(held)

    @staticmethod
    def _hand_back(session: MontySession) -> None:
        with contextlib.suppress(MontyError, RuntimeError):
            session.__exit__(None, None, None)

    def _made(self, deadline_s: float, memory_mib: int, seed: int, options: dict[str, Any]) -> MontySession:
        return self._started().checkout(
            limits={
                "max_turn_duration_secs": deadline_s,
                "max_memory": memory_mib * 1024 * 1024,
                "max_recursion_depth": MAX_RECURSION,
                "max_suspensions": MAX_SUSPENSIONS + 1,  # the session's own count comes first
            },
            os_policy={"datetime": "call_host", "sleep": "call_host", "random_start": {"seed": seed}},
            **options,
        )

    def close(self) -> None:
        """Stop the workers. A step that is under way is lost; one that computes ends by itself, at its deadline."""
        with self._starting:
            self._is_closed = True
            self.threads.close()
            if self._pool is not None:
                self._pool.__exit__(None, None, None)
                self._pool = None
            if self._jail is not None:
                self._jail.close()

    def _started(self) -> Monty:
        if self._pool is None:
            with self._starting:
                if self._is_closed:
                    raise InstanceLostError("the workers were closed")
                if self._pool is None:
                    self._pool = self._jailed() or self._plain()
        return self._pool

    def _jailed(self) -> Monty | None:
        bwrap = find_bwrap()
        if bwrap is None:
            return None
        jail = Jail(bwrap, Path(find_monty_binary()))
        pool = Monty(binary_path=jail.script, **self._sizes())
        try:
            pool.__enter__()
            with pool.checkout() as session:
                session.feed_run("None")
        except (MontyError, RuntimeError, OSError, TimeoutError) as error:
            _logger.info("bubblewrap does not work here (%s); the workers run without", error)
            with contextlib.suppress(Exception):
                pool.__exit__(None, None, None)
            jail.close()
            return None
        self._jail = jail
        return pool

    def _plain(self) -> Monty:
        pool = Monty(**self._sizes())
        pool.__enter__()
        return pool

    def _sizes(self) -> dict[str, Any]:
        return {"min_processes": 1, "max_processes": self._most, "turn_duration_limit_grace": KILL_GRACE_S}
