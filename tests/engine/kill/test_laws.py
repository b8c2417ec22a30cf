"""The laws notice what the world should not have seen and what a store should not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.engine.kill.laws import broken_laws
from tests.engine.kill.places import sqlite_places
from tests.engine.kill.runs import Traced, trace


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(sqlite_places(tmp_path_factory.mktemp("traced"))("traced"))


def line(what: str, session: str, **more: Any) -> dict[str, Any]:
    return {"who": "child", "what": what, "session": session, **more}


def effect(tool: str, session: str, key: str, asked: str = "q-0") -> dict[str, Any]:
    return line("effect", session, query=asked, tool=tool, key=key, number=2)


@pytest.mark.parametrize(
    ("also_seen", "complaint"),
    [
        (line("acked", "single", query="q-0", content="something else"), "was acknowledged, and the journal has"),
        (line("acked", "single", query="q-7", content="lost"), "was acknowledged, and the journal has []"),
        (line("put", "batch", query="q-1"), "('batch', 'q-1') was put to the host after it had its answer"),
        (effect("never", "never", "never/q-0"), "never: the effect of ['never', 'q-0'] was executed 2 times"),
        (effect("queued", "queued", "queued/q-1", "q-1"), "queued: the effect of ['queued', 'q-1'] was executed 2"),
        (effect("confirm", "confirm", "confirm/q-0"), "confirm: the effect of ['confirm', 'q-0'] was executed 2 times"),
        (effect("idempotent", "idempotent", "other"), "idempotent: ['idempotent', 'q-0'] was executed under different"),
        (effect("safe", "safe", "safe/q-0"), None),
    ],
)
def test_the_judge_notices_what_the_world_should_not_have_seen(
    traced: Traced, also_seen: dict[str, Any], complaint: str | None
) -> None:
    evidence = replace(traced.evidence, seen=[*traced.evidence.seen, also_seen])
    broken = broken_laws(evidence, traced.expected, None)
    assert any(complaint in sentence for sentence in broken) if complaint else not broken


def test_the_judge_notices_what_was_done_again_after_a_restart(traced: Traced) -> None:
    found = line("found", "safe", settled=["q-0"], state="paused")
    evidence = replace(traced.evidence, seen=[found, *traced.evidence.seen])
    broken = broken_laws(evidence, traced.expected, None)
    assert any("the effect of ('safe', 'q-0') was executed after it had its answer" in each for each in broken)
    assert any("the start of batch was acknowledged and is lost" in each for each in broken)
    assert any("the end of cancel was acknowledged and is lost" in each for each in broken)


def test_the_judge_notices_what_a_store_should_not_say(traced: Traced) -> None:
    evidence, expected = traced.evidence, traced.expected
    unknown = {**expected, "never": ["unknown_outcome", expected["never"][1]]}
    assert broken_laws(evidence, unknown, None)
    assert broken_laws(evidence, {**expected, "single": "other"}, "single")
    assert broken_laws(evidence, {**expected, "lost": None}, None)
    assert broken_laws(replace(evidence, mail={**evidence.mail, "busy": 1}), expected, None)
    assert broken_laws(replace(evidence, count=3), expected, None)
    rows = {**evidence.rows, "single": evidence.rows["batch"]}
    assert broken_laws(replace(evidence, rows=rows), expected, None)
    journals = {**evidence.journals, "single": evidence.journals["single"][:-1]}
    assert broken_laws(replace(evidence, journals=journals), expected, None)
