"""Decisions: what a message, a program or the clock does to a session, as the records to append.

Every function here is pure. It validates everything first, raises if anything is wrong, and otherwise gives back
records that `Session.apply` will accept. Nothing has changed until those are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, Union, assert_never, get_args

import msgspec

from holdfast.core.budget import Budget, Price, check_limits, reserve
from holdfast.core.errors import (
    AnswerConflictError,
    EmptyFeedError,
    InvalidValueError,
    NoPendingQueryError,
    NotAdoptedError,
    QueryIdRequiredError,
    StaleQueryError,
    TransitionError,
    UnknownQueryError,
)
from holdfast.core.ids import DEFAULT_SERVICE, check_id, query_id
from holdfast.core.kinds import KindDecoder, registered_kinds
from holdfast.core.labels import LabelMessage, check_labels, check_title, relabelled
from holdfast.core.limits import MAX_QUERIES_PER_PAUSE
from holdfast.core.needs import ANY, check_llm
from holdfast.core.queries import (
    Answer,
    Failure,
    Query,
    TimerQuery,
    Usage,
    Value,
    answer_preview,
    check_answer,
    check_query,
    check_query_limits,
    check_usage,
    is_plain_usage,
    says_the_same,
)
from holdfast.core.records import (
    AdoptedRecord,
    AnsweredRecord,
    AssignedRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    LabelledRecord,
    Parent,
    PausedRecord,
    Program,
    Record,
    RecordDraft,
    StartedRecord,
)
from holdfast.core.state import IMPORTED, PAUSED, RUNNING, Session, State
from holdfast.core.values import (
    Json,
    check_value,
    checked,
    encode_checked,
    encode_plain,
    encode_sound,
    fingerprint,
    preview,
    repaired,
)
from holdfast.core.wake import Wake

# --- messages: what others may send to a session --------------------------------------------------


class GivenAnswer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One answer as it arrives; `query_id` may be left out while exactly one query is pending."""

    answer: Answer
    query_id: str | None = None
    usage: Usage | None = None


class FeedMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="feed", tag_field="type", gc=False):
    """Answers, taken all together or not at all."""

    answers: list[GivenAnswer]
    by: str | None = None


class CancelMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancel", tag_field="type"):
    """The wish to end a session."""

    reason: str | None = None
    by: str | None = None


class AssignMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="assign", tag_field="type"):
    """The wish that somebody else answers the `llm` queries of a session: `host`, `any`, or the name of a model."""

    llm: str
    by: str | None = None


class AdoptMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="adopt", tag_field="type"):
    """The word of somebody here that an imported session may run."""

    by: str | None = None


class WakeMessage(msgspec.Struct, frozen=True, tag="wake", tag_field="type"):
    """A nudge: look at what is due."""


class KindMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of the messages that a program kind brings; its own fold decides about them."""

    @property
    def tag(self) -> str:
        """The type of the message, as it is stored."""
        return str(self.__struct_config__.tag)


_OwnMessage: TypeAlias = FeedMessage | CancelMessage | AssignMessage | LabelMessage | AdoptMessage | WakeMessage
Message: TypeAlias = _OwnMessage | KindMessage


def _messages() -> Any:
    brought = (message for kind in registered_kinds() for message in kind.messages)
    return Union[(_OwnMessage, *brought)]


_decoder = KindDecoder(_messages)


def decode_message(body: str | bytes) -> Message:
    """A message from its JSON; raises `msgspec.MsgspecError` or `ValueError` with the place of the fault."""
    message: Message = _decoder.decode(body)
    return message


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What a message leads to: records to append, and the positions of records that had done its work before."""

    drafts: list[RecordDraft]
    replayed: list[int] = []

    @classmethod
    def of(cls, *records: Record) -> Decision:
        """To append these records, which have not been encoded yet."""
        return cls([RecordDraft(record) for record in records])

    @property
    def records(self) -> list[Record]:
        """The records to append."""
        return [draft.record for draft in self.drafts]

    @property
    def is_replay(self) -> bool:
        """The message had been taken before; appending nothing and repeating the reply is right."""
        return not self.drafts and bool(self.replayed)


# --- repeats: what was sent before is compared with its record ------------------------------------


