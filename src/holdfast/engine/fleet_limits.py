"""Limits of a fleet: how they are written, where they are declared, and which of them count a call.

A limit is written `SUBJECT=COUNT`, for calls at once, or `SUBJECT=COUNT/PERIOD`, for calls in a time:

    service:billing=20            program:triage=5            tool:search=10/s
    model:openai:gpt-5=60/m       key:customer=2              model:openai:gpt-5,key:customer=10/m

`key:customer` counts the sessions of each value of the label `customer=…` apart. `*` in place of a name does the same
for services, programs, models and tools. What is declared is one state item of the store, so that all processes have
the same limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.labels import MAX_LABEL_CHARS, label_value
from holdfast.core.values import Json
from holdfast.store.contract import Store
from holdfast.store.permits import CounterUse, PermitShare

NAMESPACE = "holdfast.limits"
KEY = "declared"
"""Where the limits of a store are, in its state."""

MAX_LIMITS = 100
"""Limits of a store: each is compared with every call."""

MAX_COUNT = 100_000
"""Calls at once, or in a period: each of them is a row."""

MAX_PERIOD_MS = 31 * 86_400_000
"""The longest period: a month."""

SubjectKind: TypeAlias = Literal["key", "tool", "model", "program", "service"]
"""From what is mostly the narrowest to the widest: a call that lacks room stands in the narrowest line."""

_KINDS: tuple[str, ...] = get_args(SubjectKind)
_EACH = "*"
_COUNT = re.compile(r"([0-9]+)(?:/([0-9]*)(ms|s|m|h|d))?")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EXAMPLES = "as in service:billing=20, model:openai:gpt-5=60/m or key:customer=2"


class Call(NamedTuple):
    """What limits look at."""

    service: str
    program: str
    labels: Sequence[str]
    models: Sequence[str] = ()
    """The names of the model that is called; of all of them, the first is that by which `*` counts."""
    tool: str | None = None


class Subject(msgspec.Struct, frozen=True):
    """A part of what a limit is on."""

    kind: SubjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def counted(self, call: Call) -> str | None:
        """What a call counts as; None if the limit is not on it."""
        if self.kind == "key":
            value = label_value(call.labels, self.name)
            return None if value is None else f"key:{self.name}={value}"
        names = self._names(call)
        if self.name == _EACH:
            return f"{self.kind}:{names[0]}" if names else None
        return str(self) if self.name in names else None

    def _names(self, call: Call) -> Sequence[str]:
        """The names that a call has as such a subject."""
        match self.kind:
            case "service":
                return (call.service,)
            case "program":
                return (call.program,)
            case "model":
                return call.models
            case "tool":
                return () if call.tool is None else (call.tool,)
            case "key":
                return ()


class Limit(msgspec.Struct, frozen=True):
    """How many calls all processes on a store make at once, or in a time."""

    subjects: tuple[Subject, ...]
    most: int
    period_ms: int = 0

    @property
    def name(self) -> str:
        """What it is on. A store has one limit of a name."""
        return ",".join(map(str, self.subjects)) + _period(self.period_ms)

    def __str__(self) -> str:
        return f"{','.join(map(str, self.subjects))}={self.most}{_period(self.period_ms)}"

    def share(self, call: Call) -> PermitShare | None:
        """The place that a call takes; None if the limit is not on it."""
        counted = [subject.counted(call) for subject in self.subjects]
        if None in counted:
            return None
        counter = ",".join(filter(None, counted)) + _period(self.period_ms)
        return PermitShare(counter, self.most, self.period_ms)

    def counts(self, counter: str) -> bool:
        """Whether a counter is one of this limit."""
        name, period = _split_period(counter)
        parts = name.split(",")
        if period != _period(self.period_ms) or len(parts) != len(self.subjects):
            return False
        for subject, part in zip(self.subjects, parts, strict=True):
            expected = f"{subject.kind}:" if subject.name == _EACH else f"{subject}"
            if subject.kind == "key":
                expected += "="
            if not (part.startswith(expected) if expected[-1] in ":=" else part == expected):
                return False
        return True


def parse_limit(text: object) -> Limit:
    """A limit as it is written. Raises `InvalidValueError` that says what is wrong with it."""
    if not isinstance(text, str) or "=" not in text:
        raise InvalidValueError("limit", f"write SUBJECT=COUNT or SUBJECT=COUNT/PERIOD, {_EXAMPLES}; got {text!r}")
    subject, _, count = text.rpartition("=")
    return limit_of(subject, count)


def limit_of(subject: str, count: object) -> Limit:
    """A limit on a subject: a number of calls at once, or a text as `60/m`."""
    about = f"limit on '{subject}'"
    if isinstance(count, int) and not isinstance(count, bool):
        count = str(count)
    found = _COUNT.fullmatch(count.strip()) if isinstance(count, str) else None
    if found is None:
        why = f"expected a number of calls at once, or of calls in a period (60/m, 10/s, 1000/h, 5/30s); got {count!r}"
        raise InvalidValueError(about, why)
    most, number, unit = int(found[1]), found[2], found[3]
    period_ms = int(number or 1) * _UNITS_MS[unit] if unit else 0
    if not 1 <= most <= MAX_COUNT:
        raise InvalidValueError(about, f"it allows 1 to {MAX_COUNT} calls; got {most}")
    if unit and not 1 <= period_ms <= MAX_PERIOD_MS:
        raise InvalidValueError(about, f"a period is at least a millisecond and at most 31 days; got {count!r}")
    subjects = tuple(sorted(map(_subject, subject.split(",")), key=lambda each: (_KINDS.index(each.kind), each.name)))
    if len({(each.kind, each.name if each.kind == "key" else "") for each in subjects}) < len(subjects):
        raise InvalidValueError(about, "each kind of subject stands in it once; a session has several keys, though")
    return Limit(subjects, most, period_ms)


def _subject(text: str) -> Subject:
    kind, colon, name = text.strip().partition(":")
    if kind not in _KINDS or not colon or not name or name != name.strip() or len(name) > 200:
        kinds = ", ".join(f"{each}:NAME" for each in reversed(_KINDS))
        raise InvalidValueError(f"limit on '{text}'", f"what is limited is one of {kinds}, {_EXAMPLES}")
    if kind == "key" and (name == _EACH or "=" in name or len(name) >= MAX_LABEL_CHARS):
        why = "a key is the name of a label NAME=VALUE, and each value is counted apart"
        raise InvalidValueError(f"limit on '{text}'", why)
    return msgspec.convert({"kind": kind, "name": name}, Subject)


def limits_of(declared: Mapping[str, Any]) -> list[Limit]:
    """The limits of a table: a count, a text as `60/m`, or a list of those, by subject."""
    return [
        limit_of(subject, count)
        for subject, counts in declared.items()
        for count in (counts if isinstance(counts, list) else [counts])
    ]


def parse_limits(limits: Iterable[str] | Mapping[str, Any]) -> list[Limit]:
    """Limits as they are written, or as a table."""
    if isinstance(limits, str):
        raise InvalidValueError("limits", f"they are a list of texts, and not one text: [{limits!r}]")
    return limits_of(limits) if isinstance(limits, Mapping) else list(map(parse_limit, limits))


def _period(period_ms: int) -> str:
    if not period_ms:
        return ""
    unit, size = next((unit, size) for unit, size in reversed(_UNITS_MS.items()) if period_ms % size == 0)
    number = period_ms // size
    return f"/{'' if number == 1 else number}{unit}"


def _split_period(counter: str) -> tuple[str, str]:
    found = re.search(r"/[0-9]*(?:ms|s|m|h|d)$", counter)
    return (counter[: found.start()], found[0]) if found else (counter, "")


# --- the limits of a store ------------------------------------------------------------------------------


def decode_limits(value: Json) -> list[Limit]:
    """The limits in a state item, by name. Raises `InvalidValueError` if it is of another shape."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidValueError("limits", f"expected a list, got {type(value).__name__}")
    return sorted(map(parse_limit, value), key=lambda limit: limit.name)


