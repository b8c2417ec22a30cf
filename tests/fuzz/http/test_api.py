"""Requests to the HTTP API, changed: a reply that can be read, or a problem that says what is wrong; never a bug."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import hypothesis.strategies as st
import pytest

from holdfast import Runtime
from holdfast.serve.http import endpoint
from holdfast.serve.http.app import ApiApp
from holdfast.serve.http.paths import PREFIX
from holdfast.serve.http.problems import MEDIA_TYPE
from holdfast.serve.http.site import web_app
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider
from tests.fuzz.fuzzer import MESSAGE_CHARS, Fuzzer
from tests.fuzz.generation import ODD_TEXTS, Draw, changed_bytes, changed_document, changed_text
from tests.serve.http.programs import two_questions

TOKEN = "a-token-for-this-machine-only"

STAYS_S = 0.02
"""Seconds for which the client of a stream stays."""

USAGE = {"prompt_tokens": 3, "completion_tokens": 4}
BLOCKS = [{"type": "text", "text": "Hello?"}]
BUDGET = {"max_llm_calls": 3}


class Request(NamedTuple):
    """A request: `S` in its path stands for a session that is paused, and `A` for an agent."""

    method: str
    path: str
    query: str = ""
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None
    """The body as it is sent, if that is not the JSON of `body`."""


SAMPLES = [
    Request("GET", "/server"),
    Request("GET", "/readyz"),
    Request("GET", "/processes"),
    Request("GET", "/openapi.json"),
    Request(
        "POST", "/sessions", body={"program": "two_questions", "ctx": {"a": [1]}, "budget": BUDGET, "wait_s": 0.01}
    ),
    Request("GET", "/sessions", "state=paused&state=running&service=default&limit=5&updated_after=1"),
    Request("GET", "/sessions", "program=two_questions&id_prefix=s&waiting_for=llm&updated_before=99999999999999"),
    Request("GET", "/sessions/S", "pending=full&history=true"),
    Request("GET", "/sessions/S/event"),
    Request("GET", "/sessions/S/result", "wait_s=0.01"),
    Request("POST", "/sessions/S/cancel", body={"reason": "enough"}),
    Request("POST", "/sessions/S/resume", "wait_s=0.01"),
    Request("DELETE", "/sessions/S"),
    Request("POST", "/sessions/S/forks", body={"at": 1, "id": None, "wait_s": 0.01}),
    Request("POST", "/sessions/S/forks", body={"before": "q-0"}),
    Request("GET", "/sessions/S/fork-points"),
    Request("GET", "/comparisons", "left=S&right=A"),
    Request("POST", "/sessions/S/answers", body={"answers": [{"query_id": "q-0", "response": "bug", "usage": USAGE}]}),
    Request("POST", "/sessions/S/queries/q-0/answer", body={"response": {"a": [1.5, None]}, "usage": USAGE}),
    Request("POST", "/sessions/S/queries/q-0/answer", body={"error": "no"}),
    Request("GET", "/queries", "kind=llm&program=two_questions&service=default&limit=3"),
    Request("GET", "/sessions/S/journal", "after=0&limit=2&type=started&type=paused&wait_s=0.01"),
    Request("GET", "/sessions/S/export"),
    Request("GET", "/sessions/A/events", "view=entries&wait_s=0.01&limit=5"),
    Request("GET", "/sessions/A/events", headers=(("accept", "text/event-stream"),)),
    Request("GET", "/sessions/A/observation"),
    Request("GET", "/events", headers=(("accept", "text/event-stream"),)),
    Request("GET", "/agents/agent"),
    Request("POST", "/agents/agent/sessions", body={"spec": {"instructions": "Be brief."}}),
    Request("GET", "/sessions/A/conversation", "limit=3"),
    Request("GET", "/sessions/A/usage"),
    Request(
        "PATCH", "/sessions/A/policy", body={"generation": {"seed": 3}, "limits": {"iterations": 3}, "deny": ["x"]}
    ),
    Request("GET", "/sessions/A/tools"),
    Request("POST", "/sessions/A/turns", body={"input": "Hello", "prompt": "kindly", "wait_s": 0.02}),
    Request("POST", "/sessions/A/turns", body={"input": BLOCKS}, headers=(("accept", "text/event-stream"),)),
    Request("POST", "/sessions/A/commands/compact", body={"arguments": {}, "wait_s": 0.01}),
    Request("GET", "/sessions/A/turns/t-1", "wait_s=0.01"),
    Request("POST", "/sessions/A/turns/t-1/cancel", body={"reason": "enough"}),
    Request("POST", "/sessions/A/items", body={"input": "x", "delivery": "boundary", "slot": "join", "after_s": 1.5}),
    Request("GET", "/sessions/A/items"),
    Request("DELETE", "/sessions/A/items/i-1", "only_waiting=true&reason=no"),
    Request("POST", "/sessions/A/drain", body={"limit": 1, "wait_s": 0.01}),
    Request("GET", "/strategies/cot"),
    Request("GET", "/strategies/cot/source"),
    Request("GET", "/state/notes", "prefix=a&after=b&limit=3"),
    Request("PUT", "/state/notes/a", body={"value": {"x": [1]}}, headers=(("if-match", '"0"'),)),
    Request("DELETE", "/state/notes/a"),
    Request(
        "POST", "/tokens", body={"name": "ci", "scopes": ["sessions:read"], "id_prefix": "ci-", "expires_at": None}
    ),
    Request("DELETE", "/tokens/t-1"),
]

BODIES = [each.body for each in SAMPLES if each.body is not None]
QUERIES = [each.query for each in SAMPLES if each.query]

HEADERS = [
    "accept",
    "authorization",
    "content-length",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "last-event-id",
    "range",
]

MISSING = ("/t-1", "/t-1/cancel", "/i-1")
"""How the paths of samples end whose turn, item or token is not there."""

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW", ""]


@st.composite
def requests(draw: Draw) -> Request:
    """A sample with something changed in its body, query, headers, path or method."""
    request: Request = draw(st.sampled_from(SAMPLES))
    for part in draw(st.sets(st.sampled_from(["body", "body", "query", "header", "path", "method"]), min_size=1)):
        match part:
            case "body":
                samples = [request.body, request.body, *BODIES] if request.body is not None else BODIES
                request = request._replace(raw=draw(changed_document(samples)))
            case "query":
                samples_of_queries = [request.query, *QUERIES] if request.query else QUERIES
                request = request._replace(query=draw(changed_text(samples_of_queries)))
            case "header":
                name = draw(st.sampled_from(HEADERS))
                value = draw(changed_bytes([b"application/json", b'"3"', b"Bearer x", b"17"], most=2)).decode("latin-1")
                request = request._replace(headers=(*request.headers, (name, value)))
            case "path":
                pieces = request.path.split("/")
                pieces[draw(st.integers(1, len(pieces) - 1))] = quote(
                    draw(st.sampled_from(ODD_TEXTS)).encode("utf-8", "replace")
                )
                request = request._replace(path="/".join(pieces))
            case _:
                request = request._replace(method=draw(st.sampled_from(METHODS)))
    return request


class Reply(NamedTuple):
    """What a client gets."""

    status: int
    headers: dict[str, str]
    body: bytes


class Api:
    """The application with a runtime behind it, called as a server calls it."""

    def __init__(self, app: ApiApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime

    async def sessions(self) -> tuple[str, str]:
        """A session that waits for an answer, and an agent's."""
        paused = "s-" + secrets.token_hex(6)
        await self._runtime.mount.holdfast.start(two_questions, id=paused, llm="host", wait=0)
        agent = await self._runtime.session("a-" + secrets.token_hex(6)).open()
        await agent.close()
        return paused, agent.session_id

    async def call(self, request: Request) -> Reply:
        """Send a request with new sessions in the places of `S` and `A`."""
        paused, agent = await self.sessions()
        names = {"S": paused, "A": agent}
        path = "/".join(names.get(piece, piece) for piece in f"{PREFIX}{request.path}".split("/"))
        query = request.query.replace("=S", f"={paused}").replace("=A", f"={agent}")
        body = (
            request.raw
            if request.raw is not None
            else b""
            if request.body is None
            else json.dumps(request.body).encode()
        )
        given = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **dict(request.headers)}
        scope = {
            "type": "http",
            "method": request.method,
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": query.encode("utf-8", "replace"),
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()],
            "root_path": "",
        }
        sent: list[Any] = []
        pieces = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            for piece in pieces:
                return piece
            await asyncio.sleep(STAYS_S)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(HANG_S):
            await self._app(scope, receive, send)
        start, *rest = sent
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return Reply(start["status"], headers, b"".join(each.get("body", b"") for each in rest))


