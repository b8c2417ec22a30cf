"""`Environment`: the time, chance and name that an OS process gets from outside, as engines and stores ask for them.

Waiting, tasks and threads are the event loop's. With these two, whoever runs an engine decides everything that it does
not: that is how `holdfast.testing.simulation` runs it, unchanged, on virtual time and a seed.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from random import Random

log = logging.getLogger("holdfast.clock")


class Clock(Protocol):
    """Where the time comes from. What waits, waits on the event loop, whose time has to pass as this one does."""

    def now(self) -> int:
        """Unix milliseconds; never earlier than the last time it was asked."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, for deadlines and pauses."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether `now` can be trusted with what cannot be undone: it has made no step lately."""
        ...


STEP_MS = 1_000
"""Milliseconds by which a clock of day may differ from the time that has passed: more is a step, and no drift."""

LOOK_MS = 100
"""Milliseconds between looks at the clock of day. A step is not followed for minutes: it need not be seen at once."""

JITTER_MS = 5
"""Milliseconds that are not worth following: the two times are not read at the same moment."""

SETTLE_MS = 300_000
"""Milliseconds for which a step has to last before it is believed: clocks that jump mostly jump back in a minute."""

CAUTION_MS = 60_000
"""Milliseconds after that for which the leases of others are judged by the time before: they may not have believed it
yet, and have renewed them by then."""


class SteadyClock:
    """The time of a process: it passes as time passes, and follows a clock of day that does the same.

    A clock of day may be set. Such a step is logged and not followed, until it has lasted for a while; one that goes
    back is not followed at all, as the time of a process does not. `day_ns` and `passed_ns` tell the time of day, and
    the time since some moment, in nanoseconds.
    """

    def __init__(self, day_ns: Callable[[], int], passed_ns: Callable[[], int]) -> None:
        self._day_ns = day_ns
        self._passed_ns = passed_ns
        self._base = (day_ns() - passed_ns()) // 1_000_000
        self._last = 0
        self._looks_at = 0
        """When to look at the clock of day again, by the time that has passed."""
        self._accepted = 0
        """Milliseconds by which the clock of day may be behind, for good."""
        self._step: int | None = None
        """A step that is not believed yet, and since when."""
        self._step_at = 0
        self._followed = 0
        """The last step that was followed, and when."""
        self._followed_at = -SETTLE_MS

    def now(self) -> int:
        passed = self._passed_ns() // 1_000_000
        if passed >= self._looks_at:
            self._look(passed)
        now = self._base + passed
        if now < self._last:
            return self._last
        self._last = now
        return now

    def _look(self, passed: int) -> None:
        """Compare this time with that of the clock of day."""
        self._looks_at = passed + LOOK_MS
        ahead = self._day_ns() // 1_000_000 - self._base - passed
        if not -JITTER_MS <= ahead <= JITTER_MS or self._step is not None:
            self._compare(ahead, passed)

    def _compare(self, ahead: int, passed: int) -> None:
        """The clock of day is ahead of ours by so many milliseconds."""
        step = ahead - self._accepted
        if -STEP_MS < step < STEP_MS:
            self._step = None
            if not self._accepted:
                self._base += ahead
        elif self._step is None or abs(step - self._step) >= STEP_MS:
            self._step, self._step_at = step, passed
            lasts = f"it is followed if it lasts for {SETTLE_MS // 60_000} minutes"
            stays = "this process goes on by the time that passes, and follows when it is started again"
            log.warning("the clock was set by %+.1f s; %s", step / 1000, lasts if step > 0 else stays)
        elif passed - self._step_at >= SETTLE_MS:
            self._step = None
            if step > 0:
                self._base += step
                self._followed, self._followed_at = step, passed
                log.warning("the clock was set by %+.1f s, and is followed from now on", step / 1000)
            else:
                self._accepted += step

    @property
    def is_settled(self) -> bool:
        """Whether the clock has made no step lately, so that it can be trusted with what cannot be undone."""
        passed = self._passed_ns() // 1_000_000
        self._look(passed)
        return self._step is None and passed - self._followed_at >= SETTLE_MS

    def cautious_now(self) -> int:
        """The time by which leases of others are judged: as `now`, but later than that to believe in a step."""
        now = self.now()
        if not self._followed or self._passed_ns() // 1_000_000 - self._followed_at >= CAUTION_MS:
            return now
        return now - self._followed


_passed_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)
"""Where the system can tell, the time in which it sleeps passes, too."""


class SystemClock(SteadyClock):
    """The computer's clock."""

    def __init__(self, day_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(day_ns, _passed_ns)

    monotonic = staticmethod(time.monotonic)


def _process_name() -> str:
    return f"{socket.gethostname()[:60]}.{os.getpid()}"


def _system_random() -> Random:
    from random import SystemRandom  # not before an engine is opened: whoever only lists sessions does without

    return SystemRandom()


class Environment(msgspec.Struct, frozen=True):
    """What a process gets from outside, beside its store."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    random: Random = msgspec.field(default_factory=_system_random)
    """Seeds, keys and names are drawn from it, and the order in which processes look at what they all find."""
    process: str = msgspec.field(default_factory=_process_name)
    """The name of the OS process, for people: the machine and the process id."""
