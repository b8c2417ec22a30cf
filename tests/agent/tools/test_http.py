"""The HTTP tool, against a real server: what is sent, what is made of replies, and one effect for each call."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.tools import ToolDefinitionError, ToolRetryPolicy, full_result, http_tool
from holdfast.agent.tools import http as http_module
from holdfast.core.queries import Value
from holdfast.testing.patience import HANG_S, until
from tests.agent.tools import payments as paying
from tests.agent.tools.helpers import Model
from tests.agent.tools.server import Reply, Seen, Server, serving

AGAIN = ToolRetryPolicy(max_attempts=3, base_delay_s=0.01, max_delay_s=0.05)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def model() -> Model:
    return Model()


def pay(server: Server, **settings: Any) -> Any:
    return http_tool("pay", f"{server.url}/pay", **{"description": "Pay.", "retry": AGAIN, **settings})


# --- what is sent ---------------------------------------------------------------------------------------


async def test_arguments_are_the_body_and_the_key_is_sent(server: Server, model: Model) -> None:
    server.replies = [Reply(body=b'{"paid": 3}')]
    done = await model.call(pay(server, headers={"Authorization": "Bearer secret"}), amount=3, to={"name": "é"})
    assert done.content == {"paid": 3}
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/pay")
    assert seen.json == {"amount": 3, "to": {"name": "é"}}
    assert seen.key == "s-1/q-1"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_arguments_of_a_request_without_a_body_are_the_query(server: Server, model: Model, method: str) -> None:
    arguments = {"q": "a b&c", "n": 3, "deep": True, "tags": ["x", "y"], "where": {"k": 1}, "none": None}
    await model.call(pay(server, method=method), **arguments)
    (seen,) = server.seen
    assert seen.method == method
    assert seen.path == "/pay?q=a+b%26c&n=3&deep=true&tags=x&tags=y&where=%7B%22k%22%3A1%7D"
    assert seen.body == b""


def test_it_is_run_again_by_default_and_need_not_be(server: Server) -> None:
    default, careful = pay(server), pay(server, recovery="never", retry=None)
    assert (default.recovery, careful.recovery) == ("idempotent", "never")
    plain = http_tool("read", server.url, method="GET", description="Read.", recovery="never")
    assert plain.retry is None


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="an absolute http or https URL"):
        http_tool("pay", "localhost/pay", description="Pay.")


async def test_arguments_are_checked_before_anything_is_sent(server: Server, model: Model) -> None:
    parameters = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    error = await model.error(pay(server, parameters=parameters), amount="3")
    assert error["code"] == "invalid_arguments"
    assert server.seen == []


# --- what comes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(body=b"[1, 2]"), [1, 2]),
        (Reply(body=b'{"a": 1}', media="application/problem+json; charset=utf-8"), {"a": 1}),
        (Reply(body=b"plain", media="text/plain"), "plain"),
        (Reply(body="é".encode("latin-1"), media="text/plain; charset=iso-8859-1"), "é"),
        (Reply(body=b'{"a": 1}', media=""), {"a": 1}),
        (Reply(body=b"neither", media=""), "neither"),
        (Reply(status=204, media=""), None),
        (Reply(status=201, body=b"1"), 1),
    ],
    ids=["json", "problem", "text", "latin", "json without a type", "text without a type", "nothing", "created"],
)
async def test_json_and_text_are_read(server: Server, model: Model, reply: Reply, expected: Any) -> None:
    server.replies = [reply]
    assert (await model.call(pay(server))).content == expected


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(body=b"{oops"), "invalid JSON"),
        (Reply(body=b"\x89PNG\xff", media="image/png"), "image/png, which is not text"),
    ],
    ids=["broken", "image"],
)
async def test_what_cannot_be_read_is_told(server: Server, model: Model, reply: Reply, told: str) -> None:
    server.replies = [reply]
    assert told in (await model.error(pay(server)))["error"]


async def test_a_long_response_is_read_up_to_a_limit(server: Server, model: Model) -> None:
    server.replies = [Reply(body=b"x" * 3_000_000, media="text/plain")]
    answer = await model.answer(pay(server))
    assert "only the first 1048576 bytes" in tool_done(Value(value=answer)).content
    assert len(full_result(answer)) < 1_100_000


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 500])
async def test_errors_are_told_by_status_and_not_tried_again(server: Server, model: Model, status: int) -> None:
    server.replies = [Reply(status=status, body=b'{"why": "not like this"}', headers={"Location": "/elsewhere"})]
    error = await model.error(http_tool("pay", f"{server.url}/pay?token=secret", description="Pay."))
    assert error["code"] == f"http_{status}"
    assert f"POST {server.url}/pay answered {status} " in error["error"]
    assert "not like this" in error["error"]
    assert "secret" not in error["error"]
    assert len(server.seen) == 1


async def test_a_long_error_page_is_cut(server: Server, model: Model) -> None:
    server.replies = [Reply(status=500, body=b"<p>" * 10_000, media="text/html")]
    assert len((await model.error(pay(server)))["error"]) < 700


# --- again ----------------------------------------------------------------------------------------------


async def test_a_busy_server_is_asked_again_with_the_same_key(server: Server, model: Model) -> None:
    server.replies = [Reply(status=503), Reply(status=429, headers={"Retry-After": "3600"}), Reply(body=b'"done"')]
    done = await model.call(pay(server))
    assert done.content == "done"
    assert [seen.key for seen in server.seen] == ["s-1/q-1"] * 3
    assert "retrying in 0.05 s" in model.heard, "Retry-After is heeded, up to a limit"


async def test_a_server_that_stays_busy_is_given_up(server: Server, model: Model) -> None:
    server.replies = [Reply(status=503)]
    assert (await model.error(pay(server)))["code"] == "http_503"
    assert len(server.seen) == 3


async def test_a_connection_that_fails_is_tried_again(model: Model) -> None:
    with serving() as gone:
        url = gone.url
    error = await model.error(http_tool("pay", url, description="Pay.", retry=AGAIN))
    assert error["code"] == "network"
    assert model.heard.count("retrying") == 2


async def test_a_server_that_does_not_answer_in_time_is_given_up(server: Server, model: Model) -> None:
    server.held.clear()
    assert (await model.error(pay(server, timeout_s=0.1)))["code"] == "timeout"


def test_retry_after_is_seconds_or_a_date() -> None:
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert http_module._seconds("7") == 7.0
    assert 50 < (http_module._seconds(in_a_minute) or 0) <= 60
    assert http_module._seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert http_module._seconds("soon") is None
    assert http_module._seconds(None) is None


# --- after a crash --------------------------------------------------------------------------------------


async def test_a_process_that_is_killed_while_it_waits_is_replaced_and_the_effect_happens_once(
    server: Server, tmp_path: Path
) -> None:
    def paid(seen: Seen) -> Reply:
        return Reply(body=f'"payment {server.done[seen.key]}"'.encode())

    server.replies = [paid]
    command = [sys.executable, paying.__file__, f"sqlite:///{tmp_path}/sessions.db", server.url]
    server.held.clear()
    first = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    async with asyncio.timeout(HANG_S):
        await until(lambda: server.seen)
        first.kill()
        await first.wait()
        server.held.set()
        second = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        out, _ = await second.communicate()
    assert out.decode().strip() == "payment 1"
    assert [seen.key for seen in server.seen] == ["payment/q-0"] * 2
    assert list(server.done) == ["payment/q-0"]
