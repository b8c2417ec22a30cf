"""The records of the journal: everything that can happen to a session of any kind.

A record says what happened; its `Entry` says where in the journal and when. Records are plain JSON when stored, so a
field is never renamed or given another meaning, and a new one has a default.

The types of fields are evaluated here, and not kept as text: msgspec would compile every text again in each process.
"""

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Union

import msgspec

from holdfast.core.budget import Budget, Price
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.kinds import KindDecoder, registered_kinds
from holdfast.core.needs import ANY
from holdfast.core.queries import KERNEL_QUERIES, Answer, Failure, Query, Usage
from holdfast.core.values import Json, decode_with
from holdfast.core.wake import Wake

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AskedQuery = TypeVar("AskedQuery", bound=Query, default=Query)
    AnyRecord_co = TypeVar("AnyRecord_co", bound="Record", default="Record", covariant=True)
else:
    from typing import TypeVar

    AnyRecord_co = TypeVar("AnyRecord_co", covariant=True)
    AskedQuery = TypeVar("AskedQuery")  # which types it stands for depends on the kinds that are registered


class Program(msgspec.Struct, frozen=True, omit_defaults=True):
    """What runs: enough to recognise it, and to find it in a process that has it."""

    kind: str
    name: str
    source: str | None = None
    """The text that it is made of, if its kind runs texts in a sandbox. Nothing else is ever run because of it."""
    version: str | None = None
    """A fingerprint of its code when the session started, if its kind has one."""


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


