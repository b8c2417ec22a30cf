"""`holdfast serve` as a process: killed, stopped, two on one store, and whom it lets in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import holdfast
from holdfast.testing.patience import HANG_S, soon
from tests.cli.chat_helpers import serving

RUNTIME = """
from holdfast import Runtime
from holdfast.testing.provider import ScriptedProvider, stream

def chat():
    said = stream(*["word "] * 100, every_s=0.02)
    return Runtime({url!r}, provider=ScriptedProvider([said], loop=True))
"""


class Served:
    """A server's process, and what its clients need."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, str]) -> None:
        self.process = process
        self.url = ready["url"].removesuffix("/api/v1")
        self.token = Path(ready["token_file"]).read_text().strip()

    def connect(self) -> holdfast.HoldfastClient:
        return holdfast.connect(self.url, self.token)

    def client(self) -> httpx2.Client:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.url + "/api/v1", headers=headers, timeout=HANG_S)


@contextmanager
def served(folder: Path, *args: str) -> Iterator[Served]:
    (folder / "app.py").write_text(RUNTIME.format(url=f"sqlite:///{folder}/h.db"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    env = kept | {"HOLDFAST_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "holdfast.cli", "serve", *args, "--json", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Served(process, json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_server_that_is_killed_loses_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with served(tmp_path, "app.py:chat", "--work", "2") as first:
        async with first.connect() as hf:
            session = await hf.session("chat").open()
            receipt = await session.turn("talk").id("t-1").begin()
            assert receipt.turn == "t-1"
        first.process.kill()
        first.process.wait()
    with served(tmp_path, "app.py:chat", "--work", "2") as second:
        async with second.connect() as hf:
            session = await hf.session("chat").open()
            result = await session.turn("talk").id("t-1").run(wait=HANG_S)
            assert (result.text, len(await session.messages())) == ("word " * 100, 2)


async def test_the_subagents_of_a_project_are_served(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").touch()
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "critic.md").write_text("---\ndescription: Finds faults.\n---\nYou are the critic.\n")
    with serving("Hi.", loop=True) as models:
        where = ("--model", f"{models.url}#m", "--store", f"sqlite:///{tmp_path}/h.db")
        with served(tmp_path, *where, "--work", "1") as server:
            async with server.connect() as hf:
                await (await hf.session("chat").open()).turn("talk").run(wait=HANG_S)
        (tool,) = [tool for tool in models.requests[-1].tools if tool.name == "delegate"]
        assert tool.parameters["properties"]["agent"]["enum"] == ["critic"]


async def test_a_stream_of_one_server_shows_the_work_of_another(tmp_path: Path) -> None:
    with served(tmp_path, "app.py:chat") as one, served(tmp_path, "app.py:chat") as other:
        async with one.connect() as watcher, other.connect() as worker:
            session = await worker.session("chat").open()
            running = asyncio.create_task(session.turn("talk").run())
            types = []
            async with asyncio.timeout(HANG_S):
                async for seen in watcher.observe("chat").subscribe_from(None):
                    types.append(seen.event.__struct_config__.tag)
                    if types[-1] == "turn_ended":
                        break
            assert [each for each in types if each in ("turn_began", "message", "turn_ended")] == [
                "turn_began",
                "message",
                "message",
                "turn_ended",
            ]
            await soon(running)


async def test_a_server_that_is_stopped_ends_its_streams_and_exits(tmp_path: Path) -> None:
    with served(tmp_path, "--store", f"sqlite:///{tmp_path}/h.db") as server:
        with (
            server.client() as client,
            client.stream("GET", "/events", headers={"accept": "text/event-stream"}) as reply,
        ):
            server.process.send_signal(signal.SIGTERM)
            assert "event: bye" in "".join(reply.iter_text())
        assert server.process.wait(HANG_S) == 0


def test_only_the_user_can_read_the_token_and_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, "--store", f"sqlite:///{tmp_path}/h.db"):
        pass
    path = tmp_path / "home" / "serve.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    command = [sys.executable, "-m", "holdfast.cli", "serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/h.db"]
    env = os.environ | {"HOLDFAST_HOME": str(tmp_path / "home")}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ended.returncode == 2
    assert "can be read by others" in ended.stderr


OTHER_PAGES: list[tuple[dict[str, str], int]] = [
    ({"host": "evil.example"}, 421),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "http://127.0.0.1:1"}, 403),  # another port of this machine
    ({"origin": "null"}, 403),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),  # an image of another page
    ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),  # a link
    ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
]
"""Headers that browsers send for pages of others, and the status that they get."""


def test_pages_of_others_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, "--store", f"sqlite:///{tmp_path}/h.db") as server, server.client() as client:
        for headers, status in OTHER_PAGES:
            assert client.get("/sessions", headers=headers).status_code == status, headers
        assert client.get("/sessions", headers={"origin": server.url}).status_code == 200
        unencrypted = {"origin": server.url, "x-forwarded-proto": "https"}
        assert client.get("/sessions", headers=unencrypted).status_code == 403


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["app.py"], "say which name, as in app.py:NAME (it has chat)"),
        (["app.py:nothing"], "app.py has no 'nothing'"),
        (["app.py:stream"], "is no `Runtime`"),
        (["app.py:chat", "--model", "openai:x"], "leave out --model"),
        (["nowhere:chat"], "cannot be imported"),
    ],
)
def test_what_cannot_be_served_is_named(tmp_path: Path, args: list[str], words: str) -> None:
    (tmp_path / "app.py").write_text(RUNTIME.format(url="memory:"))
    command = [sys.executable, "-m", "holdfast.cli", "serve", *args]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "holdfast.cli",
            "serve",
            "--port",
            port,
            "--store",
            f"sqlite:///{tmp_path}/h.db",
        ]
        env = os.environ | {"HOLDFAST_HOME": str(tmp_path / "home")}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ended.returncode, f"port {port}" in ended.stderr) == (2, True)
