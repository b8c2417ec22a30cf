"""`Environment`: the clock, the randomness and the name of an OS process, as engines and stores ask for them.

Waiting, timeouts, tasks and threads are the event loop's, and so is the clock that measures them (`loop.time()`). With
these two, whoever runs an engine decides everything that it does not: that is how `holdfast.testing.simulation` runs
it, unchanged, on virtual time and a seed.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections.abc import MutableSequence
from typing import Any


class Environment:
    """What the operating system gives. A subclass may give something else."""

    def now_ms(self) -> int:
        """The time of day, in unix milliseconds. It may go backwards."""
        return time.time_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can guess: for ids and keys."""
        return secrets.token_bytes(count)

    def random_bits(self, bits: int) -> int:
        """A number of so many bits that nobody can guess."""
        return int.from_bytes(self.random_bytes((bits + 7) // 8), "big") >> -bits % 8

    def token(self, size: int) -> str:
        """So many random bytes, in hex."""
        return self.random_bytes(size).hex()

    def fraction(self) -> float:
        """A number from 0 to 1, to spread things out in time."""
        return random.random()

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Bring items into any order."""
        random.shuffle(items)

    def process_name(self) -> str:
        """The OS process, for people: the machine and the process id."""
        return f"{socket.gethostname()[:60]}.{os.getpid()}"


SYSTEM = Environment()
"""The environment of whoever was given none."""
