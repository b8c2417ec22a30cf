"""The bundled strategy fact_score."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.queries import Failure, LlmQuery
from holdfast.testing import rehearse
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

TEXT = "Ada was born in 1815. She was a poet! She wrote on an engine."
FACTS = "- Ada was born in 1815.\n- Ada was a poet.\n- Ada wrote on an engine."
FAILED = Failure("overloaded")


def test_the_text_is_split_and_all_facts_are_judged_in_one_pause() -> None:
    run = rehearse("fact_score", {"task": TEXT}, scripted("fact_score"))
    assert roles(run) == ["split", "judge", "judge", "judge"]
    assert pauses(run) == [1, 2, 2, 2]
    assert run.result["result"] == {"score": pytest.approx(2 / 3), "supported": 2, "total": 3}
    assert run.result["judged"] == [
        {"fact": "Ada was born in 1815.", "supported": True, "why": "That is well known.\nYes"},
        {"fact": "Ada was a poet.", "supported": False, "why": "She was a mathematician.\nNo"},
        {"fact": "Ada wrote on an engine.", "supported": True, "why": "That is well known.\nYes"},
    ]


def test_no_more_facts_are_judged_than_allowed() -> None:
    ctx = {"task": TEXT, "facts": 2}
    run = rehearse("fact_score", ctx, by_role(split=FACTS, judge="Yes"))
    assert len(run.calls) == most_calls("fact_score", ctx) == 3
    assert run.result["result"] == {"score": 1, "supported": 2, "total": 2}
    assert run.logs == ["fact_score: 3 facts, of which the first 2 are judged"]


def test_thirty_facts_are_judged_by_default() -> None:
    many = "\n".join(f"- Fact number {number}." for number in range(40))
    run = rehearse("fact_score", {"task": TEXT}, by_role(split=many, judge="No"))
    assert len(run.calls) == most_calls("fact_score", {"task": TEXT}) == 31
    assert run.result["result"] == {"score": 0, "supported": 0, "total": 30}


def test_a_judge_sees_one_fact_with_the_source_and_the_topic() -> None:
    ctx = {"task": TEXT, "source": "An encyclopaedia.", "topic": "Ada Lovelace"}
    run = rehearse("fact_score", ctx, by_role(split=FACTS, judge="Yes"))
    assert run.prompts[0].startswith(f"Topic: Ada Lovelace\n\nText:\n{TEXT}\n\n")
    first = prompts_of(run, "judge")[0]
    assert first.startswith("Source:\nAn encyclopaedia.\n\nTopic: Ada Lovelace\n\nFact:\nAda was born in 1815.\n\n")
    assert "Does the source support this fact?" in first
    assert "poet" not in first


@each_row("grounded", [True, False])
def test_only_judges_are_asked_to_look_facts_up_and_only_if_wanted(grounded: bool) -> None:
    run = rehearse("fact_score", {"task": TEXT, "grounded": grounded}, by_role(split=FACTS, judge="Yes"))
    asked = [call.query.grounded for call in run.calls if isinstance(call.query, LlmQuery)]
    assert asked == [False, grounded, grounded, grounded]
    assert "Is this fact true?" in run.prompts[1]


@each_row(
    ("split", "facts"),
    [
        ("1. One.\n2) Two.\n", ["One.", "Two."]),
        ("Here they are:\n\n* One.\n  • Two.\n- one.\n-\n", ["One.", "Two."]),
        ("I will not do that.", ["Ada was born in 1815.", "She was a poet!", "She wrote on an engine."]),
        ("", ["Ada was born in 1815.", "She was a poet!", "She wrote on an engine."]),
        (FAILED, ["Ada was born in 1815.", "She was a poet!", "She wrote on an engine."]),
    ],
)
def test_facts_are_the_lines_of_a_list_else_the_sentences_of_the_text(split: str | Failure, facts: list[str]) -> None:
    run = rehearse("fact_score", {"task": TEXT}, by_role(split=split, judge="Yes"))
    assert [each["fact"] for each in run.result["judged"]] == facts


@each_row(
    ("said", "supported"),
    [
        ("There is no doubt about it.\nYes", True),
        ("yes", True),
        ("Some say yes.\nNo.", False),
        ("It is hard to tell.", False),
        ("I will not judge people.", False),
        ("", False),
    ],
)
def test_only_a_clear_yes_supports_a_fact(said: str, supported: bool) -> None:
    run = rehearse("fact_score", {"task": TEXT}, by_role(split="- One.", judge=said))
    assert run.result["result"] == {"score": float(supported), "supported": int(supported), "total": 1}


def test_a_judgement_that_fails_is_left_out_of_the_score() -> None:
    run = rehearse("fact_score", {"task": TEXT}, by_role(split=FACTS, judge=["Yes", FAILED, "No"]))
    assert [each["supported"] for each in run.result["judged"]] == [True, None, False]
    assert run.result["result"] == {"score": 0.5, "supported": 1, "total": 2}
    assert run.logs == ["llm_each: item 2 failed: overloaded"]


def test_if_all_judgements_fail_that_is_the_end() -> None:
    run = rehearse("fact_score", {"task": TEXT}, by_role(split=FACTS, judge=FAILED))
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (fact_score.py:")


def test_an_empty_text_has_no_score() -> None:
    run = rehearse("fact_score", {"task": " "}, by_role(split="There is no text."))
    assert len(run.calls) == 1
    assert run.result["result"] == {"score": None, "supported": 0, "total": 0}


async def test_the_score_and_the_number_of_facts_are_recorded() -> None:
    said = by_role(split=FACTS, judge=["Yes", "No", "No"])
    left = await figures("fact_score", {"task": TEXT}, said)
    assert left == {"fact_score": pytest.approx(1 / 3), "facts": 3}


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "fact_score: ctx has no 'task'"),
        ({"facts": 0}, "'facts' must be at least 1 and at most 500, got 0"),
        ({"grounded": "yes"}, "'grounded' must be bool"),
        ({"source": ["a"]}, "'source' must be str"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("fact_score", {"task": TEXT, **given})
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
