"""What a trigger is registered with: where it comes from, what it starts, and how it deals with overlaps and delays."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.processes.terms import EmitWork, OutsideWork, RecoveryContract, StrategyWork, ToolWork, TurnWork
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.limits import MAX_INTEGER
from holdfast.core.values import Json, checked

MIN_INTERVAL_MS = 1_000
"""The shortest interval: timers are met within a second, so anything below would be a queue and no schedule."""

MAX_MISSED = 1_000
"""Missed runs that are made up for at most, however many are asked for."""

Overlap: TypeAlias = Literal["skip", "queue", "cancel"]
"""What to do if the run before is not over: leave the new one out, let it wait, or cancel the older one."""

Missed: TypeAlias = Literal["none", "last", "all"]
"""Which of the runs to make up for whose time passed while nobody could start them."""


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
"""Units of an interval, and their lengths in milliseconds."""


class EventSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="event", tag_field="source"):
    """An event that somebody emits."""

    type: str
    key: str | None = None
    """Only events with this key; None for all."""

    def __str__(self) -> str:
        return f"event {self.type}" if self.key is None else f"event {self.type} of {self.key}"


class CronSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cron", tag_field="source"):
    """Times of a calendar, in a time zone."""

    cron: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"cron {self.cron} ({self.zone})"


class IntervalSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="interval", tag_field="source"):
    """Every so often, counted from a moment."""

    every_ms: int
    since: int
    """Unix ms; the first run is one interval later."""

    def __str__(self) -> str:
        unit, length = next((unit, length) for unit, length in _UNITS if self.every_ms % length == 0)
        return f"every {self.every_ms // length} {unit}"


class OnceSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="once", tag_field="source"):
    """Once, at a time (unix ms)."""

    at: int

    def __str__(self) -> str:
        return "once"


ClockSource: TypeAlias = CronSource | IntervalSource | OnceSource
Source: TypeAlias = EventSource | ClockSource
Target: TypeAlias = ToolWork | StrategyWork | TurnWork | EmitWork | OutsideWork


class TriggerTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a trigger is. Every change makes new ones, which are recorded whole."""

    name: str
    source: Source
    target: Target
    recovery: RecoveryContract = "rerunnable"
    enabled: bool = True
    overlap: Overlap = "skip"
    missed: Missed = "last"
    missed_limit: int = 10
    """Runs that `all` makes up for at most."""
    session: str | None = None
    """The session that it belongs to, and ends with."""
    wake: str | None = None
    """The session that is woken when a run is over."""
    llm: str | None = None
    """Who answers the `llm` queries of a strategy that it starts, if not any process."""

    @property
    def is_clock(self) -> bool:
        return not isinstance(self.source, EventSource)

    @property
    def program(self) -> str:
        """The name that the sessions of such triggers are found by."""
        return program_name(self.source.type) if isinstance(self.source, EventSource) else SCHEDULE


SCHEDULE = "schedule"
"""The program name of all triggers whose source is the clock."""


def program_name(event_type: str) -> str:
    """The program name of all triggers of an event type."""
    return f"on:{event_type}"


def check_trigger(terms: TriggerTerms) -> TriggerTerms:
    """Give the terms back as they will be recorded; `InvalidValueError` if they cannot be met."""
    from holdfast.agent.triggers.clock import check_source

    try:
        found = msgspec.convert(msgspec.to_builtins(checked(terms, "trigger")), TriggerTerms)
    except msgspec.ValidationError as error:
        raise InvalidValueError("trigger", str(error)) from None
    check_id(found.name, "name of a trigger")
    if "=" in found.name:
        raise InvalidValueError("trigger", f"its name '{found.name}' has a '=', which stands for a later one")
    if not 1 <= found.missed_limit <= MAX_MISSED:
        raise InvalidValueError("trigger", f"missed_limit lies between 1 and {MAX_MISSED}, got {found.missed_limit}")
    is_outside = isinstance(found.target, OutsideWork)
    if is_outside != (found.recovery == "external"):
        raise InvalidValueError("trigger", f"recovery '{found.recovery}' does not fit what it starts")
    if isinstance(found.source, EventSource):
        check_id(found.source.type, "event type")
    else:
        check_source(found.source)
    return found


def check_time(at: int, what: str) -> None:
    """Raise unless a time can be kept and reckoned with."""
    if not 0 <= at <= MAX_INTEGER // 4:
        raise InvalidValueError(what, f"it is no time in unix milliseconds: {at}")


def filled(value: Json, event: dict[str, Json]) -> Json:
    """A value of a target with what happened in it: `$event`, `$type`, `$key`, `$payload` and `$time` stand for it."""
    match value:
        case "$event":
            return event
        case "$type" | "$key" | "$payload" | "$time":
            return event.get(value[1:])
        case dict():
            return {name: filled(each, event) for name, each in value.items()}
        case list():
            return [filled(each, event) for each in value]
        case _:
            return value


def work_for(target: Target, event: dict[str, Json]) -> Target:
    """What a trigger starts because of an event."""
    match target:
        case ToolWork(arguments=arguments):
            return msgspec.structs.replace(target, arguments=filled(dict(arguments), event))
        case StrategyWork(ctx=ctx):
            return msgspec.structs.replace(target, ctx=event if ctx is None else filled(ctx, event))
        case TurnWork(input=text):
            shown = msgspec.json.encode(event).decode()
            has_place = "$event" in text
            return msgspec.structs.replace(
                target, input=text.replace("$event", shown) if has_place else f"{text}\n\n{shown}".lstrip()
            )
        case EmitWork(payload=payload, key=key):
            filled_key = filled(key, event)
            return msgspec.structs.replace(target, payload=filled(payload, event), key=str(filled_key or ""))
        case OutsideWork():
            return target
