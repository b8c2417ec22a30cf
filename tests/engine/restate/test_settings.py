"""How a dispatcher is named, what is refused, and which sweep follows on which: nothing here needs an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import InvalidValueError
from holdfast.engine.dispatch import VARIABLE, DispatchError
from holdfast.engine.fleet.sweep import EVERY_MS, WHOLE_EVERY, next_sweep
from holdfast.engine.holdfast import DISPATCHED_LEASE_MS, open_holdfast
from holdfast.engine.restate.settings import RestateSettings
from holdfast.engine.upkeep import Upkeep
from holdfast.store.limits import DEFAULT_LEASE_MS
from tests.cli.helpers import Home
from tests.engine.helpers import sqlite

NOWHERE = "restate+http://127.0.0.1:9"
POSTGRES = "postgresql://nobody@127.0.0.1:9/nothing"


def test_a_url_names_nodes_service_and_where_to_listen() -> None:
    url = "restate+https://a:8080,b:8080?service=blue&listen=0.0.0.0:9080&register=http://a:9070&advertise=http://lb:80"
    assert RestateSettings.parse(url) == RestateSettings(
        ("https://a:8080", "https://b:8080"), "blue", "0.0.0.0:9080", "http://a:9070", "http://lb:80"
    )
    assert RestateSettings.parse(NOWHERE) == RestateSettings(("http://127.0.0.1:9",), "holdfast")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a:8080", "expected restate"),
        ("restate+http://", "expected one host"),
        ("restate+http://a:8080/path", "no path"),
        ("restate+http://a?fleet=b", "no such option: fleet"),
        ("restate+http://a?service=../b", "cannot name a service"),
        ("restate+http://a?listen=9080", "HOST:PORT"),
        ("restate+http://a?listen=h:99999", "HOST:PORT"),
        ("restate+http://a?register=http://a:9070", "give `listen`"),
        ("restate+http://a?listen=h:1&register=a:9070", "has to be a URL"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(DispatchError, match=why):
        RestateSettings.parse(url)


def test_a_store_on_one_machine_has_no_dispatcher(tmp_path: Path) -> None:
    with pytest.raises(DispatchError, match=r"for fleets on PostgreSQL.*sqlite"):
        open_holdfast(sqlite(tmp_path), dispatch=NOWHERE)


def test_a_process_for_one_session_has_none_either() -> None:
    with pytest.raises(InvalidValueError, match="nothing but session 's'"):
        open_holdfast(POSTGRES, dispatch=NOWHERE, upkeep=Upkeep(only="s"))


def test_the_environment_names_one_for_stores_that_can_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{NOWHERE}?listen=127.0.0.1:0")
    assert open_holdfast(POSTGRES).engine.owner.lease_ms == DISPATCHED_LEASE_MS
    assert open_holdfast(POSTGRES, upkeep=Upkeep(only="s")).engine.owner.lease_ms == DEFAULT_LEASE_MS
    assert open_holdfast(sqlite(tmp_path)).engine.owner.lease_ms == DEFAULT_LEASE_MS


def test_late_sweeps_are_left_out_but_for_those_that_look_for_everything() -> None:
    now = 1_003 * EVERY_MS
    assert next_sweep(1_003, now) == 1_004
    assert next_sweep(1_001, now) == 1_004
    assert next_sweep(995, now) == 1_000
    assert next_sweep(-1, now) == 1_004
    assert next_sweep(1_009, 1_009 * EVERY_MS) == 1_010
    assert 1_010 % WHOLE_EVERY == 0


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert "give --dispatch" in home.call("dispatch", "status").output
    away = home.call("dispatch", "status", "--dispatch", NOWHERE, "--admin", "http://127.0.0.1:9")
    assert away.exit_code != 0
    assert "does not answer" in away.output
    home.start("greet")
    refused = home.call("worker", "--dispatch", NOWHERE, "--serve", str(home.file))
    assert "for fleets on PostgreSQL" in refused.output
