"""Endpoints about queries: what waits for a person or a host, and its answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.queries import Answer, Failure, Query, Usage, Value
from holdfast.core.records import AnsweredRecord, PausedRecord
from holdfast.core.values import Json, preview
from holdfast.engine.questions import WaitingQuestion
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    RequestBody,
    checked_wait,
)
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import DECIDED_SESSIONS, MAX_PAGE_ROWS, PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.problems import problem_of
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.evaluation.programs import AWAITS_ORDERS

endpoints = Endpoints()

DECIDED_MS = 30 * 24 * 60 * 60 * 1000
"""Milliseconds for which an answer is recent: a month."""

DECIDED_ENTRIES = 64
"""Last entries of each session in which answers are looked for."""


class QueryAnswer(RequestBody, frozen=True, kw_only=True):
    """An answer to one query: a response, or an error that the program can catch."""

    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | None = None
    query_id: str | None = None
    usage: Usage | None = None

    def given(self, asked: str | None = None) -> GivenAnswer:
        """The answer as the engine takes it. Raises `InvalidValueError`."""
        if (self.response is msgspec.UNSET) == (self.error is None):
            raise InvalidValueError("answer", "give a `response` (null is one), or an `error`")
        if asked is not None and self.query_id not in (None, asked):
            raise InvalidValueError("answer", f"the path says {asked}, and the body {self.query_id}")
        answer: Answer
        if self.error is not None:
            answer = Failure(message=self.error)
        else:
            assert isinstance(self.response, msgspec.Raw)
            answer = Value(value=msgspec.json.decode(self.response))
        return GivenAnswer(answer, asked or self.query_id, self.usage)


class AnswersBody(RequestBody, frozen=True, kw_only=True):
    """Answers to one or several queries of a session: all of them are taken, or none."""

    answers: list[QueryAnswer]
    wait_s: float = 0.0


class AnswerBody(QueryAnswer, frozen=True, kw_only=True):
    """An answer to the query that the path names."""

    wait_s: float = 0.0


class WaitingParameters(Parameters, frozen=True, kw_only=True):
    """Which questions to list."""

    kind: str | None = None
    program: str | None = None
    service: list[str] = msgspec.field(default_factory=list)
    label: list[str] = msgspec.field(default_factory=list)
    session: str | None = None
    """Only those of one session."""
    limit: int = PAGE_ROWS
    after: str | None = None


class WaitingReport(msgspec.Struct, frozen=True, kw_only=True):
    """A query that waits for a person or a host."""

    session_id: str
    program: str
    program_kind: str
    service: str
    title: str
    labels: tuple[str, ...]
    parent: str | None
    position: int
    query: dict[str, Json]
    asked_at: int
    due_at: int | None


class WaitingPage(msgspec.Struct, frozen=True):
    """Questions, the oldest first, and where the next page begins."""

    data: list[WaitingReport]
    next: str | None


class SessionAnswer(QueryAnswer, frozen=True, kw_only=True):
    """An answer to a query of a session."""

    session_id: str


class ManyAnswersBody(RequestBody, frozen=True, kw_only=True):
    """Answers to queries of several sessions, each by itself."""

    answers: list[SessionAnswer]


class AnswerOutcome(msgspec.Struct, frozen=True):
    """What became of an answer."""

    session_id: str
    query_id: str | None
    status: Literal["accepted", "replayed", "refused"]
    problem: dict[str, Any] | None = None


class AnswerOutcomes(msgspec.Struct, frozen=True):
    """What became of answers, in their order."""

    data: list[AnswerOutcome]


class DecidedParameters(Parameters, frozen=True, kw_only=True):
    """How many answers to list."""

    limit: int = PAGE_ROWS


class DecidedReport(msgspec.Struct, frozen=True):
    """A question that somebody has answered."""

    session_id: str
    title: str
    query_id: str
    by: str
    at: int
    answer: dict[str, Json]
    text: str
    """What was asked, if that is among the last entries of the session."""


class DecidedPage(msgspec.Struct, frozen=True):
    """Answers of people and hosts, the latest first."""

    data: list[DecidedReport]


@endpoints.add(
    "POST",
    "/sessions/{session_id}/answers",
    "answers:write",
    body=AnswersBody,
    reply=dict[str, Any],
    body_bytes=VALUE_BODY_BYTES,
)
async def answer_queries(call: ApiCall[NoParameters, AnswersBody]) -> JsonReply:
    """Answer queries of a session, its own or those of its children. The same answers again get the same reply."""
    given = [each.given() for each in call.body.answers]
    if not given:
        raise InvalidValueError("answers", "there are none")
    return await _feed(call, given, call.body.wait_s)


@endpoints.add(
    "POST",
    "/sessions/{session_id}/queries/{query_id}/answer",
    "answers:write",
    body=AnswerBody,
    reply=dict[str, Any],
    body_bytes=VALUE_BODY_BYTES,
)
async def answer_query(call: ApiCall[NoParameters, AnswerBody]) -> JsonReply:
    """Answer one query of a session."""
    return await _feed(call, [call.body.given(call.path["query_id"])], call.body.wait_s)


@endpoints.add("POST", "/answers", "answers:write", body=ManyAnswersBody, reply=AnswerOutcomes)
async def answer_many(call: ApiCall[NoParameters, ManyAnswersBody]) -> JsonReply:
    """Answer queries of several sessions, each by itself: one that is refused changes nothing for the others."""
    if not 1 <= len(call.body.answers) <= MAX_PAGE_ROWS:
        raise InvalidValueError("answers", f"give 1 to {MAX_PAGE_ROWS:,} of them")
    outcomes: list[AnswerOutcome] = []
    for each in call.body.answers:
        try:
            call.principal.check_session(each.session_id)
            event = await call.door.holdfast.feed(each.session_id, each.given(), by=call.principal.name, wait=0.0)
            status: Literal["accepted", "replayed"] = "replayed" if event.replayed else "accepted"
            outcomes.append(AnswerOutcome(each.session_id, each.query_id, status))
        except HoldfastError as error:
            problem = problem_of(error, call.request_id)
            outcomes.append(AnswerOutcome(each.session_id, each.query_id, "refused", problem))
    return JsonReply(AnswerOutcomes(outcomes))


@endpoints.add("GET", "/queries", "sessions:read", query=WaitingParameters, reply=WaitingPage)
async def list_questions(call: ApiCall[WaitingParameters, None]) -> JsonReply:
    """List what waits for a person or a host, over all sessions."""
    query = call.query
    if query.session is not None:
        call.principal.check_session(query.session)
    where = SessionFilter(
        program=query.program,
        services=query.service,
        labels=query.label,
        without_labels=[AWAITS_ORDERS],
        id_prefix=query.session or call.principal.id_prefix or None,
    )
    limit = checked_limit(query.limit)
    page = await call.door.holdfast.questions(where, kind=query.kind, after=query.after, limit=limit)
    found = [_report(each) for each in page.questions if query.session in (None, each.row.session_id)]
    return JsonReply(WaitingPage(found, page.next))


@endpoints.add("GET", "/answered", "sessions:read", query=DecidedParameters, reply=DecidedPage)
async def list_answered(call: ApiCall[DecidedParameters, None]) -> JsonReply:
    """List what people and hosts have answered lately, in the sessions that changed last."""
    store, limit = call.door.store, checked_limit(call.query.limit)
    since = call.door.holdfast.now() - DECIDED_MS
    where = SessionFilter(updated_after=since, id_prefix=call.principal.id_prefix or None)
    rows = {row.session_id: row for row in (await store.sessions(where, limit=DECIDED_SESSIONS)).rows}
    found: list[DecidedReport] = []
    for session_id, entries in (await store.last_entries(list(rows), DECIDED_ENTRIES)).items():
        asked: dict[str, str] = {}
        within: set[str] = set()  # children and timers, which answer by themselves
        for entry in entries:
            record = entry.record
            if isinstance(record, PausedRecord):
                asked |= {query.id: query.text for query in record.queries}
                within |= {query.id for query in record.queries if not query.is_question}
            elif isinstance(record, AnsweredRecord) and record.by not in (None, "clock", "parent"):
                if record.query_id in within:
                    continue
                text = asked.get(record.query_id, "")[:PROMPT_PREVIEW_CHARS]
                shown, title = answer_shown(record.answer), rows[session_id].summary.title
                found.append(DecidedReport(session_id, title, record.query_id, record.by or "", entry.at, shown, text))
    return JsonReply(DecidedPage(sorted(found, key=lambda each: -each.at)[:limit]))


def query_json(query: Query) -> dict[str, Json]:
    """A query as hosts are shown it, with its id and its kind."""
    return {"id": query.id, "kind": query.kind, **query.to_json()}


def answer_shown(answer: Answer) -> dict[str, Json]:
    """An answer as people are shown it: the beginning of a response, or an error."""
    if isinstance(answer, Failure):
        return {"error": answer.message[:PROMPT_PREVIEW_CHARS]}
    value = answer.value
    short = value[:PROMPT_PREVIEW_CHARS] if isinstance(value, str) else value
    return {"response": short if isinstance(short, str | bool | int | float | None) else preview(short)}


def _report(question: WaitingQuestion) -> WaitingReport:
    row, summary = question.row, question.row.summary
    return WaitingReport(
        session_id=row.session_id,
        program=summary.program,
        program_kind=summary.program_kind,
        service=summary.service,
        title=summary.title,
        labels=summary.labels,
        parent=summary.parent,
        position=row.position,
        query=query_json(question.query),
        asked_at=question.asked_at,
        due_at=question.due_at,
    )


async def _feed(call: ApiCall[Any, Any], given: list[GivenAnswer], wait_s: float) -> JsonReply:
    wait = checked_wait(wait_s)
    by = call.principal.name
    answers: Any = given[0]
    if len(given) > 1 or given[0].query_id is not None:
        ids = [each.query_id for each in given]
        if None in ids or len(set(ids)) < len(ids):
            raise InvalidValueError("answers", "several answers need the id of a query each, and each its own")
        answers = {each.query_id: each for each in given}
    event = await call.door.holdfast.feed(call.session_id, answers, by=by, wait=wait)
    headers = {"idempotency-replayed": "true"} if event.replayed else {}
    return JsonReply(event.to_json(), headers=headers)
