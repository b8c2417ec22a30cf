"""The judge of the crash tests: what it is to notice, it notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.agent.crash.harness import Found, broken_laws, find, finished, sqlite_jobs
from tests.agent.crash.test_table import INPUTS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What is found after a run in which nothing happens."""
    job = sqlite_jobs(tmp_path_factory.mktemp("judged"))("whole", INPUTS)
    finished(job)
    return find(job)


def complaints(found: Found, tool: str) -> str:
    return "\n".join(broken_laws(found, [tool]))


def also(found: Found, what: str, **changes: Any) -> Found:
    """As if the world had seen something of this kind once more."""
    return replace(found, seen=[*found.seen, {**found.lines(what)[0], **changes}])


@pytest.mark.parametrize("tool", ["never", "idempotent", "confirm"])
def test_an_effect_that_was_executed_twice_is_noticed(whole: dict[str, Found], tool: str) -> None:
    assert complaints(whole[tool], tool) == ""
    assert "had 2 effects" in complaints(also(whole[tool], "done"), tool)


def test_a_safe_tool_may_be_executed_twice(whole: dict[str, Found]) -> None:
    assert complaints(also(whole["safe"], "done"), "safe") == ""


@pytest.mark.parametrize("tool", INPUTS)
def test_an_effect_that_was_not_executed_is_noticed(whole: dict[str, Found], tool: str) -> None:
    found = replace(whole[tool], seen=[line for line in whole[tool].seen if line["what"] != "done"])
    assert "had 0 effects, and the model was told 'done'" in complaints(found, tool)


def test_what_was_begun_without_being_written_ahead_is_noticed(whole: dict[str, Found]) -> None:
    assert "1 attempts were written ahead" in complaints(also(whole["safe"], "called"), "safe")
    assert "1 attempts were written ahead" in complaints(also(whole["safe"], "asked"), "safe")


def test_a_call_under_two_keys_is_noticed(whole: dict[str, Found]) -> None:
    assert "under several keys" in complaints(also(whole["safe"], "called", key="safe/q-9"), "safe")


def test_a_client_that_was_told_something_else_is_noticed(whole: dict[str, Found]) -> None:
    told = whole["safe"].lines("told")[0]["result"]
    receipt = {**told["receipt"], "position": 1}
    assert "was given" in complaints(also(whole["safe"], "told", result={**told, "receipt": receipt}), "safe")
    ended = {**told, "ended_at": 1}
    assert "was told" in complaints(also(whole["safe"], "told", result=ended), "safe")


def test_a_session_that_is_not_at_its_end_is_noticed(whole: dict[str, Found]) -> None:
    found = whole["safe"]
    other = whole["never"]
    assert "1 messages wait for ever" in complaints(replace(found, mail=1), "safe")
    assert "still holds it" in complaints(replace(found, row=msgspec.structs.replace(found.row, owner="dead")), "safe")
    row = msgspec.structs.replace(other.row, position=3)
    assert "the row tells 3" in complaints(replace(found, row=row), "safe")
