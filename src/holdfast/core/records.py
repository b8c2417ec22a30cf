"""The records of the journal: everything that can have happened to a session, and nothing else.

A record says what happened; its `Entry` says where in the journal and when. Records are plain JSON when stored, so a
field is never renamed or given another meaning, and a new one has a default.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.turn import Outcome, ToolDone
from holdfast.core.budget import Budget, Price
from holdfast.core.queries import Answer, Failure, Query, Usage
from holdfast.core.values import Json

Wake: TypeAlias = Literal["all", "all_or_failure", "first"]
"""When a pause ends: once every pending query is answered, also at the first failure, or at any first answer."""


class Program(msgspec.Struct, frozen=True, omit_defaults=True):
    """What runs: enough to find and start it again in another process."""

    kind: str
    name: str
    source: str | None = None


class Parent(msgspec.Struct, frozen=True):
    """The session and the query that this session answers."""

    session_id: str
    query_id: str


class Fork(msgspec.Struct, frozen=True):
    """The session this one was forked from, and the last position they share."""

    session_id: str
    position: int
    origin: str
    """The session at the root of all forks: whose id the program knows itself by."""


class _Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    pass


class StartedRecord(_Record, frozen=True, tag="started"):
    """The session exists, with all it was given."""

    program: Program
    ctx: Json = None
    budget: Budget | None = None
    prices: dict[str, Price] = {}
    parent: Parent | None = None
    seed: int = 0
    """Where the program's random numbers begin."""
    forked_from: Fork | None = None


class PausedRecord(_Record, frozen=True, tag="paused"):
    """The program asked, and waits.

    It waits for the new queries and for those still pending from before. `withdrawn` names pending queries it no longer
    waits for; an answer to one of those comes too late.
    """

    queries: list[Query]
    wake: Wake = "all"
    withdrawn: list[str] = []


class RefusedRecord(_Record, frozen=True, tag="refused"):
    """The program asked, and was told that it may not: its queries failed without having been asked."""

    queries: int
    failure: Failure


class AttemptedRecord(_Record, frozen=True, tag="attempted"):
    """A driver is about to execute the effect of a query. Written before it does."""

    query_id: str
    driver: str


class AnsweredRecord(_Record, frozen=True, tag="answered"):
    """A query has its one and only answer."""

    query_id: str
    answer: Answer
    usage: Usage | None = None
    by: str | None = None
    """Who answered, where known: a host, a driver, a person, `clock`."""


class LoggedRecord(_Record, frozen=True, tag="logged"):
    """A line the program wrote to its log."""

    message: str
    level: str = "info"
    source: str = "log"


class ProgressedRecord(_Record, frozen=True, tag="progressed"):
    """How far the program says it is."""

    step: int
    total: int
    message: str | None = None


class StatRecord(_Record, frozen=True, tag="stat"):
    """A figure the program recorded about itself; the last value of a key counts."""

    key: str
    value: Json


class TurnRecord(_Record, frozen=True, tag="turn"):
    """A turn of an agent is over, otherwise than with a message: that is what a turn comes to that says nothing."""

    outcome: Outcome


class CallRecord(_Record, frozen=True, tag="call"):
    """A call of a tool has come to something without having been run: it was not approved."""

    call_id: str
    done: ToolDone


class FrameRecord(_Record, frozen=True, tag="frame"):
    """A fresh window begins in the conversation of an agent: with the summary that was asked for just now.

    What was said last stays as it is; how much that is, the query for the summary says.
    """

    key: str
    reason: Literal["threshold", "overflow", "manual"]
    summary: str


class EnqueuedRecord(_Record, frozen=True, tag="enqueued"):
    """Something was sent to an agent, and waits in its inbox."""

    item: Item
    by: str | None = None


class JoinedRecord(_Record, frozen=True, tag="joined"):
    """Items of the inbox have entered the turn that is under way; the model is shown them when it is asked next."""

    turn: str
    items: list[str]


class DequeuedRecord(_Record, frozen=True, tag="dequeued"):
    """Somebody took an item out of the inbox before a turn did."""

    item_id: str
    reason: str | None = None
    by: str | None = None


class StopRecord(_Record, frozen=True, tag="stop"):
    """Somebody wants a turn stopped. It was not over then; what it waited for has failed with this."""

    turn: str
    reason: str | None = None
    by: str | None = None


class CompletedRecord(_Record, frozen=True, tag="completed"):
    """The program returned."""

    result: Json = None


class FailedRecord(_Record, frozen=True, tag="failed"):
    """The program raised, or broke one of its limits."""

    error: str
    kind: str = "error"


class CancelledRecord(_Record, frozen=True, tag="cancelled"):
    """Someone ended the session."""

    reason: str | None = None
    by: str | None = None


class ExpiredRecord(_Record, frozen=True, tag="expired"):
    """Nobody answered for so long that the session was ended."""

    reason: str


Record: TypeAlias = (
    StartedRecord
    | PausedRecord
    | RefusedRecord
    | AttemptedRecord
    | AnsweredRecord
    | LoggedRecord
    | ProgressedRecord
    | StatRecord
    | TurnRecord
    | CallRecord
    | FrameRecord
    | EnqueuedRecord
    | JoinedRecord
    | DequeuedRecord
    | StopRecord
    | CompletedRecord
    | FailedRecord
    | CancelledRecord
    | ExpiredRecord
)


class Entry(msgspec.Struct, frozen=True):
    """One line of a journal: its position (counted from 1), when it was written (unix ms), and what happened."""

    position: int
    at: int
    record: Record


def type_of(record: Record) -> str:
    """The type of a record, as written in the journal."""
    return str(record.__struct_config__.tag)


_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def decode_record(body: str | bytes) -> Record:
    """A record from its JSON; raises `msgspec.MsgspecError` or `ValueError` with the place of the fault."""
    return _decoder.decode(body)
