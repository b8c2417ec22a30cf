"""Errors over HTTP: each kind has a status, and every refusal says what was wrong."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.serve.http import problems
from holdfast.serve.http.problems import ApiError, status_of
from tests.serve.http.api_server import ApiServer

FAULTS_OF_THE_SERVER = {"corrupt_session", "schema_version", "corrupt_state", "invalid_journal"}
"""Kinds that no request is to blame for, and that no waiting mends."""


def _kinds() -> Iterator[type[HoldfastError]]:
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if "__main__" not in found.name and ".library." not in found.name:
            importlib.import_module(found.name)
    waiting = [HoldfastError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("holdfast.") and kind is not ApiError:
            yield kind


def test_every_kind_of_error_has_a_status() -> None:
    wrong = {}
    for kind in _kinds():
        error = kind.__new__(kind)
        status = status_of(error)
        if (status >= 500 and status not in (503, 504)) != (error.kind in FAULTS_OF_THE_SERVER):
            wrong[error.kind] = status
    assert not wrong


def test_no_status_is_said_twice() -> None:
    by_kind = {kind.kind: kind for kind in _kinds()}
    said: dict[str, int] = vars(problems)["_BY_KIND"]
    by_exit_code = vars(problems)["_BY_EXIT_CODE"]
    assert set(said) <= set(by_kind)
    assert not {kind for kind, status in said.items() if by_exit_code.get(by_kind[kind].exit_code) == status}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/nowhere", None, 404, "there is nothing at /api/v1/nowhere"),
        ("PUT", "/sessions", {}, 405, "/api/v1/sessions takes GET, POST"),
        ("POST", "/sessions", {"programme": "x"}, 400, "unknown field `programme`"),
        ("POST", "/sessions", {"program": "nobody_knows_it"}, 404, "nobody_knows_it"),
        ("POST", "/sessions", {}, 400, "name a `program`, or give its `code`"),
        ("POST", "/sessions", {"program": "cot", "wait_s": 99}, 400, "0 to 30 seconds"),
        ("POST", "/sessions", {"program": "cot", "budget": {"max_calls": 3}}, 400, "no such limit: max_calls"),
        ("POST", "/sessions", {"code": "def run(:", "language": "python"}, 422, "has 2 faults"),
        ("POST", "/sessions", {"code": "x", "language": "cobol"}, 404, "cobol"),
        ("GET", "/sessions?limit=0", None, 400, "1 to 1,000 rows"),
        ("GET", "/sessions?limit=a", None, 400, "limit"),
        ("GET", "/sessions?limit=1&limit=2", None, 400, "given 2 times"),
        ("GET", "/sessions?after=xyz", None, 400, "pass on the one that came with the page before"),
        ("GET", "/sessions/a%20b", None, 400, "invalid session id"),
        ("GET", "/sessions/none/events?after=abc", None, 410, "no cursor"),
        ("POST", "/sessions/none/turns", {"input": "hi"}, 404, "session 'none' not found"),
        ("POST", "/agents/other/sessions", {}, 404, "other"),
        ("GET", "/state/a/b", None, 404, "no state item 'a/b'"),
        ("GET", "/state/http.tokens/b", None, 403, "see /tokens"),
        ("DELETE", "/tokens/abc", None, 404, "no token 'abc'"),
        ("POST", "/tokens", {"name": "x", "scopes": ["all"]}, 400, "no such scope: all"),
    ],
)
async def test_a_refusal_says_what_was_wrong(
    api: ApiServer, method: str, path: str, body: object, status: int, words: str
) -> None:
    options = {} if body is None else {"json": body}
    reply = await api.client.request(method, path, **options)  # type: ignore[arg-type]
    assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json"), reply.text
    problem = reply.json()
    assert words in problem["detail"]
    assert problem["instance"] == reply.headers["request-id"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"program": "\xff"}', "application/json", 400),
        (b"program=cot", "application/x-www-form-urlencoded", 415),
        (b'{"program": "cot"}', "text/plain", 415),
    ],
)
async def test_a_body_that_is_no_json_is_refused(api: ApiServer, content: bytes, kind: str, status: int) -> None:
    reply = await api.client.post("/sessions", content=content, headers={"content-type": kind})
    assert reply.status_code == status, reply.text


@pytest.mark.parametrize("padding", [0, 200_000], ids=["short", "long"])
async def test_a_body_in_which_a_key_stands_twice_is_refused(api: ApiServer, padding: int) -> None:
    body = b'{"program": "cot", "ctx": {"task": "a", "t\\u0061sk": "b"}%b}' % (b" " * padding)
    reply = await api.client.post("/sessions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400, reply.text
    assert 'the key "task" stands in one object more than once' in reply.json()["detail"]


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: ApiServer) -> None:
    reply = await api.client.post("/tokens", content=b"x" * 2_000_000, headers={"content-type": "application/json"})
    assert reply.status_code == 413


async def test_an_error_that_nobody_foresaw_keeps_its_text_to_itself(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(api.door.store, "session", broken)
    reply = await api.get("/sessions/s-1")
    assert reply.status_code == 500
    assert "1234" not in reply.text
    assert reply.headers["request-id"] in caplog.text
