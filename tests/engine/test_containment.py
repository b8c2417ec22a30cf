"""Which errors of code that is not ours pass through: those that a signal to this process has raised."""

from __future__ import annotations

import asyncio
import signal
import sys
import warnings
from types import FrameType

import pytest

from holdfast.engine.containment import passes_through, without_exit


def test_an_exit_of_the_code_itself_is_its_fault() -> None:
    with pytest.raises(SystemExit) as caught:
        sys.exit(3)
    assert not passes_through(caught.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_exit_in_a_handler_of_signals_is_meant_for_the_process(number: signal.Signals) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    before = signal.signal(number, handle)
    try:
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(number)
        assert passes_through(caught.value)
    finally:
        signal.signal(number, before)


def test_an_interrupt_by_the_keyboard_is_meant_for_the_process() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(signal.SIGINT)
        assert passes_through(caught.value)
    finally:
        signal.signal(signal.SIGINT, before)


async def test_work_that_is_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = asyncio.create_task(without_exit(work))
        task.cancel()
        await asyncio.wait([task])
        del task
    assert not begun
