"""The part of the store's contract that people's listings ask for: sums over sessions, and how journals end.

Both read many sessions in one go, and neither reads a whole journal.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.records import Entry
from holdfast.store.filters import check_filter
from holdfast.store.limits import READ_LIMIT
from holdfast.store.session_rows import SessionFilter
from holdfast.store.upkeep import in_range

Trait: TypeAlias = Literal["session", "state", "waiting_for", "program", "service", "labels", "day", "owner"]
"""By what sessions are summed up. `labels` and `waiting_for` are all of them, joined by commas; `day` is that of the
start, in UTC, as `2026-11-17`; `owner` is empty where nobody has a lease."""

T = TypeVar("T")
TRAITS: tuple[Trait, ...] = get_args(Trait)
DAY_MS = 24 * 60 * 60 * 1000


class SessionTotal(msgspec.Struct, frozen=True):
    """What sessions that are alike come to."""

    key: dict[str, str]
    """What they have in common, by trait."""
    sessions: int
    asks: int
    tokens: int
    cost: float

    def without(self, part: SessionTotal) -> SessionTotal:
        """The same without some of its sessions."""
        left = (self.sessions - part.sessions, self.asks - part.asks, self.tokens - part.tokens)
        return SessionTotal(self.key, *left, max(0.0, self.cost - part.cost) if left[0] else 0.0)


class SessionTotals(msgspec.Struct, frozen=True):
    """The sums over some sessions, those that cost most first."""

    rows: list[SessionTotal]
    is_partial: bool = False
    """Whether there are more than `TOTALLED_SESSIONS`, and older ones were left out."""


class OverviewStore(ABC):
    """What listings need of a store beside single pages."""

    async def totals(
        self, where: SessionFilter | None = None, by: Sequence[Trait] = ("state",), *, limit: int = READ_LIMIT
    ) -> SessionTotals:
        """Sums over the sessions that match all conditions, a row for each combination of traits that there is.

        The rows that cost most come first, then those with most tokens, then those with most sessions. Of more than
        `TOTALLED_SESSIONS` only the newest count, and it says so.
        """
        where = where or SessionFilter()
        check_filter(where)
        if unknown := [each for each in by if each not in TRAITS]:
            raise InvalidValueError("traits", f"no such trait: {unknown[0]} (there are: {', '.join(TRAITS)})")
        return await self._totals(where, list(dict.fromkeys(by)), in_range(limit))

    async def last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
        """The last entries of several sessions, `limit` of each at most, in order, in one read.

        A session that is missing, or whose last entries are damaged, is left out: `read` says what is wrong with it.
        """
        for session_id in session_ids:
            check_id(session_id, "session id")
        return await self._last_entries(session_ids, in_range(limit))

    @abstractmethod
    async def _totals(self, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals: ...

    @abstractmethod
    async def _last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]: ...


async def timed(work: Awaitable[T], timer: Callable[[float], None]) -> T:
    """What a work gives, after telling how many seconds it took."""
    began = time.perf_counter()
    try:
        return await work
    finally:
        timer(time.perf_counter() - began)


def trait_text(trait: Trait, value: object) -> str:
    """A trait of a row as a key: days come as numbers, counted from the beginning of 1970."""
    if value is None:
        return ""
    if trait != "day":
        return str(value)
    try:
        return date.fromordinal(date(1970, 1, 1).toordinal() + int(str(value))).isoformat()
    except (ValueError, OverflowError):
        return ""


def total_of(by: Sequence[Trait], row: Sequence[object]) -> SessionTotal:
    """A sum from its row: the traits, then sessions, questions, tokens and cost."""
    count = len(by)
    key: dict[str, str] = {trait: trait_text(trait, value) for trait, value in zip(by, row[:count], strict=True)}
    sessions, asks, tokens, cost = (float(str(value or 0)) for value in row[count : count + 4])
    return SessionTotal(key, int(sessions), int(asks), int(tokens), cost)
