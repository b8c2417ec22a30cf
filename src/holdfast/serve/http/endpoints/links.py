"""Endpoints about links to single questions: make one, look at its question, answer it. The last two need no token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.client.reports import AnsweredReport, LinkedQuestion, SignedLink
from holdfast.core.errors import InvalidValueError, UnknownQueryError
from holdfast.core.needs import host_queries
from holdfast.core.records import AnsweredRecord
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    RequestBody,
    StreamEvent,
    StreamReply,
)
from holdfast.serve.http.endpoints.queries import QueryAnswer, answer_shown, query_json
from holdfast.serve.http.limits import LINK_DAYS, VALUE_BODY_BYTES
from holdfast.serve.http.links import QuestionLink

endpoints = Endpoints()

_DAY_S = 24 * 60 * 60
MAX_LINK_DAYS = 90
"""Days for which a link may count."""


class LinkBody(RequestBody, frozen=True, kw_only=True):
    """For how long a link counts."""

    expires_s: float = LINK_DAYS * _DAY_S


class LinkAnswerBody(QueryAnswer, frozen=True, kw_only=True):
    """An answer, and who gives it, in their own words."""

    by: str = ""


@endpoints.add(
    "POST", "/sessions/{session_id}/queries/{query_id}/link", "answers:write", body=LinkBody, reply=SignedLink
)
async def make_link(call: ApiCall[NoParameters, LinkBody]) -> JsonReply:
    """Make a link to a question that waits, for somebody without a token. It lets them answer this one question."""
    session_id, query_id = call.session_id, call.path["query_id"]
    if not 60 <= call.body.expires_s <= MAX_LINK_DAYS * _DAY_S:
        raise InvalidValueError("expires_s", f"a link counts for a minute to {MAX_LINK_DAYS} days")
    session = await call.door.holdfast.session(session_id)
    waiting = [each.query.id for each in host_queries(session)]
    if query_id not in waiting:
        raise UnknownQueryError(session_id, query_id, waiting)
    expires_at = call.door.holdfast.now() + int(call.body.expires_s * 1000)
    signed = await call.door.links.sign(QuestionLink(session_id, query_id, expires_at))
    return JsonReply(SignedLink(f"{call.base_url}/a/{signed}", expires_at))


@endpoints.add("GET", "/links/{signed}", "none", reply=LinkedQuestion, streams=True)
async def show_link(call: ApiCall[NoParameters, None]) -> JsonReply | StreamReply:
    """Show the question of a link, or who has answered it. Looking changes nothing; as a stream, until it is over."""
    link = await call.door.links.read(call.path["signed"])
    if call.wants_stream:
        return StreamReply(_followed(call, link), holder=f"link {link.session_id} {link.query_id}")
    return JsonReply(await _linked(call, link))


@endpoints.add(
    "POST",
    "/links/{signed}/answer",
    "none",
    body=LinkAnswerBody,
    reply=LinkedQuestion,
    body_bytes=VALUE_BODY_BYTES,
)
async def answer_link(call: ApiCall[NoParameters, LinkAnswerBody]) -> JsonReply:
    """Answer the question of a link. The journal says that it was answered by a link, and who says to have done it."""
    link = await call.door.links.read(call.path["signed"])
    name = "".join(each for each in call.body.by if each.isprintable())[:80]
    by = f"link:{name}" if name else "link"
    answers = {link.query_id: call.body.given(link.query_id)}
    await call.door.holdfast.feed(link.session_id, answers, by=by, wait=0.0)
    return JsonReply(await _linked(call, link))


async def _followed(call: ApiCall[Any, Any], link: QuestionLink) -> AsyncIterator[StreamEvent]:
    """The question as it is, and again whenever that has changed, until nobody can answer it any more."""
    shown: LinkedQuestion | None = None
    with call.door.store.watch(link.session_id) as changes:
        while shown is None or shown.query is not None:
            now = await _linked(call, link)
            if now != shown:
                shown = now
                yield StreamEvent("question", {"type": "question", **msgspec.structs.asdict(now)})
            else:
                left_s = (link.expires_at - call.door.holdfast.now()) / 1000
                if left_s <= 0:
                    return
                await changes.changed(timeout=left_s)


async def _linked(call: ApiCall[Any, Any], link: QuestionLink) -> LinkedQuestion:
    session = await call.door.holdfast.session(link.session_id)
    pending = session.pending.get(link.query_id)
    answered: AnsweredReport | None = None
    if pending is None and (position := session.settled.get(link.query_id)) is not None:
        for entry in await call.door.store.read(link.session_id, position - 1, 1):
            if isinstance(entry.record, AnsweredRecord):
                answered = AnsweredReport(entry.record.by, entry.at, answer_shown(entry.record.answer))
    return LinkedQuestion(
        session_id=link.session_id,
        title=session.title or session.kind_fold.title,
        query=None if pending is None else query_json(pending.query),
        asked_at=None if pending is None else pending.asked_at,
        expires_at=link.expires_at,
        answered=answered,
    )
