"""Which times of a schedule are run for, and which come next: calendars, intervals, single times, and summer time."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from holdfast.agent.triggers.clock import GRACE_MS, check_source, next_time, plan
from holdfast.agent.triggers.terms import CronSource, IntervalSource, OnceSource
from holdfast.core.errors import InvalidValueError
from tests.agent.background.clocks import HOUR, MINUTE, NOON

EVERY_MINUTE = CronSource(cron="* * * * *")
BERLIN = ZoneInfo("Europe/Berlin")


def ms(*when: int, fold: int = 0) -> int:
    return round(datetime(*when, tzinfo=BERLIN, fold=fold).timestamp() * 1000)  # type: ignore[misc, arg-type]


def upcoming(source: CronSource, after: int, count: int) -> list[str]:
    found = []
    for _ in range(count):
        following = next_time(source, after)
        assert following is not None
        after = following
        found.append(datetime.fromtimestamp(after / 1000, BERLIN).isoformat())
    return found


def test_a_time_in_the_hour_that_is_skipped_runs_at_the_end_of_the_gap() -> None:
    source = CronSource(cron="30 2 * * *", zone="Europe/Berlin")
    assert upcoming(source, ms(2026, 3, 28, 12, 0), 2) == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]


def test_a_time_in_the_hour_that_comes_twice_runs_once() -> None:
    source = CronSource(cron="30 2 * * *", zone="Europe/Berlin")
    assert upcoming(source, ms(2026, 10, 24, 12, 0), 2) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]


def test_what_runs_twice_an_hour_goes_on_through_the_hour_that_comes_twice() -> None:
    source = CronSource(cron="*/30 * * * *", zone="Europe/Berlin")
    assert upcoming(source, ms(2026, 10, 25, 1, 45), 5) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


def test_a_day_is_as_long_as_its_zone_says() -> None:
    source = CronSource(cron="0 9 * * *", zone="Europe/Berlin")
    first = next_time(source, ms(2026, 3, 28, 8, 0))
    assert first is not None
    assert next_time(source, first) == first + 23 * HOUR


@pytest.mark.parametrize("missed", ["none", "last", "all"])
def test_a_run_on_time_is_never_missed(missed: str) -> None:
    found = plan(EVERY_MINUTE, NOON - MINUTE, NOON + 40, missed, 10)  # type: ignore[arg-type]
    assert (found.due, found.missed, found.next, found.cursor) == ([NOON], 0, NOON + MINUTE, NOON)


def test_missed_runs_are_left_out_made_up_for_once_or_all_of_them() -> None:
    hourly = CronSource(cron="0 * * * *")
    late = NOON + 5 * HOUR + 30 * MINUTE
    assert plan(hourly, NOON, late, "none", 10).due == []
    assert plan(hourly, NOON, late, "last", 10).due == [NOON + 5 * HOUR]
    assert plan(hourly, NOON, late, "all", 10).due == [NOON + n * HOUR for n in range(1, 6)]
    few = plan(hourly, NOON, late, "all", 2)
    assert (few.due, few.missed, few.next) == ([NOON + 4 * HOUR, NOON + 5 * HOUR], 3, NOON + 6 * HOUR)


def test_what_is_a_little_late_was_not_missed() -> None:
    assert plan(EVERY_MINUTE, NOON - MINUTE, NOON + GRACE_MS - 1, "none", 1).due == [NOON]


def test_a_clock_that_was_set_back_repeats_no_run() -> None:
    found = plan(EVERY_MINUTE, NOON, NOON - HOUR, "all", 10)
    assert (found.due, found.next, found.cursor) == ([], NOON + MINUTE, NOON)


def test_a_run_on_time_computes_no_time_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    step = CronSim.__next__

    def counted(self: CronSim) -> datetime:
        computed.append(step(self))
        return computed[-1]

    monkeypatch.setattr(CronSim, "__next__", counted)
    assert plan(CronSource(cron="0 12 1 * *"), NOON - HOUR, NOON + 40, "last", 10).next is not None
    assert 1 <= len(computed) <= 4, "those up to now, and the first after it"


@pytest.mark.parametrize("years", [1, 3])
def test_years_of_missed_runs_are_looked_at_in_a_moment(years: int) -> None:
    late = NOON + years * 365 * 24 * HOUR
    found = plan(EVERY_MINUTE, NOON, late, "all", 3)
    assert found.due == [late - 2 * MINUTE, late - MINUTE, late]
    assert found.missed >= 900


def test_intervals_count_from_their_beginning() -> None:
    source = IntervalSource(every_ms=10_000, since=NOON)
    assert next_time(source, NOON - HOUR) == next_time(source, NOON) == NOON + 10_000
    found = plan(source, NOON, NOON + 35_000, "all", 10)
    assert (found.due, found.next) == ([NOON + 10_000, NOON + 20_000, NOON + 30_000], NOON + 40_000)


def test_a_single_time_comes_once() -> None:
    source = OnceSource(at=NOON)
    assert plan(source, NOON - HOUR, NOON - 1, "last", 1).next == NOON
    found = plan(source, NOON - HOUR, NOON, "last", 1)
    assert (found.due, found.next) == ([NOON], None)
    assert plan(source, NOON, NOON + HOUR, "last", 1).due == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (CronSource(cron="every day"), "is not a cron expression"),
        (CronSource(cron="0 0 31 2 *"), "cron"),
        (CronSource(cron="* * * * *", zone="Europe/Atlantis"), "'Europe/Atlantis' is not known"),
        (CronSource(cron="* * * * *", zone="../etc/passwd"), "is not known"),
        (IntervalSource(every_ms=10, since=NOON), "between 1000 ms"),
        (OnceSource(at=-5), "no time"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(source: CronSource, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        check_source(source)
