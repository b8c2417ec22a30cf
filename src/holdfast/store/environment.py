"""`Environment`: the time, chance and name that an OS process gets from outside, as engines and stores ask for them.

Waiting, tasks and threads are the event loop's. With these two, whoever runs an engine decides everything that it does
not: that is how `holdfast.testing.simulation` runs it, unchanged, on virtual time and a seed.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from. What waits, waits on the event loop, whose time has to pass as this one does."""

    def now(self) -> int:
        """Unix milliseconds; never earlier than the last time it was asked."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, for deadlines and pauses."""
        ...


class SystemClock:
    """The computer's clock. It may be set back; the time of a process is not."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        now = time.time_ns() // 1_000_000
        if now < self._last:
            return self._last
        self._last = now
        return now

    def monotonic(self) -> float:
        return time.monotonic()


def _process_name() -> str:
    return f"{socket.gethostname()[:60]}.{os.getpid()}"


@dataclass(frozen=True)
class Environment:
    """What a process gets from outside, beside its store."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    """Seeds, keys and names are drawn from it, and the order in which processes look at what they all find."""
    process: str = field(default_factory=_process_name)
    """The name of the OS process, for people: the machine and the process id."""
