"""Runs a check on many hostile inputs, within bounds: fixed inputs in the suite, and those of a seed in `make fuzz`.

What a failure needs to be seen again is its seed, which the failure names. The bounds are on one input (it ends, and
soon) and on all of them (memory).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, seed, settings

from holdfast.core.errors import HoldfastError

T = TypeVar("T")

FIXED_SEED = 1

SEED = "HOLDFAST_FUZZ_SEED"
"""Names the variable with the seed of the random part, which does not run without it."""

FACTOR = "HOLDFAST_FUZZ_FACTOR"
"""Names the variable by which the number of random inputs is multiplied."""

COUNTS = "HOLDFAST_FUZZ_COUNTS"
"""Names the variable with a file to which each test adds a line: how many inputs it has tried."""

RANDOM_SHARE = 2
"""With a factor of 1, one random input is tried for so many fixed ones."""

HANG_S = 60.0
"""Seconds after which one input counts as a hang: a thousand times what the slowest takes, on a machine that stalls."""

CPU_S = 3.0
"""Seconds of processor time that one input may cost: inputs are small, so more means that a cost grows too fast."""

MEMORY_KB = 400 * 1024
"""How much larger a process may become in one test: limits of values, and room for the libraries that are imported."""

MESSAGE_CHARS = 4_000
"""The longest message of an error: a hostile input is quoted in part."""


@dataclass(frozen=True, repr=False)
class _Shown(Generic[T]):
    """An input that is printed in part: some are large."""

    value: T

    def __repr__(self) -> str:
        text = repr(self.value)
        return text if len(text) <= MESSAGE_CHARS else f"{text[:MESSAGE_CHARS]}… ({len(text)} characters)"


class Fuzzer:
    """Tries the inputs of one test, fixed or random."""

    def __init__(self, test: str, *, is_random: bool) -> None:
        self._test = test
        self._factor = os.environ.get(FACTOR, "1")
        self._is_random = is_random
        self._seed = int(os.environ[SEED]) if is_random else FIXED_SEED

    def run(
        self, check: Callable[[T], None], inputs: st.SearchStrategy[T], examples: int, known: Sequence[T] = ()
    ) -> None:
        """Call `check` with that many inputs, and shrink the first that fails. `known` are those that once failed."""
        factor = float(self._factor) / RANDOM_SHARE if self._is_random else 1
        bounded = settings(
            max_examples=max(5, round(examples * factor)),
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

        tried = 0

        def check_within_bounds(shown: _Shown[T]) -> None:
            nonlocal tried
            tried += 1
            with _cpu_bounded(), _ends(shown):
                check(shown.value)

        before = _peak_kb()
        for value in () if self._is_random else known:
            check_within_bounds(_Shown(value))
        try:
            bounded(seed(self._seed)(given(inputs.map(_Shown))(check_within_bounds)))()
        except BaseException as error:
            how = f"{SEED}={self._seed} {FACTOR}={self._factor} " if self._is_random else ""
            error.add_note(f"To see it again: {how}.venv/bin/pytest -n 0 '{self._test}'")
            raise
        finally:
            if counts := os.environ.get(COUNTS):
                with open(counts, "a", encoding="ascii") as file:
                    file.write(f"{tried}\n")
        assert _peak_kb() - before < MEMORY_KB, "the inputs took more memory than anything so small may"


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def _cpu_bounded() -> Iterator[None]:
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < CPU_S, f"one input took {spent:.1f} s of processor time"


class HangError(BaseException):
    """One input takes too long. It is no `Exception`, so that no smaller ones are looked for, which would hang too."""


@contextmanager
def _ends(shown: object) -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        raise HangError(f"one input took more than {HANG_S:.0f} s, and goes on: {shown!r}")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def assert_is_declared(error: BaseException) -> None:
    """A refusal is an error of ours, whose message can be printed, stored and read."""
    if not isinstance(error, HoldfastError):
        raise error
    message = str(error)
    assert message.strip(), f"{type(error).__name__} without a message"
    assert len(message) <= MESSAGE_CHARS, f"{type(error).__name__} with a message of {len(message)} characters"
    message.encode()
    json.dumps(error.to_json(), default=str).encode()
