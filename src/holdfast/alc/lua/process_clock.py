"""What another process has used of the processor, and whether it wants more of it now."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

_WAITING = "STtZX"
"""The states of a process that does not want the processor: asleep, stopped, dead."""


class StepClock(Protocol):
    """What a step uses of the processor."""

    def processor_s(self) -> float:
        """Seconds of processor time, on a scale of its own."""

    def wants_processor(self) -> bool:
        """Whether it runs or waits for its turn, or for the disk; not whether it waits for anything else."""


class ProcessClock:
    """The processor time of one process. Where the system does not tell it, the time that has passed stands for it."""

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | 2  # how Linux numbers the clocks of processes
        self._status = Path(f"/proc/{pid}/stat")

    def processor_s(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return time.monotonic()

    def wants_processor(self) -> bool:
        try:
            state = self._status.read_text("ascii", "replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state not in _WAITING
