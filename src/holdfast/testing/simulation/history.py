"""What clients called and what they were told, and a check that all of it can be true of one session after the other.

Each query is an object of its own: open, then answered with one value, or gone. The commits of a run are known with
their moments, so a history is checked against them: an acknowledged answer is in the journal when its caller is told;
a refused one is not; and what was shown as open had not been answered before it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.values import Json

Told: TypeAlias = Literal["accepted", "sent", "conflict", "stale", "unknown"]
"""What a caller was told: it is in the journal; it is in the mailbox; something else is in the journal; it is not
waited for; or nothing that means anything, as when the store could not be reached or the caller was killed."""


@dataclass
class FeedCall:
    """A call of `feed` for one query."""

    client: str
    session_id: str
    query_id: str
    value: Json
    called_s: float
    returned_s: float | None = None
    told: Told = "unknown"


@dataclass
class OpenQuery:
    """A query that was shown as open."""

    client: str
    session_id: str
    query_id: str
    called_s: float
    returned_s: float


@dataclass
class Settled:
    """How and when a query ended: with an answer, or without one."""

    at_s: float
    value: Json = None
    is_answered: bool = True


@dataclass
class Sighting:
    """Something that an observer was shown."""

    at_s: float
    position: int
    """Of the entry that it is, or follows from."""
    what: object


class History:
    """The calls of all clients of a run."""

    def __init__(self) -> None:
        self.feeds: list[FeedCall] = []
        self.shown: list[OpenQuery] = []
        self.started: dict[str, float] = {}
        """Sessions whose start was acknowledged, and when."""
        self.cancelled: dict[str, float] = {}
        """Sessions whose cancellation was acknowledged, and when."""
        self.ended: dict[str, float] = {}
        """Sessions that could not be cancelled because they had ended, as their caller was told, and when."""
        self.watched: dict[tuple[str, str], list[Sighting]] = {}
        """The entries that each observer has seen of each session, in all its lives."""

    def contradictions(self, settled: Mapping[tuple[str, str], Settled]) -> Iterator[tuple[str, str]]:
        """Calls that cannot have been told what they were told; each with its session."""
        for call in self.feeds:
            where = f"{call.client} fed {call.session_id}/{call.query_id} at {call.called_s:.3f}"
            end = settled.get((call.session_id, call.query_id))
            returned_s = call.returned_s if call.returned_s is not None else float("inf")
            match call.told:
                case "accepted":
                    if end is None or not end.is_answered:
                        yield call.session_id, f"{where} and was told that it is accepted, but it is not there"
                    elif end.value != call.value:
                        yield call.session_id, f"{where} and was told that it is accepted, but {end.value!r} is there"
                    elif end.at_s > returned_s:
                        yield call.session_id, f"{where} and was told that it is accepted before it was committed"
                case "conflict":
                    if end is None or end.at_s > returned_s or (end.is_answered and end.value == call.value):
                        yield call.session_id, f"{where} and was told of a conflict that there is not"
                case "stale":
                    if end is None or end.at_s > returned_s:
                        yield call.session_id, f"{where} and was told that nobody waits for it, but somebody does"
                    elif end.is_answered and end.value == call.value:
                        yield call.session_id, f"{where} and was told that nobody waits for it, but it is there"
                case "sent" | "unknown":
                    pass
        for seen in self.shown:
            end = settled.get((seen.session_id, seen.query_id))
            if end is not None and end.at_s < seen.called_s:
                where = f"{seen.session_id}/{seen.query_id}"
                yield seen.session_id, f"{seen.client} was shown {where} as open after it had ended"
