"""`schedule` and `emit`: what the clock and events start, from the command line, and a worker that starts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.testing.patience import until_so
from tests.cli.helpers import Home


def lines(home: Home, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.ok(*args, "--json").splitlines()]


@contextmanager
def working(home: Home) -> Iterator[None]:
    process = home.background("worker", "--store", home.url, "--serve", str(home.file))
    try:
        yield
    finally:
        process.terminate()
        process.communicate()


def test_a_schedule_is_added_listed_paused_resumed_run_and_removed(home: Home) -> None:
    place = f"{home.file}:nap"
    said = home.ok("schedule", "add", "nightly", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--strategy", place)
    assert said.strip() == "nightly is scheduled (cron 0 3 * * * (Europe/Berlin))"
    assert home.call("schedule", "add", "nightly", "--every", "1h", "--strategy", place).exit_code == 4
    (listed,) = lines(home, "schedule", "list")
    assert (listed["name"], listed["enabled"]) == ("nightly", True)
    assert listed["next"] > listed["terms"].get("at", 0)  # also before a worker has looked at it
    home.ok("schedule", "add", "often", "--every", "90m", "--strategy", place)
    assert "every 90 m" in home.ok("schedule", "list")
    home.ok("schedule", "remove", "often")
    paused = home.json("schedule", "pause", "nightly", "--revision", str(listed["revision"]))
    assert paused["enabled"] is False
    refused = home.call("schedule", "resume", "nightly", "--revision", str(listed["revision"]))
    assert refused.exit_code == 4
    assert "expected revision" in refused.stderr
    assert home.ok("schedule", "resume", "nightly").strip() == "nightly goes on"
    home.ok("schedule", "run", "nightly", "--key", "now")
    with working(home):
        (run,) = until_so(lambda: lines(home, "schedule", "history", "nightly"))
        assert (run["key"], run["did"]) == ("run:now", "started")
        until_so(lambda: lines(home, "schedule", "history", "nightly")[0]["status"] == "completed")
    assert "started" in home.ok("schedule", "history", "nightly")
    assert home.ok("schedule", "remove", "nightly").strip() == "nightly is removed"
    assert "No schedules" in home.ok("schedule", "list")
    assert home.call("schedule", "run", "nightly").exit_code == 3


def test_a_schedule_says_what_is_wrong(home: Home) -> None:
    add = ("schedule", "add", "x")
    assert "say what to start" in home.call(*add, "--every", "1h").stderr
    assert "one of --cron, --every and --at" in home.call(*add, "--turn", "x").stderr
    assert "not a cron expression" in home.call(*add, "--cron", "daily", "--turn", "x").stderr
    assert (
        "'Mars/Base' is not known"
        in home.call(*add, "--cron", "0 3 * * *", "--zone", "Mars/Base", "--turn", "x").stderr
    )
    assert "not an interval" in home.call(*add, "--every", "often", "--turn", "x").stderr
    assert "not a time" in home.call(*add, "--at", "soon", "--turn", "x").stderr
    assert "--ctx goes with --strategy" in home.call(*add, "--every", "1h", "--turn", "x", "--ctx", "{}").stderr


def test_an_event_is_emitted_once(home: Home) -> None:
    schema = '{"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}'
    emit = ("emit", "order.created", "eu", "--idempotency-key", "o-1")
    first = home.json(*emit, "--payload", '{"total": 3}', "--declare", schema)
    again = home.json(*emit, "--payload", '{"total": 3}')
    assert (first["replayed"], again["replayed"], again["occurrence"]) == (False, True, first["occurrence"])
    assert home.call(*emit, "--payload", '{"total": 4}').exit_code == 4
    assert "does not fit" in home.call("emit", "order.created", "--payload", "{}").stderr
    undeclared = home.call("emit", "order.paid")
    assert undeclared.exit_code == 3
    assert "`holdfast emit --declare" in undeclared.stderr
