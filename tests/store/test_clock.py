"""The time of a process passes as time passes, whatever happens to the clock of day."""

from __future__ import annotations

import pytest

from holdfast.store.environment import CAUTION_MS, SETTLE_MS, SteadyClock
from tests.tables import each_row

NOON = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


class HandClock(SteadyClock):
    """A clock that is moved and set by hand."""

    def __init__(self) -> None:
        self.passed = 5_000
        self.wrong_by = 0
        super().__init__(
            lambda: (NOON + self.passed + self.wrong_by) * 1_000_000,
            lambda: self.passed * 1_000_000,
        )

    def passes(self, ms: int) -> int:
        """Some time passes, in which the clock is asked once a second."""
        for _ in range(0, ms, 1_000):
            self.passed += 1_000
            self.now()
        return self.now() - NOON - self.passed


@each_row("step", [HOUR, 60_000, 8 * DAY, -HOUR])
def test_a_step_that_is_taken_back_changes_nothing_and_is_logged(step: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    assert clock.is_settled
    clock.wrong_by = step
    assert clock.passes(60_000) == 0
    assert not clock.is_settled
    assert f"the clock was set by {step / 1000:+.1f} s" in caplog.text
    clock.wrong_by = 0
    assert clock.passes(1_000) == 0
    assert clock.is_settled


def test_a_step_that_lasts_is_followed_but_not_trusted_at_once() -> None:
    clock = HandClock()
    clock.wrong_by = HOUR
    assert clock.passes(SETTLE_MS + 2_000) == HOUR
    assert not clock.is_settled
    assert clock.now() - clock.cautious_now() == HOUR
    clock.passes(CAUTION_MS)
    assert clock.now() == clock.cautious_now()
    assert not clock.is_settled
    clock.passes(SETTLE_MS)
    assert clock.is_settled


def test_a_step_back_that_lasts_is_accepted_and_time_goes_on() -> None:
    clock = HandClock()
    clock.wrong_by = -HOUR
    assert clock.passes(SETTLE_MS + 2_000) == 0
    assert clock.is_settled
    clock.wrong_by = -2 * HOUR
    assert clock.passes(2_000) == 0
    assert not clock.is_settled


def test_a_clock_that_drifts_is_followed() -> None:
    clock = HandClock()
    for _ in range(20):
        clock.wrong_by += 200
        clock.passes(10_000)
    assert clock.now() - NOON - clock.passed == 4_000
    assert clock.is_settled
