"""When schedules are due: the times of a source, which of those that have passed are run, and the next.

Times of a calendar are those of `cronsim`, which does as Debian's cron: what lies in the hour that the clock skips in
spring runs at the end of that gap; in autumn, a fixed hour that comes twice runs once, at its first time, and what runs
several times an hour simply goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING, assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.agent.triggers.terms import (
    MIN_INTERVAL_MS,
    ClockSource,
    CronSource,
    IntervalSource,
    Missed,
    OnceSource,
    check_time,
)
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import MAX_WAIT_MS

if TYPE_CHECKING:
    from cronsim import CronSim

GRACE_MS = 60_000
"""Milliseconds by which a run may be late without having been missed: what a restart of all OS processes takes."""

MAX_COUNTED = 1_000
"""Missed runs that are counted; there may be more."""


class ClockPlan(msgspec.Struct, frozen=True):
    """What a schedule has to do now."""

    due: list[int]
    """The times to run for, the earliest first."""
    missed: int
    """How many times have passed that are not run for."""
    next: int | None
    """When to look again; None if never."""
    cursor: int
    """The last time that has been considered: no run is planned for it, or for any before it, again."""


def plan(source: ClockSource, cursor: int, now: int, missed: Missed, limit: int) -> ClockPlan:
    """What to run for of the times after `cursor` and up to `now`."""
    passed = list(islice(_backwards(source, cursor, now), MAX_COUNTED))  # the latest first
    match missed:
        case "none":
            chosen = [at for at in passed[:1] if now - at <= GRACE_MS]
        case "last":
            chosen = passed[:1]
        case "all":
            chosen = passed[:limit]
        case _:
            assert_never(missed)
    latest = passed[0] if passed else cursor
    following = next_time(source, max(latest, cursor))
    return ClockPlan(chosen[::-1], len(passed) - len(chosen), following, latest)


def next_time(source: ClockSource, after: int) -> int | None:
    """The first time after another; None if there is none within the time that a timer may lie ahead."""
    match source:
        case OnceSource(at=at):
            return at if at > after else None
        case IntervalSource(every_ms=every, since=since):
            return since + max(1, (after - since) // every + 1) * every
        case CronSource():
            try:
                found = round(next(_cron(source, after)).timestamp() * 1000)
            except StopIteration:
                return None
            return found if found - after <= MAX_WAIT_MS else None


def _backwards(source: ClockSource, after: int, now: int) -> Iterator[int]:
    """The times after a moment and up to now, the latest first."""
    match source:
        case OnceSource(at=at):
            if after < at <= now:
                yield at
        case IntervalSource(every_ms=every, since=since):
            at = since + (now - since) // every * every
            while at > max(after, since):
                yield at
                at -= every
        case CronSource():
            # Forwards first, where that is short: it alone knows what the change of the clocks means.
            ahead = list(islice(takewhile(lambda at: at <= now, _times(source, after)), MAX_COUNTED))
            if len(ahead) < MAX_COUNTED:
                yield from reversed(ahead)
                return
            for moment in _cron(source, now + 1_000, reverse=True):
                at = round(moment.timestamp() * 1000)
                if at <= after:
                    return
                if at <= now:
                    yield at


def _times(source: CronSource, after: int) -> Iterator[int]:
    for moment in _cron(source, after):
        yield round(moment.timestamp() * 1000)


def _cron(source: CronSource, at: int, *, reverse: bool = False) -> CronSim:
    from cronsim import CronSim

    return CronSim(source.cron, datetime.fromtimestamp(at / 1000, _zone(source.zone)), reverse=reverse)


@lru_cache(maxsize=100)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def check_source(source: ClockSource) -> None:
    """Raise `InvalidValueError` unless the times of a source can be computed."""
    match source:
        case OnceSource(at=at):
            check_time(at, "time of a schedule")
        case IntervalSource(every_ms=every, since=since):
            check_time(since, "beginning of an interval")
            if not MIN_INTERVAL_MS <= every <= MAX_WAIT_MS:
                why = f"it lies between {MIN_INTERVAL_MS} ms and {MAX_WAIT_MS} ms, got {every}"
                raise InvalidValueError("interval", why)
        case CronSource(cron=cron, zone=zone):
            try:
                _zone(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise InvalidValueError(
                    "time zone", f"'{zone}' is not known; use a name such as Europe/Berlin"
                ) from None
            from cronsim import CronSimError

            try:
                next(_cron(source, 0))
            except CronSimError as error:
                why = f"'{cron}' is not a cron expression: {error}; five fields are: minute hour day month weekday"
                raise InvalidValueError("cron", why) from None
            except StopIteration:
                raise InvalidValueError("cron", f"'{cron}' never comes") from None
