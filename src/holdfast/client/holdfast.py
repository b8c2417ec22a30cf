"""`HoldfastClient`: the door of a server. Start, feed, cancel, look at, watch, fork and delete sessions over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast.agent.envelopes.store import SessionEnvelope
from holdfast.agent.machine.policy import Spec
from holdfast.agent.turn_builder import BeginReceipt, Input, content_of
from holdfast.client.agents import SessionClientBuilder, past_items_of
from holdfast.client.api_client import ApiClient
from holdfast.client.evaluations import EvaluationsClient
from holdfast.client.links import LinksClient
from holdfast.client.observer import ObserverClient
from holdfast.client.packages import PackagesClient
from holdfast.client.reports import PastItemsPage
from holdfast.client.wire import answer_body, entry_of, event_of, query_of
from holdfast.core.budget import Budget
from holdfast.core.compare import Comparison
from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import Event, RunningEvent
from holdfast.core.fork_points import ForkPoint
from holdfast.core.queries import Usage
from holdfast.core.records import Entry, Program
from holdfast.core.values import Json
from holdfast.engine.adoption import AdoptionReport
from holdfast.engine.errors import ResultTimeoutError
from holdfast.engine.process_rows import ProcessRow
from holdfast.engine.questions import QuestionPage, WaitingQuestion
from holdfast.programs.registry import Strategy
from holdfast.store.export import ImportReceipt
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.plan import Plan
    from holdfast.strategies.evaluation.report.views import EvaluationFigures

WAIT_S = 30.0
"""Seconds that one request waits at a server. Whoever waits for longer asks again and again."""


class HoldfastClient(EvaluationsClient, LinksClient, PackagesClient):
    """Sessions on a server, in the words of `Holdfast` and `Runtime`. Made by `holdfast.connect`."""

    def __init__(self, url: str, token: str | None = None, *, agent: str = "agent") -> None:
        self._client = ApiClient(url, token)
        self._agent = agent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    # --- sessions of any kind ----------------------------------------------------------------------

    async def start(
        self,
        program: Strategy | Program | str,
        *,
        ctx: Json = None,
        budget: Budget | Mapping[str, Any] | None = None,
        service: str | None = None,
        llm: str | None = None,
        title: str = "",
        labels: Sequence[str] = (),
        id: str | None = None,
        wait: float | None = None,
    ) -> Event:
        """Start a session of a strategy that the server has, as `Holdfast.start` does.

        A `Program` of sandboxed source is sent with its text; of anything else, the name is sent.
        """
        body: dict[str, Any] = {"ctx": ctx, "service": service, "llm": llm, "id": id}
        body |= {"title": title or None, "labels": list(labels) or None}
        if isinstance(program, Program) and program.source is not None:
            body |= {"code": _code_of(program), "language": program.kind}
        else:
            body["program"] = program if isinstance(program, str) else program.name
        if budget is not None:
            body["budget"] = dict(budget) if isinstance(budget, Mapping) else msgspec.to_builtins(budget)
        given = {key: value for key, value in body.items() if value is not None}
        event = event_of(await self._client.post("/sessions", {**given, "wait_s": _first_wait(wait)}))
        return await self._until_needed(event, wait)

    async def feed(
        self,
        session_id: str,
        answers: Any,
        *,
        usage: Usage | None = None,
        wait: float | None = None,
    ) -> Event:
        """Answer one query, or several at once by their ids, as `Holdfast.feed` does.

        Who answered is recorded by the server: it is whoever the token belongs to.
        """
        listed = [_answer(each, asked, usage) for asked, each in _by_id(answers)]
        body = {"answers": listed, "wait_s": _first_wait(wait)}
        event = event_of(await self._client.post(f"/sessions/{session_id}/answers", body))
        return await self._until_needed(event, wait)

    async def cancel(self, session_id: str, reason: str | None = None) -> Event:
        """End a session, and the children it waits for."""
        return event_of(await self._client.post(f"/sessions/{session_id}/cancel", {"reason": reason}))

    async def label(self, session_id: str, *, title: str | None = None, labels: Sequence[str] | None = None) -> Event:
        """Give a session that has not ended another title, or other labels in place of those it has."""
        body = {"title": title, "labels": None if labels is None else list(labels)}
        await self._client.request("PATCH", f"/sessions/{session_id}", body=body)
        return await self.event(session_id)

    async def resume(self, session_id: str, *, wait: float | None = None) -> Event:
        """Have the server continue a session, and say what it needs."""
        path = f"/sessions/{session_id}/resume"
        event = event_of(await self._client.request("POST", path, params={"wait_s": _first_wait(wait)}))
        return await self._until_needed(event, wait)

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now, without waiting for anything."""
        return event_of(await self._client.get(f"/sessions/{session_id}/event"))

    async def status(self, session_id: str, *, pending: str = "full", history: bool = False) -> dict[str, Any]:
        """What a session looks like now."""
        params = {"pending": pending, "history": str(history).lower()}
        shown: dict[str, Any] = await self._client.get(f"/sessions/{session_id}", params)
        return shown

    async def sessions(
        self, where: SessionFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> SessionPage:
        """Sessions that meet a filter, the newest first, a page at a time."""
        given = where or SessionFilter()
        if given.children or given.has_mail:
            raise InvalidValueError("session filter", "a server cannot filter by `children` or `has_mail`")
        params = {
            "state": [str(each) for each in given.states],
            "program": given.program,
            "parent": given.parent,
            "service": list(given.services),
            "id_prefix": given.id_prefix,
            "waiting_for": given.waiting_for,
            "forked_from": given.forked_from,
            "label": list(given.labels),
            "q": given.text,
            "asking": str(given.asking).lower(),
            "updated_before": given.updated_before,
            "updated_after": given.updated_after,
            "after": after,
            "limit": limit,
        }
        page = await self._client.get("/sessions", params)
        return SessionPage(msgspec.convert(page["data"], list[SessionRow]), page["next"], page["damaged"])

    async def questions(
        self,
        where: SessionFilter | None = None,
        *,
        kind: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> QuestionPage:
        """All that waits for a person or a host, over all sessions that meet a filter."""
        page = await self.sessions(
            msgspec.structs.replace(where or SessionFilter(), asking=True), after=after, limit=limit
        )
        rows = {row.session_id: row for row in page.rows}
        listed = await self._client.get("/queries", {"kind": kind, "after": after, "limit": limit})
        found = [
            WaitingQuestion(rows[each["session_id"]], query_of(each["query"]), each["asked_at"], each["due_at"])
            for each in listed["data"]
            if each["session_id"] in rows
        ]
        return QuestionPage(found, page.next)

    async def result(self, session_id: str, timeout: float | None = None) -> Json:  # noqa: ASYNC109
        """The result of a session, once it has one. `SessionFailedError` if it ended otherwise."""
        left = timeout
        while True:
            wait_s = WAIT_S if left is None else max(0.0, min(WAIT_S, left))
            shown = await self._client.get(f"/sessions/{session_id}/result", {"wait_s": wait_s})
            if shown["status"] == "completed":
                return shown["result"]
            if left is not None and (left := left - wait_s) <= 0:
                status = await self.status(session_id, pending="none")
                raise ResultTimeoutError(session_id, timeout or 0.0, status["phase"], shown.get("why", ""))

    async def watch(self, session_id: str, from_: int = 0) -> AsyncIterator[Entry]:
        """A session's entries after a position, and then each new one, until the session has ended."""
        position = from_
        while True:
            params = {"after": position, "wait_s": WAIT_S}
            page = await self._client.get(f"/sessions/{session_id}/journal", params)
            for shown in page["data"]:
                entry = entry_of(shown)
                yield entry
                position = entry.position
            if page["ended"]:
                return

    async def fork(
        self,
        session_id: str,
        at: int | None = None,
        *,
        before: str | None = None,
        id: str | None = None,
        wait: float | None = None,
        **places: str | None,
    ) -> Event:
        """A new session with the beginning of another one; it continues from there, as after `start`."""
        body = {"at": at, "before": before, "id": id, **places, "wait_s": _first_wait(wait)}
        given = {key: value for key, value in body.items() if value is not None}
        event = event_of(await self._client.post(f"/sessions/{session_id}/forks", given))
        return await self._until_needed(event, wait)

    async def fork_points(self, session_id: str) -> list[ForkPoint]:
        """The places where a session can be forked, the earliest first."""
        return msgspec.convert(await self._client.get(f"/sessions/{session_id}/fork-points"), list[ForkPoint])

    async def compare(self, left: str, right: str) -> Comparison:
        """How far two sessions say the same, and how they go on from there."""
        return msgspec.convert(await self._client.get("/comparisons", {"left": left, "right": right}), Comparison)

    async def delete(self, session_id: str) -> None:
        """Remove a session with everything that belongs to it. Its id is not used again."""
        await self._client.request("DELETE", f"/sessions/{session_id}")

    async def processes(self) -> list[ProcessRow]:
        """The processes at work on the server's store, and what each of them offers."""
        return msgspec.convert(await self._client.get("/processes"), list[ProcessRow])

    async def evaluate(self, plan: Plan, *, id: str | None = None, jobs: int = 16) -> EvaluationFigures:
        """Evaluate a plan on the server, and give the figures once its work is done. The same id again joins it."""
        started = await self.start_evaluation(plan, id=id, jobs=jobs)
        await self._until_needed(await self.event(started.id), None)
        return await self.evaluation_figures(started.id)

    # --- files -------------------------------------------------------------------------------------

    async def export_session(self, session_id: str, path: str | PathLike[str]) -> int:
        """Write a session to a file, and give its size in bytes. A file of that name is replaced."""
        content = await self._client.download(f"/sessions/{session_id}/export")
        return await asyncio.to_thread(Path(path).write_bytes, content)

    async def import_session(self, path: str | PathLike[str], session_id: str | None = None) -> ImportReceipt:
        """Add the session in a file to the server's store. Unless it has ended, it does nothing until it is adopted."""
        content = await asyncio.to_thread(Path(path).read_bytes)
        shown = await self._client.upload("/imports", content, "application/jsonl", {"id": session_id})
        return msgspec.convert(shown, ImportReceipt)

    async def adoption(self, session_id: str) -> AdoptionReport:
        """What an imported session would run if it were adopted, for whoever decides that."""
        return msgspec.convert(await self._client.get(f"/sessions/{session_id}/adoption"), AdoptionReport)

    async def adopt(self, session_id: str, *, wait: float | None = None) -> Event:
        """Let a session run that was imported from a file. The token has to be an administrator's."""
        path = f"/sessions/{session_id}/adopt"
        event = event_of(await self._client.request("POST", path, params={"wait_s": _first_wait(wait)}))
        return await self._until_needed(event, wait)

    async def blob(self, session_id: str, blob_id: str, position: int | None = None) -> Json:
        """A large value that the journal of a session refers to; quicker with the position of the entry."""
        found: Json = await self._client.get(f"/sessions/{session_id}/blobs/{blob_id}", {"position": position})
        return found

    # --- agents ------------------------------------------------------------------------------------

    def session(self, session_id: str) -> SessionClientBuilder:
        """A builder that opens a session of the server's agent: `await hf.session("chat-1").open()`."""
        return SessionClientBuilder(self._client, self._agent, session_id)

    async def past_items(self, session_id: str, *, before: int | None = None, limit: int = 50) -> PastItemsPage:
        """What has left the inbox of an agent's session: taken by turns, or withdrawn. The latest comes first.

        `next` of a page is `before` of the one after it.
        """
        return await past_items_of(self._client, session_id, before, limit)

    async def export_envelope(self, session_id: str) -> SessionEnvelope:
        """The conversation of an agent's session as an envelope, the JSON that fluers reads and writes."""
        return msgspec.convert(await self._client.get(f"/sessions/{session_id}/envelope"), SessionEnvelope)

    async def import_envelope(
        self, session_id: str, envelope: SessionEnvelope, content: Input, *, spec: Spec | None = None
    ) -> BeginReceipt:
        """Begin a turn that continues the conversation of an envelope, in place of the session's own if it has one."""
        body = {"id": session_id, "envelope": envelope, "input": content_of(content), "spec": spec or Spec()}
        report = await self._client.post("/envelopes", body)
        replayed, is_over = bool(report.get("replayed")), report["status"] == "done"
        return BeginReceipt(report["session_id"], report["turn"], replayed, is_over)

    def observe(self, session_id: str, *, entries: bool = False) -> ObserverClient:
        """An observer of any session of the server."""
        return ObserverClient(self._client, session_id, entries)

    # --- waiting -----------------------------------------------------------------------------------

    async def _until_needed(self, event: Event, wait: float | None) -> Event:
        """What a session says once it needs a host, has ended, or the wait is over."""
        left = None if wait is None else wait - _first_wait(wait)
        while type(event) is RunningEvent and (left is None or left > 0):
            wait_s = WAIT_S if left is None else min(WAIT_S, left)
            path = f"/sessions/{event.session_id}/resume"
            event = event_of(await self._client.request("POST", path, params={"wait_s": wait_s}))
            if left is not None:
                left -= wait_s
        return event


def connect(url: str, token: str | None = None, *, agent: str = "agent") -> HoldfastClient:
    """Sessions on a server: `async with holdfast.connect("http://127.0.0.1:8420", token) as hf: …`."""
    return HoldfastClient(url, token, agent=agent)


def _code_of(program: Program) -> str:
    """The text that an author wrote. What a program is recorded with has it under `code`, beside the options."""
    assert program.source is not None
    try:
        return str(msgspec.json.decode(program.source)["code"])
    except (msgspec.MsgspecError, TypeError, KeyError):
        return program.source


def _first_wait(wait: float | None) -> float:
    return WAIT_S if wait is None else min(WAIT_S, wait)


def _by_id(answers: Any) -> list[tuple[str | None, Any]]:
    if not isinstance(answers, Mapping):
        return [(None, answers)]
    for asked in answers:
        if not isinstance(asked, str):
            why = f"{asked!r} is not a query id: a mapping is answers by query id; an object is fed as Value(…)"
            raise InvalidValueError("answers", why)
    return list(answers.items())


def _answer(given: Any, asked: str | None, usage: Usage | None) -> dict[str, Any]:
    if isinstance(given, GivenAnswer):
        asked, usage, given = asked or given.query_id, given.usage or usage, given.answer
    shown: dict[str, Any] = {"query_id": asked} if asked is not None else {}
    if usage is not None:
        shown["usage"] = msgspec.to_builtins(usage)
    return {**shown, **answer_body(given)}