class Repeats(msgspec.Struct, frozen=True):
    """What a message may be a repeat of. The records are in the journal, and only there."""

    positions: Mapping[str, int | None]
    """Where the records are, by the ids that the message names; None where that is not remembered."""
    id_in: Callable[[Record], str | None]
    """The id that such a record is found by; None for any other record."""

    def among(self, entries: Iterable[Entry]) -> dict[str, Entry]:
        """Those entries that the message may repeat, by id."""
        found = ((self.id_in(entry.record), entry) for entry in entries)
        return {named: entry for named, entry in found if named is not None and named in self.positions}


def repeats_of(session: Session, message: Message) -> Repeats | None:
    """What a message may be a repeat of; None if it says something new."""
    if type(message) is not FeedMessage:
        return session.kind_fold.repeats_of(message) if isinstance(message, KindMessage) else None
    positions: dict[str, int | None] = {}
    for given in message.answers:
        asked = given.query_id
        if asked is not None and asked not in session.pending and session.has_asked(asked):
            positions[asked] = session.settled.get(asked)
    return Repeats(positions, _query_answered_in) if positions else None


def _query_answered_in(record: Record) -> str | None:
    return record.query_id if type(record) is AnsweredRecord else None


_NOTHING: dict[str, Entry] = {}


def decide(session: Session, message: Message, now: int, recorded: Mapping[str, Entry] = _NOTHING) -> Decision:
    """What a message does to a session at `now`, or the reason why it is refused.

    `recorded` holds those entries of the journal that the message may repeat, as `repeats_of` names them.
    """
    match message:
        case FeedMessage():
            return decide_feed(session, message, recorded)
        case CancelMessage():
            return decide_cancel(session, message)
        case AssignMessage():
            return decide_assign(session, message)
        case LabelMessage():
            return decide_label(session, message)
        case AdoptMessage():
            return decide_adopt(session, message)
        case WakeMessage():
            if session.state is IMPORTED:
                return Decision([])
            return Decision.of(*decide_due(session, now), *session.kind_fold.decide_waiting(session, now))
        case KindMessage():
            if session.state is IMPORTED:
                raise NotAdoptedError(session.id, message.tag, f"{RUNNING} or {PAUSED}", session.state)
            return session.kind_fold.decide(session, message, now, recorded)
        case _:
            assert_never(message)


# --- answers --------------------------------------------------------------------------------------


def decide_feed(session: Session, feed: FeedMessage, recorded: Mapping[str, Entry] = _NOTHING) -> Decision:
    """Accept answers: every one is checked before any is taken.

    An answer equal to the recorded one is a replay and changes nothing; a different one is a conflict. Usage is not
    part of that comparison: it describes the answer and is kept from the first time.
    """
    if not feed.answers:
        raise EmptyFeedError(session.id)
    if session.state is IMPORTED:
        raise NotAdoptedError(session.id, "answered", f"{RUNNING} or {PAUSED}", session.state)
    drafts: list[RecordDraft] = []
    replayed: list[int] = []
    taken: dict[str, GivenAnswer] = {}
    for given in feed.answers:
        asked = given.query_id if given.query_id is not None else _sole_pending(session)
        if asked in taken:
            check_answer(given.answer)
            _check_same(session, asked, taken[asked].answer, given.answer)
            continue
        taken[asked] = given
        if asked in session.pending:
            answered = AnsweredRecord(query_id=asked, answer=given.answer, usage=given.usage, by=feed.by)
            has_plain_usage = given.usage is None or is_plain_usage(given.usage)
            if not has_plain_usage:
                check_usage(given.usage)
            session.pending[asked].query.check_answer(session.id, given.answer)
            drafts.append(RecordDraft(answered, _encode_answered(answered, has_plain_usage=has_plain_usage)))
        elif (before := recorded.get(asked)) is not None:
            check_answer(given.answer)
            assert isinstance(before.record, AnsweredRecord)
            _check_same(session, asked, before.record.answer, given.answer)
            replayed.append(before.position)
        elif session.has_asked(asked):
            assert asked not in session.settled, "its answer has to be looked up first"
            over = f"the session is {session.state}" if session.is_terminal else "the program withdrew it"
            raise StaleQueryError(session.id, asked, over)
        else:
            raise UnknownQueryError(session.id, preview(asked).strip('"'), list(session.pending))
    return Decision(drafts, replayed)


