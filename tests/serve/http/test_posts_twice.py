"""Every POST, sent twice with one key, has one effect: whoever lost a reply may ask again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from holdfast import Runtime
from holdfast.serve.http import tokens
from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.webhooks import records
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider
from tests.serve.http.api_server import ApiServer, api_server
from tests.serve.http.git_server import served_package
from tests.serve.http.programs import echo, two_questions
from tests.serve.http.receiver import Receiver

KEY = {"idempotency-key": "sent-twice"}

KEPT = (tokens.NAMESPACE, records.NAMESPACE, records.DELIVERIES)
"""State that POSTs write beside the sessions."""


@dataclass
class Post:
    """A request, and what is known of its effect."""

    path: str
    body: dict[str, Any] = field(default_factory=dict)
    file: bytes | None = None
    """What is sent in place of a JSON body."""
    params: dict[str, str] = field(default_factory=dict)
    writes: bool = True
    """Whether it changes anything at all."""
    again: int | None = None
    """The status of the second reply, where that is a refusal."""
    over: Callable[[httpx2.Response], Awaitable[Any]] | None = None
    """Waits until all that came of the request has happened."""


Prepare: TypeAlias = Callable[[ApiServer, Receiver], Awaitable[Post]]

POSTS: dict[str, Prepare] = {}
"""For each path, what makes its request possible."""


def post(path: str) -> Callable[[Prepare], Prepare]:
    def added(prepare: Prepare) -> Prepare:
        POSTS[path] = prepare
        return prepare

    return added


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    provider = ScriptedProvider(["So."], loop=True)
    async with (
        Runtime(f"sqlite:///{tmp_path}/s.db", provider=provider) as runtime,
        api_server(runtime, allows_private_webhooks=True) as server,
    ):
        yield server


@pytest.fixture
def package_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with served_package(tmp_path / "repositories") as url:
        yield url


async def _world(api: ApiServer, receiver: Receiver) -> dict[str, Any]:
    """All that a POST can have changed."""
    store = api.door.store
    rows = (await store.sessions(limit=100)).rows
    kept = {
        (namespace, key): (await store.get_state(namespace, key)).value  # type: ignore[union-attr]
        for namespace in KEPT
        for key in await store.list_state(namespace)
    }
    return {"sessions": {row.session_id: row.position for row in rows}, "kept": kept, "told": len(receiver.got)}


def test_every_post_has_a_case() -> None:
    assert set(POSTS) == {each.path for each in ENDPOINTS if each.method == "POST"}


@pytest.mark.parametrize("path", [each.path for each in ENDPOINTS if each.method == "POST"])
async def test_a_post_that_is_sent_twice_with_one_key_has_one_effect(
    api: ApiServer, receiver: Receiver, path: str, request: pytest.FixtureRequest
) -> None:
    api.fixture = request.getfixturevalue
    asked = await POSTS[path](api, receiver)
    before = await _world(api, receiver)
    first = await soon(_sent(api, asked))
    assert first.status_code < 300, first.text
    if asked.over is not None:
        await soon(asked.over(first))
    after = await _world(api, receiver)
    assert (after != before) == asked.writes
    second = await soon(_sent(api, asked))
    assert await _world(api, receiver) == after
    if asked.again is not None:
        assert second.status_code == asked.again
    else:
        assert second.status_code < 300, second.text
        assert _named(second) == _named(first)


async def _sent(api: ApiServer, asked: Post) -> httpx2.Response:
    if asked.file is None:
        return await api.post(asked.path, asked.body, headers=KEY, params=asked.params)
    headers = {**KEY, "content-type": "application/jsonl"}
    return await api.client.post(asked.path, content=asked.file, headers=headers, params=asked.params)


def _named(reply: httpx2.Response) -> dict[str, Any]:
    """What a reply says of the thing that was made."""
    shown = reply.json() if reply.content else None
    names = ("session_id", "item_id", "turn", "bulk_id", "id", "secret", "status")
    return {name: shown[name] for name in names if name in shown} if isinstance(shown, dict) else {}


async def _session(api: ApiServer, session_id: str = "s-1") -> None:
    await api.door.holdfast.start(two_questions, id=session_id, llm="host")


async def _chat(api: ApiServer) -> None:
    assert (await api.post("/agents/agent/sessions", {"id": "chat"})).status_code == 201


async def _webhook(api: ApiServer, receiver: Receiver) -> str:
    return (await api.door.webhooks.add(receiver.url, ["session.ended"])).id


@post("/cards/find")
async def _find_cards(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/cards/find", {}, writes=False)


# --- sessions and their questions ---------------------------------------------------------------------


@post("/sessions")
async def _start(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/sessions", {"program": two_questions.name, "llm": "host"})


@post("/sessions/{session_id}/cancel")
async def _cancel(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/cancel", {"reason": "enough"})


@post("/sessions/{session_id}/resume")
async def _resume(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/resume", writes=False)  # it is here already


@post("/sessions/{session_id}/repair")
async def _repair(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/repair", writes=False)  # its summary is as it should be


@post("/sessions/{session_id}/forks")
async def _fork(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/forks", {"at": 2})


@post("/sessions/{session_id}/answers")
async def _answers(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/answers", {"answers": [{"query_id": "q-0", "response": "bug"}], "wait_s": 30})


@post("/sessions/{session_id}/queries/{query_id}/answer")
async def _answer(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/queries/q-0/answer", {"response": "bug", "wait_s": 30})


@post("/answers")
async def _many_answers(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    answer = {"session_id": "s-1", "query_id": "q-0", "response": "bug"}

    async def asked(_: httpx2.Response) -> None:
        await until(lambda: _waits_for(api, "q-1"))

    return Post("/answers", {"answers": [answer]}, over=asked)


async def _waits_for(api: ApiServer, query_id: str) -> bool:
    status = await api.door.holdfast.status("s-1", pending="full")
    return [each["query_id"] for each in status.get("pending", [])] == [query_id]


@post("/sessions/{session_id}/queries/{query_id}/link")
async def _link(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/sessions/s-1/queries/q-0/link", writes=False)  # a link is signed, and kept nowhere


@post("/links/{signed}/answer")
async def _answer_by_link(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    url = (await api.post("/sessions/s-1/queries/q-0/link")).json()["url"]

    async def asked(_: httpx2.Response) -> None:
        await until(lambda: _waits_for(api, "q-1"))

    return Post(f"/links/{url.rpartition('/')[2]}/answer", {"response": "bug", "by": "carol"}, over=asked)


@post("/bulk")
async def _bulk(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)

    async def done(reply: httpx2.Response) -> None:
        await api.door.holdfast.result(reply.json()["bulk_id"])

    return Post("/bulk", {"action": "cancel", "where": {"state": ["paused"]}}, over=done)


@post("/imports")
async def _import(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    file = (await api.get("/sessions/s-1/export")).content
    return Post("/imports", file=file, params={"id": "s-2"})


@post("/sessions/{session_id}/adopt")
async def _adopt(api: ApiServer, receiver: Receiver) -> Post:
    imported = await _import(api, receiver)
    await _sent(api, imported)
    return Post("/sessions/s-2/adopt")


# --- evaluations --------------------------------------------------------------------------------------

CASES = {"strategies": [echo.name], "data": [{"input": "a", "expected": "a"}], "id": "e-1"}


async def _evaluation_done(api: ApiServer) -> None:
    async def is_done() -> bool:
        overview = (await api.get("/evaluations/e-1")).json()["overview"]
        return bool(overview["state"] == "done")

    await until(is_done)


async def _evaluated(api: ApiServer) -> Callable[[httpx2.Response], Awaitable[None]]:
    await api.post("/evaluations", CASES)
    await _evaluation_done(api)

    async def done_again(_: httpx2.Response) -> None:
        await _evaluation_done(api)

    return done_again


@post("/evaluations")
async def _evaluate(api: ApiServer, receiver: Receiver) -> Post:
    async def done(_: httpx2.Response) -> None:
        await _evaluation_done(api)

    return Post("/evaluations", CASES, over=done)


@post("/evaluations/{session_id}/resume")
async def _resume_evaluation(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/evaluations/e-1/resume", over=await _evaluated(api))


@post("/evaluations/{session_id}/retry")
async def _retry_evaluation(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/evaluations/e-1/retry", {"which": "failed"}, over=await _evaluated(api))


@post("/evaluations/{session_id}/add")
async def _add_to_evaluation(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/evaluations/e-1/add", {"repeat": 2}, over=await _evaluated(api))


@post("/evaluations/{session_id}/cancel")
async def _cancel_evaluation(api: ApiServer, receiver: Receiver) -> Post:
    await _evaluated(api)
    return Post("/evaluations/e-1/cancel", {"reason": "enough"})


# --- agents -------------------------------------------------------------------------------------------


@post("/agents/{name}/sessions")
async def _open(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/agents/agent/sessions", {"title": "A chat", "labels": ["new"]})


@post("/sessions/{session_id}/turns")
async def _turn(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    return Post("/sessions/chat/turns", {"input": "hi", "wait_s": 30})


@post("/sessions/{session_id}/commands/{command}")
async def _command(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    await api.post("/sessions/chat/turns", {"input": "hi", "wait_s": 30})
    return Post("/sessions/chat/commands/compact", {"wait_s": 30})


@post("/sessions/{session_id}/turns/{turn}/cancel")
async def _stop(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    await api.post("/sessions/chat/turns", {"input": "hi", "id": "t-1", "wait_s": 30})
    return Post("/sessions/chat/turns/t-1/cancel", writes=False)  # it is over


@post("/sessions/{session_id}/items")
async def _item(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    return Post("/sessions/chat/items", {"input": "later"})


@post("/sessions/{session_id}/drain")
async def _drain(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    for text in ("one", "two"):
        await api.post("/sessions/chat/items", {"input": text})
    return Post("/sessions/chat/drain", {"limit": 1, "wait_s": 30})


@post("/sessions/{session_id}/tools/refresh")
async def _refresh(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    return Post("/sessions/chat/tools/refresh", writes=False)


@post("/envelopes")
async def _envelope(api: ApiServer, receiver: Receiver) -> Post:
    await _chat(api)
    await api.post("/sessions/chat/turns", {"input": "hi", "wait_s": 30})
    envelope = (await api.get("/sessions/chat/envelope")).json()
    return Post("/envelopes", {"envelope": envelope, "input": "and then?", "wait_s": 30})


# --- what is beside the sessions ----------------------------------------------------------------------


@post("/packages/install")
async def _install(api: ApiServer, receiver: Receiver) -> Post:
    api.door.features.add("packages")
    assert api.fixture is not None
    return Post("/packages/install", {"sources": [api.fixture("package_url")]}, writes=False)


# --- what only looks ----------------------------------------------------------------------------------


@post("/strategies/{name}/dry-run")
async def _dry_run(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/strategies/cot/dry-run", {"ctx": {"task": "Why?"}}, writes=False)


@post("/check")
async def _check(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/check", {"code": "async def main(ctx):\n    return 1\n"}, writes=False)


@post("/maintenance/clean")
async def _clean(api: ApiServer, receiver: Receiver) -> Post:
    await _session(api)
    return Post("/maintenance/clean", writes=False)  # by default, sessions are kept for ever


# --- who may do what, and who is told -----------------------------------------------------------------


@post("/login")
async def _log_in(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/login", {"code": api.door.new_code()}, writes=False, again=401)  # a code counts once


@post("/logout")
async def _log_out(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/logout", writes=False)


@post("/tokens")
async def _token(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/tokens", {"name": "ann", "scopes": ["sessions:read"]}, again=409)  # its text is shown once


@post("/webhooks")
async def _new_webhook(api: ApiServer, receiver: Receiver) -> Post:
    return Post("/webhooks", {"url": receiver.url, "types": ["session.ended"]})


@post("/webhooks/{webhook_id}/secret")
async def _secret(api: ApiServer, receiver: Receiver) -> Post:
    return Post(f"/webhooks/{await _webhook(api, receiver)}/secret")


@post("/webhooks/{webhook_id}/test")
async def _ping(api: ApiServer, receiver: Receiver) -> Post:
    return Post(f"/webhooks/{await _webhook(api, receiver)}/test")


@post("/webhooks/{webhook_id}/deliveries/{delivery_id}/again")
async def _again(api: ApiServer, receiver: Receiver) -> Post:
    webhook_id = await _webhook(api, receiver)
    await api.post(f"/webhooks/{webhook_id}/test")
    (delivery,) = await api.door.webhooks.deliveries(webhook_id)
    return Post(f"/webhooks/{webhook_id}/deliveries/{delivery.id}/again")
