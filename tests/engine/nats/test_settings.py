"""How the queue is named, and what is refused: nothing here needs a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine import dispatch
from holdfast.engine.dispatch import VARIABLE, DispatchError
from holdfast.engine.fleet.nudges import DriveNudge, NudgeQueue
from holdfast.engine.holdfast import DISPATCHED_LEASE_MS, open_holdfast
from holdfast.engine.nats.dispatch import NatsDispatch
from holdfast.engine.nats.settings import NatsSettings
from tests.cli.helpers import Home
from tests.engine.helpers import sqlite

NOWHERE = "nats://127.0.0.1:9"
POSTGRES = "postgresql://nobody@127.0.0.1:9/nothing"


def test_a_url_names_servers_service_and_how_much_to_take() -> None:
    assert NatsSettings.parse(NOWHERE) == NatsSettings(("nats://127.0.0.1:9",), "holdfast")
    url = "nats+tls://ann:p%40ss@a:4222,b?service=blue&pull=7&replicas=3"
    found = NatsSettings.parse(url)
    assert found == NatsSettings(("tls://a:4222", "tls://b"), "blue", 7, 3, "ann", "p@ss")
    assert (found.hosts, found.stream, found.subject("drive")) == ("a:4222,b", "holdfast-blue", "holdfast.blue.drive")
    assert NatsSettings.parse("nats://s3cret@a").token == "s3cret"
    assert found.to_send().pull is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://", "expected nats://host:4222"),
        ("nats://a:4222/path", "no path"),
        ("nats://a:port", "expected nats"),
        ("nats://a?fleet=b", "no such option: fleet"),
        ("nats://a?service=b.c", "cannot name a service"),
        ("nats://a?pull=none", "`pull` has to be a number from 1"),
        ("nats://a?pull=0", "`pull` has to be a number from 1"),
        ("nats://a?replicas=9", "from 1 to 5"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(DispatchError, match=why):
        NatsSettings.parse(url)


@pytest.mark.parametrize("url", ["nats://ann:s3cret@a:4222/path", "nats://s3cret@a?fleet=b", "nat://ann:s3cret@a"])
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(DispatchError) as raised:
        open_holdfast(POSTGRES, dispatch=url)
    assert "s3cret" not in str(raised.value)


def test_a_store_on_one_machine_has_no_dispatcher(tmp_path: Path) -> None:
    with pytest.raises(DispatchError, match=r"for fleets on PostgreSQL.*sqlite"):
        open_holdfast(sqlite(tmp_path), dispatch=NOWHERE)


def test_the_environment_names_one_for_processes_that_only_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{NOWHERE}?pull=5")
    opened = open_holdfast(POSTGRES)
    assert opened.engine.owner.lease_ms == DISPATCHED_LEASE_MS
    assert isinstance(opened.upkeep.dispatch, NatsDispatch)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "find_spec", lambda name: None)
    with pytest.raises(DispatchError, match=r"pip install 'holdfast\[nats\]'"):
        open_holdfast(POSTGRES, dispatch=NOWHERE)


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    away = home.call("dispatch", "status", "--dispatch", NOWHERE)
    assert away.exit_code != 0
    assert "no NATS server answers at 127.0.0.1:9" in away.output
    assert "leave out --admin" in home.call("dispatch", "status", "--dispatch", NOWHERE, "--admin", "http://a").output
    assert "nothing to move" in home.call("dispatch", "move", "--dispatch", NOWHERE).output
    home.start("greet")
    refused = home.call("worker", "--dispatch", NOWHERE, "--serve", str(home.file))
    assert "for fleets on PostgreSQL" in refused.output
    registered = home.call("worker", "--dispatch", NOWHERE, "--serve", str(home.file), "--register", "http://a")
    assert "leave out --register" in registered.output


async def test_a_due_time_is_sent_once_until_it_changes_or_has_come() -> None:
    queue = NudgeQueue()
    for due in (5, 5, 7, 5):
        queue.drive_at("s", due)
    assert list(queue._waiting) == [DriveNudge("s", 5, "s-at-5"), DriveNudge("s", 7, "s-at-7")]
    assert queue.is_superseded(DriveNudge("s", 7, None))
    assert not queue.is_superseded(DriveNudge("s", 5, None))
    assert not queue.is_superseded(DriveNudge("s", None, "s-1"))
    queue.forget_due("s")
    assert not queue.is_superseded(DriveNudge("s", 7, None))
