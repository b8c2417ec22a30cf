"""`enqueue`, `queue`, `cancel --turn` and `worker`: what is sent to agents, and worked elsewhere."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing.model_server import ModelServer
from holdfast.testing.provider import ScriptStep
from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home


def echo(request: ModelRequest) -> ScriptStep:
    return f"re: {request.messages[-1].text}"


def session(home: Home, server: ModelServer, name: str = "a1") -> str:
    """A session that has had a turn."""
    done = home.process("chat", "--model", f"{server.url}#m", "--id", name, "-m", "Hi")
    assert done.returncode == 0, done.stderr
    return name


class Worker:
    """`holdfast worker --json` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said: list[dict[str, Any]] = []

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on until it says something."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(json.loads(line))
            if is_it(self.said[-1]):
                return self.said[-1]
        assert self._process.stderr is not None
        raise AssertionError(f"it ended, and said {self.said} {self._process.stderr.read()}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        assert self._process.stdout is not None
        self.said += [json.loads(line) for line in self._process.stdout]
        return self._process.wait(20)


@contextmanager
def worker(home: Home, server: ModelServer, *options: str) -> Iterator[Worker]:
    process = home.background("--json", "worker", "--model", "m", "--base-url", server.url, *options)
    guard = threading.Timer(40, process.kill)
    guard.start()
    try:
        running = Worker(process)
        running.until(lambda line: line["type"] == "ready")
        yield running
    finally:
        guard.cancel()
        process.kill()
        process.communicate()


def is_end(line: dict[str, Any]) -> bool:
    return bool(line["type"] == "ended")


def test_what_is_sent_is_worked_by_a_worker_and_can_be_looked_at(home: Home) -> None:
    with serving(echo, loop=True) as server:
        name = session(home, server)
        assert home.json("enqueue", name, "One", "--id", "i-1") == {
            "session_id": name,
            "item_id": "i-1",
            "replayed": False,
        }
        assert "it was sent before" in home.ok("enqueue", name, "One", "--id", "i-1")
        conflict = home.call("enqueue", name, "Other", "--id", "i-1")
        assert (conflict.exit_code, "'i-1' was sent before with other content" in conflict.stderr) == (4, True)
        home.ok("enqueue", name, "-", "--id", "i-2", "--join", stdin="Two\n")
        home.ok("enqueue", name, "Never", "--id", "i-3", "--after", "3600", "--boundary")
        lines = [json.loads(line) for line in home.ok("queue", name, "--json").splitlines()]
        assert [(line["item_id"], line["status"], line["text"]) for line in lines] == [
            ("i-1", "waiting", "One"),
            ("i-2", "waiting", "Two"),
            ("i-3", "waiting", "Never"),
        ]
        with worker(home, server) as running:
            running.until(is_end)
            running.until(is_end)
            running.signal(signal.SIGTERM)
            assert running.ended() == 0
        begun = [line["items"] for line in running.said if line["type"] == "begun"]
        assert begun == [["i-1"], ["i-2"]]
        assert [line["type"] for line in running.said][-2:] == ["draining", "stopped"]
        shown = home.ok("queue", name)
        assert "One → re: One" in shown
        assert "Never (not before" in shown
        assert home.ok("cancel", name, "--item", "i-3", "--reason", "no need") == (
            f"{name}: item i-3 was withdrawn from the inbox\n"
        )
        assert "by cli: no need" in home.ok("queue", name)
        assert home.call("cancel", name, "--item", "i-1").exit_code == 4
        assert home.call("cancel", name, "--item", "i-9").exit_code == 3


def test_a_worker_ends_its_turns_first_and_a_second_signal_ends_it_at_once(home: Home) -> None:
    is_asked, may_go = threading.Event(), threading.Event()

    async def waits(request: ModelRequest) -> ScriptStep:
        is_asked.set()
        await asyncio.to_thread(may_go.wait, 30)
        return echo(request)

    with serving(echo, waits, waits, echo) as server:
        name = session(home, server)
        for item in ("i-1", "i-2"):
            home.ok("enqueue", name, item, "--id", item)
        with worker(home, server) as running:
            assert is_asked.wait(20)
            running.signal(signal.SIGTERM)
            assert running.until(lambda line: line["type"] == "draining")["turns"] == 1
            may_go.set()
            assert running.ended() == 0
        assert running.said[-1]["begun"] == 1
        may_go.clear()
        is_asked.clear()
        with worker(home, server) as running:
            assert is_asked.wait(20)
            running.signal(signal.SIGINT)
            running.until(lambda line: line["type"] == "draining")
            running.signal(signal.SIGINT)
            assert running.ended() == 130
        may_go.set()
        with worker(home, server) as running:  # and another one goes on, and says so
            assert running.until(lambda line: line["type"] == "taken_over")["session_id"] == name
            statuses = {""}
            while statuses != {"done"}:
                statuses = {json.loads(line)["status"] for line in home.ok("queue", name, "--json").splitlines()}
            running.signal(signal.SIGTERM)
            assert running.ended() == 0


def test_a_turn_in_another_process_is_stopped_from_the_command_line(home: Home) -> None:
    is_asked = threading.Event()

    async def hangs(request: ModelRequest) -> ScriptStep:
        is_asked.set()
        await asyncio.sleep(60)
        return "never"

    with serving(echo, hangs, echo) as server:
        name = session(home, server)
        assert home.call("cancel", name, "--turn", "now").exit_code == 4
        home.ok("enqueue", name, "Slow", "--id", "i-1")
        home.ok("enqueue", name, "Next", "--id", "i-2")
        with worker(home, server) as running:
            assert is_asked.wait(20)
            assert "was stopped; the session continues" in home.ok(
                "cancel", name, "--turn", "now", "--reason", "enough"
            )
            assert running.until(is_end)["outcome"] == "stopped: cancelled (enough)"
            assert running.until(is_end)["outcome"] == "answered"
        first = json.loads(home.ok("queue", name, "--json").splitlines()[0])
        assert (first["outcome"]["reason"], first["outcome"]["by"]) == ("cancelled", "cli")


def test_what_cannot_be_done_is_said(home: Home) -> None:
    strategy = home.start("greet")
    refused = home.call("enqueue", strategy, "Hi")
    assert (refused.exit_code, "its program is of the kind" in refused.stderr) == (4, True)
    assert home.call("cancel", strategy, "--turn", "a", "--item", "b").exit_code == 2
    (home.folder / "holdfast.toml").write_text("")
    unnamed = home.call("worker")
    assert (unnamed.exit_code, "no model is named" in unnamed.stderr) == (2, True)
    assert home.ok("queue", strategy) == "Nothing was sent to it.\n"


def test_a_worker_makes_a_store_that_is_not_there_yet(home: Home) -> None:
    with serving(echo) as server, worker(home, server) as running:
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
    assert home.db.exists()


def test_the_queue_fits_80_columns_with_whole_ids_and_states(home: Home) -> None:
    with serving(echo, loop=True) as server:
        name = session(home, server)
    item = "a-rather-long-name-of-an-item-0001"
    home.ok("enqueue", name, "word " * 60, "--id", item)
    with home.terminal("queue", name, columns=80) as terminal:
        terminal.expect(f"{item}  waiting  word")
        assert terminal.exit_code() == 0
        assert max(map(len, terminal.shown.splitlines())) <= 80