def assert_is_readable(request: Request, reply: Reply) -> None:
    """A reply is what the API's document says: JSON, a stream, or a problem with a reason."""
    assert 200 <= reply.status < 500 or reply.status in (501, 503), (reply.status, reply.body[:2_000])
    kind = reply.headers.get("content-type", "")
    if reply.status >= 400 and request.method != "HEAD":
        assert kind == MEDIA_TYPE, (reply.status, kind)
        problem = json.loads(reply.body)
        assert problem["status"] == reply.status
        assert problem["detail"].strip(), problem
        assert len(problem["detail"]) <= MESSAGE_CHARS, f"{len(problem['detail'])} characters"
        problem["detail"].encode()
    elif kind == "application/json" and request.method != "HEAD":
        json.loads(reply.body)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Calls the API on a store of its own. Whatever a request asks for, it waits no longer than a moment."""
    monkeypatch.setattr(endpoint, "MAX_WAIT_S", 0.05)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Api]:
        provider = ScriptedProvider(["Yes."], loop=True)
        async with Runtime(f"sqlite:///{tmp_path}/fuzzed.db", provider=provider) as runtime:
            app = web_app(runtime, local_token=TOKEN).api
            app.door.rates.per_s = app.door.rates.burst = 10**9
            yield Api(app, runtime)

    with asyncio.Runner() as runner:
        context = opened()
        api = runner.run(context.__aenter__())
        yield lambda request: runner.run(api.call(request))
        runner.run(context.__aexit__(None, None, None))


def test_the_samples_are_understood(call: Any) -> None:
    refused = []
    for request in SAMPLES:
        reply = call(request)
        assert_is_readable(request, reply)
        if reply.status >= 300 and not request.path.endswith(MISSING):
            refused.append((request.method, request.path, reply.body[:500]))
    assert not refused, "\n".join(map(str, refused))


def test_hostile_requests_get_a_reply_or_a_problem(fuzzer: Fuzzer, call: Any) -> None:
    def check(request: Request) -> None:
        assert_is_readable(request, call(request))

    fuzzer.run(check, requests(), examples=200)
