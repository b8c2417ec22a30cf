"""`workers`, `workers drain` and `limits`: a fleet as its operator sees it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing.patience import until_so
from holdfast.testing.provider import ScriptStep
from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home
from tests.cli.test_worker import echo, is_end, session, worker


def workers(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = home.json("workers")["workers"]
    return found


def test_workers_are_listed_and_one_that_is_drained_finishes_its_turn_and_leaves_the_rest(home: Home) -> None:
    gate = threading.Event()

    def slow(request: ModelRequest) -> ScriptStep:
        if request.messages[-1].text == "Slow":
            gate.wait(60)
        return echo(request)

    with serving(slow, loop=True) as server:
        name, other = session(home, server), session(home, server, "a2")
        assert "No process is at work" in home.ok("workers")
        with worker(home, server, "--turns", "1") as running:
            home.ok("enqueue", name, "Slow", "--id", "i-1")
            running.until(lambda line: line["type"] == "begun")
            (row,) = until_so(lambda: [row for row in workers(home) if row["work"]["under_way"]])
            assert (row["state"], row["offers"]["services"], row["work"]["most"]) == ("working", ["default"], 1)
            assert row["version"]
            assert row["name"] in home.ok("workers")
            home.ok("enqueue", other, "Later", "--id", "i-2")
            assert home.json("workers", "drain", row["name"], "--within", "50")["is_over"] is False
            running.until(lambda line: line["type"] == "draining")
            assert until_so(lambda: [row for row in workers(home) if row["state"] == "draining"])
            gate.set()
            assert running.ended() == 0
            assert [line["turn"] for line in running.said if is_end(line)]
        assert workers(home) == []
        (left,) = [json.loads(line) for line in home.ok("queue", other, "--json").splitlines()]
        assert left["status"] == "waiting"
        with worker(home, server) as next_one:
            next_one.until(is_end)


def test_a_worker_that_is_not_there_cannot_be_drained(home: Home) -> None:
    with serving(echo, loop=True) as server:
        session(home, server)
    refused = home.call("workers", "drain", "nobody")
    assert refused.exit_code == 2
    assert "no process at work on this store is called 'nobody'" in refused.stderr


def test_limits_are_set_shown_and_removed(home: Home) -> None:
    with serving(echo, loop=True) as server:
        session(home, server)
    assert "No limits" in home.ok("limits")
    assert home.json("limits", "set", "service:default=20", "model:m=60/m") == {
        "changed": ["service:default=20", "model:m=60/m"]
    }
    shown = home.ok("limits")
    assert "model:m/m" in shown
    assert "service:default" in shown
    assert home.json("limits", "remove", "model:m/m") == {"removed": ["model:m/m"]}
    assert [limit["name"] for limit in home.json("limits")["limits"]] == ["service:default"]
    assert "there is no limit on model:x" in home.call("limits", "remove", "model:x").stderr
    assert "what is limited is one of" in home.call("limits", "set", "nobody=1").stderr


def test_a_worker_declares_the_limits_of_its_project_and_of_its_options(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PROJECT_ROOT", str(home.folder))
    (home.folder / "holdfast.toml").write_text('[limits]\n"service:default" = 1\n"key:customer" = [2, "9/h"]\n')
    with serving(echo, loop=True) as server:
        name = session(home, server)
        home.ok("enqueue", name, "Hi", "--id", "i-1")
        with worker(home, server, "--limit", "key:customer=3", "--limit", "tool:*=5") as running:
            running.until(is_end)
        names = {limit["name"]: limit["most"] for limit in home.json("limits")["limits"]}
        assert names == {"service:default": 1, "key:customer": 3, "key:customer/h": 9, "tool:*": 5}
        (home.folder / "holdfast.toml").write_text('[limits]\n"service:default" = "few"\n')
        refused = home.process("worker", "--model", "m", "--base-url", server.url)
        assert refused.returncode == 2
        assert "holdfast.toml: invalid limit on 'service:default'" in refused.stderr
