"""The server over stdio: killed and started again, two on one store, and only the protocol on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.serve.mcp.limits import MAX_MESSAGE_BYTES
from holdfast.testing.patience import HANG_S
from tests.serve.calls import ERAS
from tests.serve.processes import ECHO, SLOW, Place, break_off

PRINTS = """
import os, subprocess, sys
import holdfast

print("imported")

@holdfast.strategy
async def loud(ctx):
    print("a line from Python")
    print("a line on the stream that was there first", file=sys.__stdout__)
    os.write(1, b"bytes on descriptor 1\\n")
    subprocess.run(["echo", "a line of a child"], check=True)
    answer = await ctx.llm(sys.stdin.read() or "nothing to read")
    print("the last line, and no newline", end="")
    return answer
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_run_goes_on_after_its_server_was_killed_between_pause_and_answer(place: Place, era: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=ECHO)
        await host.kill()
    async with place.host(era) as host:
        again = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-0", response="one")
        assert again["prompt"] == "second?"
        await host.kill()
    async with place.host(era) as host:
        ended = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-1", response="two")
    assert (ended["status"], ended["result"]) == ("completed", "one two")


async def test_a_call_that_required_input_is_repeated_on_a_server_that_was_started_later(place: Place) -> None:
    arguments = {"code": ECHO}
    async with place.host(elicitation_callback=_unused) as host:
        first = await host.client.session.call_tool("alc_run", arguments, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        await host.kill()
    async with place.host(elicitation_callback=_unused) as host:
        second = await _again(host.client.session, first, "one")
        assert isinstance(second, types.InputRequiredResult)
        repeated = await _again(host.client.session, first, "one")
        assert isinstance(repeated, types.InputRequiredResult)
        assert repeated.input_requests == second.input_requests, "the same answer got another question"
        await host.kill()
    async with place.host(elicitation_callback=_unused) as host:
        ended = await _again(host.client.session, second, "two")
    assert isinstance(ended, types.CallToolResult)
    assert ended.structured_content is not None
    assert ended.structured_content["result"] == "one two"


async def test_a_required_input_is_not_taken_for_another_call_nor_under_another_key(place: Place) -> None:
    async with place.host(elicitation_callback=_unused) as host:
        first = await host.client.session.call_tool("alc_run", {"code": ECHO}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        with pytest.raises(MCPError, match="requestState"):
            await _again(host.client.session, first, "one", code="return 1")
    (place.folder / "home" / "mcp.keys").unlink()
    async with place.host(elicitation_callback=_unused) as host:
        with pytest.raises(MCPError, match="requestState"):
            await _again(host.client.session, first, "one")
        status = await host.call("alc_status")
        assert [session["metrics"]["rounds"] for session in status["sessions"]] == [0]


async def _again(session: Any, paused: types.InputRequiredResult, answer: str, code: str = ECHO) -> Any:
    """The call once more, with an answer to the only thing it required."""
    assert paused.input_requests is not None
    (asked,) = paused.input_requests
    given = {asked: types.ElicitResult(action="accept", content={"response": answer})}
    return await session.call_tool(
        "alc_run",
        {"code": code},
        input_responses=given,
        request_state=paused.request_state,
        allow_input_required=True,
    )


async def _unused(context: Any, params: Any) -> types.ElicitResult:
    raise AssertionError("the test gives the input itself")


async def test_a_server_that_is_told_to_end_ends_at_once_and_leaves_its_sessions(place: Place) -> None:
    async with place.host() as host:
        asked = await host.call("alc_run", code=ECHO)
    with _raw(place) as server:
        server.initialize()
        running = {"name": "alc_run", "arguments": {"code": SLOW, "ctx": {"steps": 10**12}}}
        server.send("tools/call", running, 7)
        while (
            server.ask("tools/call", {"name": "alc_status", "arguments": {}}, 8)["structuredContent"]["active_sessions"]
            < 2
        ):
            pass
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0
    async with holdfast.open(place.url) as hf:
        event = await hf.feed(asked["session_id"], "one")
        assert event.to_json()["prompt"] == "second?"
        assert sorted(row.summary.state for row in (await hf.sessions()).rows) == ["paused", "running"]


# --- together --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_two_servers_work_on_one_store_at_the_same_time(place: Place, era: str) -> None:
    async with place.host(era) as left, place.host(era) as right:
        hosts = [left, right] * 4
        asked = await asyncio.gather(*(host.call("alc_run", code=ECHO) for host in hosts))
        told = asked
        for text in ("one", "two"):
            # Each goes on where it did not begin, and then back.
            hosts = hosts[1:] + hosts[:1]
            told = await asyncio.gather(
                *(
                    host.call("alc_continue", session_id=each["session_id"], response=text)
                    for host, each in zip(hosts, asked, strict=True)
                )
            )
        assert [each["result"] for each in told] == ["one two"] * 8
        assert (await left.call("alc_status"))["active_sessions"] == 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_slow_strategy_does_not_keep_the_others_waiting(place: Place, era: str) -> None:
    async with place.host(era) as host:
        slow = asyncio.create_task(host.call("alc_run", code=SLOW, ctx={"steps": 10**12}))
        asked = await host.call("alc_run", code=ECHO)
        await host.call("alc_continue", session_id=asked["session_id"], response="one")
        ended = await host.call("alc_continue", session_id=asked["session_id"], response="two")
        assert not slow.done()
        assert ended["result"] == "one two"
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_the_host_cancels_cancels_its_session(place: Place, era: str) -> None:
    async with place.host(era) as host:
        assert await break_off(host) == "cancelled"


@pytest.mark.parametrize("era", ERAS)
async def test_a_ctx_of_10_mb_is_taken_and_one_that_no_session_can_keep_is_refused(place: Place, era: str) -> None:
    async with place.host(era) as host:
        told = await host.call("alc_run", code="return #ctx.text", ctx={"text": "x" * 10_000_000})
        assert told["result"] == 10_000_000
        why = await host.refusal("alc_run", code="return #ctx.text", ctx={"text": "x" * 40_000_000})
        assert why == "invalid ctx: larger than 33554432 bytes of JSON"
        assert (await host.call("alc_status"))["active_sessions"] == 0


# --- the wire --------------------------------------------------------------------------------------


@pytest.mark.executes
def test_standard_output_carries_the_protocol_and_nothing_else(place: Place) -> None:
    file = place.folder / "prints.py"
    file.write_text(PRINTS)
    with _raw(place, "--tools", "all", "--serve", str(file)) as server:
        server.initialize()
        lua = {"name": "alc_run", "arguments": {"code": "print('a line from Lua') return 1"}}
        assert server.ask("tools/call", lua, 1)["structuredContent"]["result"] == 1
        # Native strategies are not started by their file over MCP, but sessions of served ones are answered here.
        run = [sys.executable, "-m", "holdfast.cli", "run", f"{file}:loud", "--id", "loud"]
        subprocess.run(run, env=place.env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        status = {"name": "alc_status", "arguments": {"session_id": "loud", "pending_filter": "full"}}
        assert "nothing to read" in json.dumps(server.ask("tools/call", status, 2))
        answer = {"name": "alc_continue", "arguments": {"session_id": "loud", "response": "ok"}}
        assert server.ask("tools/call", answer, 3)["structuredContent"]["result"] == "ok"
        rest, errors = server.process.communicate(timeout=HANG_S)
        assert (rest, server.process.returncode) == (b"", 0)
    for printed in ("imported", "a line from Python", "the stream that was", "bytes on", "of a child", "the last line"):
        assert printed.encode() in errors


def test_lines_that_are_no_messages_do_not_end_the_server(place: Place) -> None:
    with _raw(place) as server:
        server.initialize()
        server.write(b"\n  \nnot json\n[1, 2]\n\xff\xfe\n")
        assert server.ask("ping", {}, 5) == {}


def test_a_message_that_is_too_long_is_refused_by_its_id(place: Place) -> None:
    with _raw(place) as server:
        server.initialize()
        call = {"name": "alc_run", "arguments": {"code": "x" * MAX_MESSAGE_BYTES}}
        server.send("tools/call", call, "big")
        refused = server.read()
        assert (refused["id"], refused["error"]["message"]) == (
            "big",
            "the message is longer than 64 MB, which is the most a message may have",
        )
        assert server.ask("ping", {}, 5) == {}


def test_a_host_that_reads_nothing_for_a_while_loses_nothing(place: Place) -> None:
    with _raw(place) as server:
        server.initialize()
        call = {"name": "alc_run", "arguments": {"code": "return ('x'):rep(1000000)"}}
        for number in range(5):
            server.send("tools/call", call, number)
        server.send("ping", {}, "last")
        found = {}
        for _ in range(6):
            message = server.read()
            found[message["id"]] = message["result"]
        assert [len(found[number]["structuredContent"]["result"]) for number in range(5)] == [1_000_000] * 5
        assert found["last"] == {}


def test_a_host_that_is_gone_ends_the_server(place: Place) -> None:
    ended = place.ends()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    with place.start(stdin=subprocess.DEVNULL) as server:
        assert server.wait(20) == 0


def test_what_goes_wrong_at_the_start_is_told_on_standard_error(place: Place) -> None:
    foreign = place.folder / "notes.txt"
    foreign.write_text("no database " * 100)
    ended = place.ends("--store", f"sqlite:///{foreign}")
    assert (ended.returncode, ended.stdout) == (5, b"")
    assert b"notes.txt" in ended.stderr
    keys = place.folder / "home" / "mcp.keys"
    keys.parent.mkdir(exist_ok=True)
    keys.write_text("no key")
    ended = place.ends()
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"mcp.keys cannot be used" in ended.stderr


def test_without_the_package_mcp_the_command_says_how_to_get_it(place: Place) -> None:
    code = "import sys; sys.modules['mcp'] = None; from holdfast.cli import main; sys.argv[1:] = ['mcp']; main()"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=place.env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"pip install 'holdfast[mcp]'" in ended.stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--write"], b"--write needs --install"),
        (["--port", "80"], b"need --http"),
        (["--tools", "none"], b"'none'"),
        (["--install", "emacs"], b"unknown host"),
        (["--install", "claude-desktop", "--http"], b"leave out --http"),
        (["--project", "nowhere"], b"nowhere"),
        (["--store", "memory:"], b"a store in memory"),
    ],
)
def test_options_that_make_no_sense_are_refused(place: Place, args: list[str], why: bytes) -> None:
    ended = place.ends(*args)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert why in ended.stderr


class Raw:
    """A server, seen as the bytes it reads and writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Any:
        """The next line, which has to be a message."""
        assert self.process.stdout is not None
        message = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def send(self, method: str, params: dict[str, Any], id: int | str | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
        self.write(json.dumps(message).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any], id: int | str) -> Any:
        self.send(method, params, id)
        message = self.read()
        assert message["id"] == id, message
        return message["result"]

    def initialize(self) -> None:
        client = {"name": "test", "version": "1"}
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        assert self.ask("initialize", asked, 0)["serverInfo"]["name"] == "holdfast"
        self.send("notifications/initialized", {})


@contextmanager
def _raw(place: Place, *args: str) -> Iterator[Raw]:
    with place.start(*(args or ("--tools", "all"))) as process:
        try:
            yield Raw(process)
        finally:
            process.kill()


def test_the_keys_are_the_users_alone(place: Place) -> None:
    assert place.ends().returncode == 0
    assert os.stat(place.folder / "home" / "mcp.keys").st_mode & 0o777 == 0o600


TWICE = (
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"answer","arguments":'
    b'{"session_id":"s","response":{"decision":"deny","decision":"approve"}}}}'
)


@pytest.mark.parametrize(
    ("sent", "named", "why"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 7, "recursion"),
        (b'{"jsonrpc":"2.0","id":8,"method":', 8, "Invalid JSON"),
        (b'{"jsonrpc":"1.0","id":9,"method":5}', 9, "no message of the protocol"),
        (TWICE, 5, 'the key "decision" stands in one object more than once'),
    ],
    ids=["deep", "cut off", "another protocol", "a repeated key"],
)
def test_a_message_that_cannot_be_read_is_answered_and_the_next_one_is_served(
    place: Place, sent: bytes, named: int, why: str
) -> None:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    ended = place.ends(stdin=sent + b"\n" + hello + b"\n")
    replies = {reply.get("id"): reply for reply in map(json.loads, ended.stdout.splitlines())}
    assert why in replies[named]["error"]["message"]
    assert "result" in replies[0]