def _encode_answered(record: AnsweredRecord, *, has_plain_usage: bool) -> bytes:
    """The JSON of an answer that can be kept. One that is just text needs no more than to be encoded."""
    answer, by = record.answer, record.by
    if (
        type(answer) is Value
        and type(answer.value) is str
        and has_plain_usage
        and (by is None or type(by) is str)
        and (body := encode_plain(record)) is not None
    ):
        return body
    return encode_checked(record, "answer")


def _sole_pending(session: Session) -> str:
    pending = session.pending
    if len(pending) == 1:
        return next(iter(pending))
    if not pending:
        raise NoPendingQueryError(session.id, session.state)
    raise QueryIdRequiredError(session.id, list(pending))


def _check_same(session: Session, asked: str, before: Answer, now: Answer) -> None:
    if not says_the_same(before, now):
        raise AnswerConflictError(session.id, asked, answer_preview(before), answer_preview(now))


def decide_due(session: Session, now: int) -> list[Record]:
    """The answers that the clock gives: timers that have run out, and queries whose time has lapsed."""
    due = session.pending.due(now)
    due.sort(key=lambda p: (p.due_at or 0, int(p.query.id[2:])))
    answers: list[Record] = []
    for pending in due:
        query = pending.query
        if isinstance(query, TimerQuery):
            answer: Answer = Value(value=None)
        else:
            answer = Failure(f"no answer within {query.timeout_ms} ms", "timeout")
        answers.append(AnsweredRecord(query_id=query.id, answer=answer, by="clock"))
    return answers


# --- the program ----------------------------------------------------------------------------------


def decide_start(
    program: Program,
    *,
    service: str = DEFAULT_SERVICE,
    llm: str = ANY,
    ctx: Json = None,
    budget: Budget | None = None,
    prices: Mapping[str, Price] | None = None,
    parent: Parent | None = None,
    seed: int = 0,
    title: str = "",
    labels: Iterable[str] = (),
) -> StartedRecord:
    """A new session."""
    check_id(service, "service")
    check_llm(llm)
    check_value(ctx, "ctx")
    check_limits(budget, prices or {})
    started = StartedRecord(
        program=program,
        service=service,
        llm=llm,
        ctx=ctx,
        budget=budget,
        prices=dict(prices or {}),
        parent=parent,
        seed=seed,
        title=check_title(title),
        labels=check_labels(labels),
    )
    return checked(started, "start")


def start_difference(recorded: StartedRecord, started: StartedRecord) -> str | None:
    """How a start differs from the recorded one of the same session, in words; None if it is the same once more.

    What each try makes anew does not count: the seed, and the version of the code.
    """
    if recorded.forked_from is not None:
        return f"it is a fork of '{recorded.forked_from.session_id}'"
    for name in ("program", "service", "ctx", "budget", "prices", "parent", "title", "labels"):
        before, now = (_start_field(each, name) for each in (recorded, started))
        if fingerprint(before) != fingerprint(now):
            return f"its {name} differs: recorded {preview(before)}, now given {preview(now)}"
    return None


def _start_field(started: StartedRecord, name: str) -> Json:
    value = getattr(started, name)
    return msgspec.to_builtins(msgspec.structs.replace(value, version=None) if name == "program" else value)


_WAKES = get_args(Wake)


def decide_pause(
    session: Session,
    queries: Sequence[Query],
    now: int,
    *,
    wake: Wake = "all",
    withdrawn: Sequence[str] = (),
) -> RecordDraft[PausedRecord]:
    """The program asks. The queries get their ids here."""
    if session.state is not RUNNING:
        raise TransitionError(session.id, "paused", State.RUNNING, session.state)
    if len(queries) > MAX_QUERIES_PER_PAUSE:
        why = f"{len(queries)} queries at once; at most {MAX_QUERIES_PER_PAUSE} are allowed"
        raise InvalidValueError("pause", why)
    record = PausedRecord(queries=_numbered(queries, session.queries_asked), wake=wake, withdrawn=list(withdrawn))
    body = _encode_paused(record)
    if session.started is not None and session.started.budget is not None:
        reserve(session, queries, now, withdrawn)
    if wake not in _WAKES:
        raise InvalidValueError("pause", f"wake must be one of {', '.join(_WAKES)}")
    if withdrawn or not queries:  # queries that are numbered here may always be asked
        session.check(record)
    return RecordDraft(record, body)