class Imported(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a session came into this store from a file. The import writes it; what a file says itself is dropped."""

    position: int
    """The last record that was in the file."""
    at: int
    """When it was imported (unix ms)."""
    key: str | None = None
    """The public key of the file's signature, which was right, or None if it had none. Whose it is, it does not say."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """Something that happened to a session.

    Records, queries, answers and entries are JSON, so they are part of no cycle: the collector need not look at them.
    """


class StartedRecord(Record, frozen=True, tag="started"):
    """The session exists, with all it was given."""

    program: Program
    service: str = DEFAULT_SERVICE
    """The service that the session's work belongs to, for ever: only processes that serve it go on with the session."""
    ctx: Json = None
    budget: Budget | None = None
    prices: dict[str, Price] = {}
    parent: Parent | None = None
    seed: int = 0
    """Where the program's random numbers begin."""
    forked_from: Fork | None = None
    llm: str = ANY
    """Who answers its `llm` queries: `host`, `any`, or the name of a model; an agent's policy says that instead."""
    imported: Imported | None = None
    """Where it came from, if it was imported: then it does nothing until somebody adopts it."""
    title: str = ""
    labels: list[str] = []
    """What people call it by, and find it by (`core.labels`)."""


class PausedRecord(Record, Generic[AskedQuery], frozen=True, tag="paused"):
    """The program asked, and waits.

    It waits for the new queries and for those still pending from before. `withdrawn` names pending queries it no longer
    waits for; an answer to one of those comes too late.
    """

    queries: list[AskedQuery]
    wake: Wake = "all"
    withdrawn: list[str] = []
    attempted: bool = False
    """Whether drivers are about to execute the effects of all its queries: each is attempted with it."""


class RefusedRecord(Record, frozen=True, tag="refused"):
    """The program asked more than it may: its queries failed without being asked."""

    queries: int
    failure: Failure


class AttemptedRecord(Record, frozen=True, tag="attempted"):
    """A driver is about to execute the effect of a query. Written before it does, unless the pause says so itself."""

    query_id: str
    driver: str


class InterruptedRecord(Record, frozen=True, tag="interrupted"):
    """The latest attempt at a query ended without an outcome, and its process did not die of it: it was shut down, or
    told the effect to stop because it could not keep its lease."""

    query_id: str
    was_begun: bool = True
    """False if nothing was executed: its process did not learn in time that the attempt had been recorded."""


class AnsweredRecord(Record, frozen=True, tag="answered"):
    """A query has its one and only answer."""

    query_id: str
    answer: Answer
    usage: Usage | None = None
    by: str | None = None
    """Who answered, where known: a host, a person, `clock`. None if it is the driver that attempted it."""


class AssignedRecord(Record, frozen=True, tag="assigned"):
    """From now on, somebody else answers its `llm` queries, as with `StartedRecord.llm`."""

    llm: str
    by: str | None = None


class LabelledRecord(Record, frozen=True, tag="labelled"):
    """Somebody gave the session another title, or other labels; None leaves what was there."""

    title: str | None = None
    labels: list[str] | None = None
    by: str | None = None


class AdoptedRecord(Record, frozen=True, tag="adopted"):
    """Somebody has looked at an imported session and lets it run here."""

    by: str | None = None


class LoggedRecord(Record, frozen=True, tag="logged"):
    """A line the program wrote to its log."""

    message: str
    level: str = "info"
    source: str = "log"


class ProgressedRecord(Record, frozen=True, tag="progressed"):
    """How far the program says it is."""

    step: int
    total: int
    message: str | None = None


class StatRecord(Record, frozen=True, tag="stat"):
    """A figure the program recorded about itself; the last value of a key counts."""

    key: str
    value: Json


class PatchedRecord(Record, frozen=True, tag="patched"):
    """The program took the new way of a change to its code, where sessions that were there before took the old one.

    A replay reads it. The change has the same answer throughout the session.
    """

    name: str


class KindRecord(Record, frozen=True):
    """Base of the records that a program kind brings. The kind folds them; the session's state stays as it is."""

    @property
    def background_usage(self) -> Usage | None:
        """What background work has spent on behalf of the session, if that is what the record says."""
        return None


class CompletedRecord(Record, frozen=True, tag="completed"):
    """The program returned."""

    result: Json = None


class FailedRecord(Record, frozen=True, tag="failed"):
    """The program raised, or broke one of its limits."""

    error: str
    kind: str = "error"


class CancelledRecord(Record, frozen=True, tag="cancelled"):
    """Someone ended the session."""

    reason: str | None = None
    by: str | None = None


class ExpiredRecord(Record, frozen=True, tag="expired"):
    """Nobody answered for so long that the session was ended."""

    reason: str


EndRecord: TypeAlias = CompletedRecord | FailedRecord | CancelledRecord | ExpiredRecord
"""After one of these nothing happens to a session any more."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a journal: its position (counted from 1), when it was written (unix ms), and what happened."""

    position: int
    at: int
    record: Record


class RecordDraft(msgspec.Struct, Generic[AnyRecord_co], frozen=True, gc=False):
    """A record that is about to be written, with its JSON where checking the record has made that already."""

    record: AnyRecord_co
    body: bytes | None = None


def attempted_pause(paused: PausedRecord, body: bytes | None) -> RecordDraft[PausedRecord]:
    """A pause with an attempt at each of its queries; `body` is its JSON without, if there is any."""
    record = msgspec.structs.replace(paused, attempted=True)
    return RecordDraft(record, body and body[:-1] + b',"attempted":true}')  # the last field


def attempted_in(record: Record) -> list[str]:
    """The queries whose effects a driver executes once a record is durable."""
    if type(record) is AttemptedRecord:
        return [record.query_id]
    return [query.id for query in record.queries] if type(record) is PausedRecord and record.attempted else []


def type_of(record: Record) -> str:
    """The type of a record, as written in the journal."""
    return str(record.__struct_config__.tag)


def any_query() -> Any:
    """The union of all queries that are known to this process."""
    return Union[(*KERNEL_QUERIES, *(query for kind in registered_kinds() for query in kind.queries))]


def _records() -> Any:
    brought = (record for kind in registered_kinds() for record in kind.records)
    return Union[(PausedRecord[any_query()], *KERNEL_RECORDS, *brought)]  # type: ignore[misc]


KERNEL_RECORDS: tuple[type[Record], ...] = (
    StartedRecord,
    RefusedRecord,
    AttemptedRecord,
    InterruptedRecord,
    AnsweredRecord,
    AssignedRecord,
    LabelledRecord,
    AdoptedRecord,
    LoggedRecord,
    ProgressedRecord,
    StatRecord,
    PatchedRecord,
    CompletedRecord,
    FailedRecord,
    CancelledRecord,
    ExpiredRecord,
)
"""The types that every session may have, beside `PausedRecord`, whose queries depend on the registered kinds."""

_decoder = KindDecoder(_records)
_list_decoder = KindDecoder(lambda: list[_records()])  # type: ignore[misc]
decode_with(PausedRecord, KindDecoder(lambda: PausedRecord[any_query()]))  # type: ignore[misc]


def decode_record(body: str | bytes) -> Record:
    """A record from its JSON; raises `msgspec.MsgspecError` or `ValueError` with the place of the fault."""
    record: Record = _decoder.decode(body)
    return record


def decode_records(body: str | bytes) -> list[Record]:
    """Records from a JSON array of them; raises as `decode_record` does."""
    records: list[Record] = _list_decoder.decode(body)
    return records