async def read_limits(store: Store) -> list[Limit]:
    """The limits that were declared in a store, by name."""
    item = await store.get_state(NAMESPACE, KEY)
    return decode_limits(item.value if item is not None else None)


class LimitReport(msgspec.Struct, frozen=True):
    """A limit, and how much of it is in use."""

    name: str
    most: int
    period_ms: int
    """In what time; 0 for calls at once."""
    counters: list[CounterUse]
    """What is in use of it: one counter, or of a limit by key one for each value."""


async def limit_reports(store: Store) -> list[LimitReport]:
    """The limits of a store, by name."""
    uses = await store.counter_uses()
    return [
        LimitReport(limit.name, limit.most, limit.period_ms, [each for each in uses if limit.counts(each.counter)])
        for limit in await read_limits(store)
    ]


async def declare_limits(store: Store, limits: Iterable[Limit]) -> list[Limit]:
    """Add limits to those of a store; one of the same name is replaced. Gives those that are new or other than before.

    Where all are declared already, nothing is written.
    """
    wanted = {limit.name: limit for limit in limits}
    before = {limit.name: limit for limit in await read_limits(store)}
    changed = [limit for name, limit in wanted.items() if before.get(name) != limit]

    def changes(value: Json) -> Json:
        after = {**{limit.name: limit for limit in decode_limits(value)}, **wanted}
        if len(after) > MAX_LIMITS:
            raise InvalidValueError("limits", f"a store has at most {MAX_LIMITS}; remove some first")
        return [str(after[name]) for name in sorted(after)]

    if changed:
        await store.update_state(NAMESPACE, KEY, changes)
    return changed


async def remove_limits(store: Store, names: Iterable[str]) -> list[str]:
    """Remove limits by name; gives those that were there."""
    unwanted = set(names)
    there = [limit.name for limit in await read_limits(store) if limit.name in unwanted]

    def changes(value: Json) -> Json:
        return [str(limit) for limit in decode_limits(value) if limit.name not in unwanted]

    if there:
        await store.update_state(NAMESPACE, KEY, changes)
    return there