def _numbered(queries: Sequence[Query], first: int) -> list[Query]:
    """The queries with their ids. A program that counts for itself has given them already."""
    numbered = []
    for number, query in enumerate(queries, first):
        asked = query_id(number)
        numbered.append(query if query.id == asked else msgspec.structs.replace(query, id=asked))
    return numbered


def _encode_paused(record: PausedRecord) -> bytes | None:
    """The JSON of a pause whose queries can all be asked and kept; None if only each of them alone was looked at."""
    are_plain = True
    for query in record.queries:
        if not query.is_plain:
            are_plain = False
            break
    if are_plain and (body := encode_plain(record)) is not None:
        return body
    body = encode_sound(record)
    for query in record.queries:
        check_query(query) if body is None else check_query_limits(query)
    return body


def decide_complete(session: Session, result: Json) -> CompletedRecord:
    """The program returned."""
    check_value(result, "result")
    record = CompletedRecord(result=result)
    session.check(record)
    return record


def decide_fail(session: Session, error: str, kind: str = "error") -> FailedRecord:
    """The program raised. The message is repaired rather than refused: an error must never be lost to its own text."""
    record = FailedRecord(error=repaired(error), kind=repaired(kind))
    session.check(record)
    return record


# --- endings from outside -------------------------------------------------------------------------


def decide_assign(session: Session, assign: AssignMessage) -> Decision:
    """Let somebody else answer the `llm` queries. What says nothing new changes nothing."""
    check_llm(assign.llm)
    checked(assign, "assignment")
    record = AssignedRecord(llm=assign.llm, by=assign.by)
    session.check(record)
    return Decision([], replayed=[session.position]) if session.llm == assign.llm else Decision.of(record)


def decide_label(session: Session, label: LabelMessage) -> Decision:
    """Change what people call a session. What says nothing new changes nothing."""
    title, labels = label.title and check_title(label.title), label.labels and check_labels(label.labels)
    record = checked(LabelledRecord(title=title, labels=labels, by=label.by), "label")
    session.check(record)
    is_known = relabelled(session, title, labels) == (session.title, session.labels)
    return Decision([], replayed=[session.position]) if is_known else Decision.of(record)


def decide_adopt(session: Session, adopt: AdoptMessage) -> Decision:
    """Let an imported session run. Adopting one again, or one that was not imported, changes nothing."""
    checked(adopt, "adoption")
    if session.state is not IMPORTED:
        return Decision([], replayed=[session.position])
    return Decision.of(AdoptedRecord(by=adopt.by))


def decide_cancel(session: Session, cancel: CancelMessage) -> Decision:
    """End the session. Cancelling a cancelled session again is a replay; any other ended session refuses."""
    checked(cancel, "cancellation")
    if session.state is State.CANCELLED:
        return Decision([], replayed=[session.position])
    record = CancelledRecord(reason=cancel.reason, by=cancel.by)
    session.check(record)
    return Decision.of(record)


def decide_expire(session: Session, now: int, ttl_ms: int) -> list[Record]:
    """End what nobody has touched for `ttl_ms`, a strategy or the turn of an agent; nothing if it is not that old.

    A session that waits for a timer or a timeout is not idle, not even when that is overdue: the clock still owes it an
    answer. Nor is one that waits for something patient, such as a child, which has a limit of its own.
    """
    if session.state is not PAUSED or now - session.metrics.last_activity_at < ttl_ms:
        return []
    for pending in session.pending.values():
        if pending.due_at is not None or pending.query.is_patient:
            return []
    reason = f"no answer for {now - session.metrics.last_activity_at} ms (the limit is {ttl_ms} ms)"
    stopped = session.kind_fold.decide_expire(session, reason)
    return [ExpiredRecord(reason=reason)] if stopped is None else stopped
