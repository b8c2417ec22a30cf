"""The server over HTTP: killed and started again under its hosts, who is let in, how much is taken, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest

import holdfast
from holdfast.serve.listener import GRACE_S, HttpError, HttpSettings
from holdfast.serve.mcp.limits import MAX_MESSAGE_BYTES
from holdfast.testing.patience import HANG_S, soon
from tests.serve.calls import ERAS
from tests.serve.processes import ECHO, SLOW, HttpServer, Place, break_off

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server(place: Place) -> Iterator[HttpServer]:
    with place.http() as server:
        yield server


# --- killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_goes_on_with_a_server_that_was_killed_and_started_again(server: HttpServer, era: str) -> None:
    async with server.host(era) as host:
        asked = await host.call("alc_run", code=ECHO)
        server.restart()
        again = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-0", response="one")
        assert again["prompt"] == "second?"
        server.restart()
        ended = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-1", response="two")
        assert (ended["status"], ended["result"]) == ("completed", "one two")
        assert {tool.name for tool in (await host.client.list_tools()).tools} >= {"alc_run", "alc_continue"}


async def test_a_call_that_requires_input_ends_on_another_server_than_it_began_on(server: HttpServer) -> None:
    asked = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        server.restart()
        return types.ElicitResult(action="accept", content={"response": f"answer {len(asked)}"})

    async with server.host(elicitation_callback=answer) as host:
        told = await host.call("alc_run", code=ECHO)
    assert asked == ["first?", "second?"]
    assert (told["status"], told["result"]) == ("completed", "answer 1 answer 2")


async def test_a_connection_that_its_host_has_ended_stays_ended(server: HttpServer) -> None:
    accepts = {"accept": "application/json, text/event-stream", **server.authorization}
    async with httpx2.AsyncClient(headers=accepts) as http:
        opened = await http.post(server.url, json=_initialize())
        connection = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await http.post(server.url, json=_ping(), headers=connection)).status_code == 200
        assert (await http.delete(server.url, headers=connection)).status_code == 200
        assert (await http.post(server.url, json=_ping(), headers=connection)).status_code == 404


# --- together --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_several_hosts_and_servers_work_on_one_store(place: Place, server: HttpServer, era: str) -> None:
    with place.http() as other:
        async with server.host(era) as left, server.host(era) as right, other.host(era) as far, place.host(era) as near:
            hosts = [left, right, far, near] * 2
            asked = await asyncio.gather(*(host.call("alc_run", code=ECHO) for host in hosts))
            told = asked
            for text in ("one", "two"):
                hosts = hosts[1:] + hosts[:1]
                told = await asyncio.gather(
                    *(
                        host.call("alc_continue", session_id=each["session_id"], response=text)
                        for host, each in zip(hosts, asked, strict=True)
                    )
                )
            assert [each["result"] for each in told] == ["one two"] * 8


@pytest.mark.parametrize("era", ERAS)
async def test_a_slow_strategy_of_one_host_does_not_keep_another_waiting(server: HttpServer, era: str) -> None:
    async with server.host(era) as patient, server.host(era) as other:
        slow = asyncio.create_task(patient.call("alc_run", code=SLOW, ctx={"steps": 10**12}))
        asked = await other.call("alc_run", code=ECHO)
        await other.call("alc_continue", session_id=asked["session_id"], response="one")
        assert not slow.done()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


async def test_a_call_that_the_host_cancels_cancels_its_session(server: HttpServer) -> None:
    async with server.host("legacy") as host:
        assert await break_off(host) == "cancelled"


# --- how much --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_ctx_of_10_mb_is_taken_and_one_that_no_session_can_keep_is_refused(
    server: HttpServer, era: str
) -> None:
    async with server.host(era) as host:
        told = await host.call("alc_run", code="return #ctx.text", ctx={"text": "x" * 10_000_000})
        assert told["result"] == 10_000_000
        why = await host.refusal("alc_run", code="return #ctx.text", ctx={"text": "x" * 40_000_000})
        assert why == "invalid ctx: larger than 33554432 bytes of JSON"


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(server: HttpServer) -> None:
    told = _raw_request(server, {"Content-Length": str(MAX_MESSAGE_BYTES + 1)})
    assert told[0] == 413
    assert "the message has 67,108,865 bytes; the most is 67,108,864" in told[1]


async def test_a_message_in_which_a_key_stands_twice_is_refused(server: HttpServer) -> None:
    twice = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":"deny","a":"approve"}}}'
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with httpx2.AsyncClient(headers=headers | server.authorization) as http:
        reply = await http.post(server.url, content=twice)
    assert reply.status_code == 400
    assert 'the key "a" stands in one object more than once' in reply.json()["error"]["message"]


async def test_a_large_message_of_unknown_length_is_refused(server: HttpServer) -> None:
    async def body() -> Any:
        for _ in range((MAX_MESSAGE_BYTES >> 20) + 1):
            yield b" " * (1 << 20)

    async with httpx2.AsyncClient() as http:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        told = await http.post(server.url, content=body(), headers={**headers, **server.authorization})
    assert told.status_code == 413


# --- who is let in ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "[::1]:9"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "10.0.0.1"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "["}, 421),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "http://localhost@evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ],
)
def test_only_names_of_this_machine_are_answered(server: HttpServer, headers: dict[str, str], status: int) -> None:
    told = _raw_request(server, headers)
    assert told[0] == status, told


def test_a_refusal_says_what_to_do(server: HttpServer) -> None:
    assert (
        "this server is not called 'evil.example'; `--allow-host` adds a name"
        in _raw_request(server, {"Host": "evil.example"})[1]
    )
    assert (
        "requests from pages of 'https://evil.example' are not taken"
        in _raw_request(server, {"Origin": "https://evil.example"})[1]
    )


async def test_where_there_is_a_token_nothing_is_done_without_it(place: Place) -> None:
    place.env["HOLDFAST_MCP_TOKEN"] = TOKEN
    with place.http("--host", "0.0.0.0", "--allow-host", "Strategies.example") as server:
        for given in ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \u00e9"):
            status, body, headers = _raw_request(server, {"Authorization": given})
            assert status == 401, given
            assert "token" in body
            assert headers["www-authenticate"].startswith('Bearer realm="holdfast"')
            assert ("invalid_token" in headers["www-authenticate"]) == bool(given)
        right = {"Authorization": f"bearer {TOKEN}"}
        assert _raw_request(server, right)[0] == 200
        assert _raw_request(server, {**right, "Host": "strategies.example"})[0] == 200
        assert _raw_request(server, {**right, "Host": "10.0.0.1:8421"})[0] == 200
        assert _raw_request(server, {**right, "Host": "evil.example"})[0] == 421
        assert _raw_request(server, {**right, "Origin": "http://6.6.6.6"})[0] == 403
        assert _raw_request(server, {**right, "Origin": "https://strategies.example"})[0] == 200
        for era in ERAS:
            async with server.host(era) as host:
                assert (await host.call("alc_run", code="return 1"))["result"] == 1


def test_loopback_needs_the_token_too_which_only_its_user_can_read(place: Place, server: HttpServer) -> None:
    status, body, _ = _raw_request(server, {"Authorization": ""})
    assert status == 401
    assert "a token is needed" in body
    assert _raw_request(server, {})[0] == 200
    file = place.folder / "home" / "mcp.token"
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text()
    server.restart()
    assert file.read_text() == token
    file.chmod(0o644)
    ended = place.ends("--http", "--port", "0")
    assert ended.returncode == 2
    assert b"others can read it" in ended.stderr


def test_the_installer_tells_hosts_the_token(place: Place) -> None:
    place.env |= {"HOME": str(place.folder / "user"), "CLAUDE_CONFIG_DIR": str(place.folder / "user")}
    done = place.ends("--install", "claude-code", "--http", "--port", "1234", "--write")
    assert done.returncode == 0, done.stderr
    file = place.folder / "user" / ".claude.json"
    assert file.stat().st_mode & 0o777 == 0o600
    token = (place.folder / "home" / "mcp.token").read_text().strip()
    assert json.loads(file.read_text())["mcpServers"]["holdfast"] == {
        "type": "http",
        "url": "http://127.0.0.1:1234/mcp",
        "headers": {"Authorization": f"Bearer {token}"},
    }
    shared = place.ends("--install", "claude-code", "--http", "--project", str(place.folder))
    assert (shared.returncode, b"must not hold a token" in shared.stderr) == (2, True)
    no_http = place.ends("--install", "claude-desktop", "--http")
    assert (no_http.returncode, b"takes no servers over HTTP" in no_http.stderr) == (2, True)


@pytest.mark.parametrize("token", ["", "short", "sixteen spaces in", "sixteen characters\n", "éééééééééééééééé"])
def test_a_token_that_cannot_be_used_is_refused(token: str) -> None:
    with pytest.raises(HttpError, match="token"):
        HttpSettings(token=token)


def test_the_command_refuses_a_port_in_use(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = place.ends("--http", "--port", str(taken.getsockname()[1]))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"Address already in use; --port chooses another" in ended.stderr


# --- how it ends -----------------------------------------------------------------------------------


async def test_a_server_that_is_told_to_end_lets_its_sessions_go(place: Place, server: HttpServer) -> None:
    async with server.host() as host:
        asked = await host.call("alc_run", code=ECHO)
        slow = asyncio.create_task(host.client.call_tool("alc_run", {"code": SLOW, "ctx": {"steps": 10**12}}))
        while (await host.call("alc_status"))["active_sessions"] < 2:
            pass
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, HANG_S) == 0
        assert time.monotonic() - began > GRACE_S - 1, "the call under way had no time to end"
        assert server.process.stderr is not None
        assert server.process.stderr.read() == b""
        with pytest.raises(Exception, match=r"."):  # what the client makes of it is its own affair
            await slow
        async with holdfast.open(place.url) as hf:  # at once: no lease is left to run out
            event = await soon(hf.feed(asked["session_id"], "one"))
            assert event.to_json()["prompt"] == "second?"
        server.start()
        ended = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-1", response="two")
        assert ended["result"] == "one two"


async def test_hosts_that_only_listen_do_not_hold_up_the_end(server: HttpServer) -> None:
    async with server.host("legacy") as host:  # which keeps a stream open for what the server may have to say
        await host.call("alc_status")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, HANG_S) == 0
        assert time.monotonic() - began < GRACE_S


@pytest.mark.executes
def test_standard_output_stays_empty(server: HttpServer) -> None:
    assert _raw_request(server, {})[0] == 200
    server.process.send_signal(signal.SIGINT)
    out, errors = server.process.communicate(timeout=HANG_S)
    assert (out, errors, server.process.returncode) == (b"", b"", 0)


# --- requests --------------------------------------------------------------------------------------


def _initialize() -> dict[str, Any]:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def _ping() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}


def _raw_request(server: HttpServer, headers: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """The status, body and headers of the answer to a request whose headers no client would send."""
    body = json.dumps(_initialize())
    given = {
        "Host": f"127.0.0.1:{server.port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **server.authorization,
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n{body}".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
    head, _, told = answer.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return int(status.split()[1]), told.decode(), found
