"""Chain of density: summaries that hold more from round to round, when it ends, and answers without the form."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "chain_of_density"
TEXT = "Ada Lovelace, born in London in 1815, wrote the first program, for an engine of Babbage's."


def dense(number: int) -> str:
    return f"MISSING: thing {number}; other {number}\nSUMMARY: summary {number}"


@each_row("rounds", [1, 2, 5, 9])
def test_asks_once_a_round_one_after_the_other(rounds: int) -> None:
    ctx = {"task": TEXT, "rounds": rounds}
    run = rehearse(NAME, ctx, by_role(summarise=["summary 1", *map(dense, range(2, rounds + 1))]))
    assert asked(run) == [["summarise"]] * rounds
    assert len(run.calls) == most_calls(NAME, ctx) == rounds
    assert run.result["summaries"] == [f"summary {number}" for number in range(1, rounds + 1)]
    assert run.result["added"] == [[f"thing {number}", f"other {number}"] for number in range(2, rounds + 1)]
    assert run.result["result"] == f"summary {rounds}"


def test_makes_at_most_five_calls_by_default() -> None:
    run = rehearse(NAME, {"task": TEXT}, by_role(summarise=["summary 1", *map(dense, range(2, 30))]))
    assert len(run.calls) == most_calls(NAME, {"task": TEXT}) == 5


def test_prompts_carry_the_text_the_length_and_the_summary_before() -> None:
    ctx = {"task": TEXT, "rounds": 3, "words": 25, "entities": 2}
    run = rehearse(NAME, ctx, by_role(summarise=["summary 1", dense(2), dense(3)]))
    first, second, third = run.prompts
    assert all(prompt.startswith(f"Text:\n{TEXT}\n\n") for prompt in run.prompts)
    assert all("about 25 words" in prompt for prompt in run.prompts)
    assert "Summary so far" not in first
    assert "Summary so far:\nsummary 1\n\nName at most 2 things" in second
    assert "Summary so far:\nsummary 2\n\n" in third
    assert "summary 1" not in third


@each_row(
    ("answer", "missing", "summary"),
    [
        ("MISSING: London; 1815.\nSUMMARY: Dense.", ["London", "1815"], "Dense."),
        ("**MISSING:** London\n\n**SUMMARY:** Dense.\nVery.", ["London"], "Dense.\nVery."),
        ("Missing:\n- London\n- 1815\n\nSummary:\nDense.", ["London", "1815"], "Dense."),
        ("## Missing: London\n## Summary: Dense.", ["London"], "Dense."),
        ("A dense summary, with nothing missing.", [], "A dense summary, with nothing missing."),
        ("I cannot summarise that.", [], "I cannot summarise that."),
    ],
)
def test_a_round_is_read_in_any_form(answer: str, missing: list[str], summary: str) -> None:
    run = rehearse(NAME, {"task": TEXT, "rounds": 2}, by_role(summarise=["Sparse.", answer]))
    assert run.result["added"] == [missing]
    assert run.result["result"] == summary


@each_row("none", ["none", "None.", "nothing", ""])
def test_ends_when_nothing_is_missing(none: str) -> None:
    run = rehearse(NAME, {"task": TEXT}, by_role(summarise=["Sparse.", dense(2), f"MISSING: {none}\nSUMMARY: Same."]))
    assert len(run.calls) == 3
    assert run.result["summaries"] == ["Sparse.", "summary 2"]
    assert run.result["result"] == "summary 2"
    assert run.logs == []


@each_row(
    "nothing",
    ["", " \n", "MISSING: London", "MISSING: London\nSUMMARY:", "MISSING: London\nSUMMARY: summary 2", Failure("away")],
)
def test_a_round_without_a_new_summary_is_the_last(nothing: object) -> None:
    run = rehearse(NAME, {"task": TEXT}, by_role(summarise=["Sparse.", dense(2), nothing]))
    assert len(run.calls) == 3
    assert run.result["result"] == "summary 2"
    assert run.logs[-1] == "chain_of_density: round 3 has no new summary; the one before is the last"


def test_an_empty_first_summary_is_made_up_for() -> None:
    run = rehearse(NAME, {"task": TEXT, "rounds": 2}, by_role(summarise=["", dense(2)]))
    assert run.result["result"] == "summary 2"


def test_fails_without_a_first_summary() -> None:
    run = rehearse(NAME, {"task": TEXT}, by_role(summarise=Failure("the model is away")))
    assert len(run.calls) == 1
    assert "the model is away" in (run.error or "")


async def test_records_the_words_of_the_last_summary() -> None:
    answer = by_role(summarise=["Sparse.", "MISSING: London\nSUMMARY: Born in London, she wrote."])
    assert await figures(NAME, {"task": TEXT, "rounds": 2}, answer) == {"words": 5}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TEXT, "rounds": 0}, "'rounds' must be at least 1 and at most 10, got 0"),
        ({"task": TEXT, "words": 9}, "'words' must be at least 10 and at most 2000, got 9"),
        ({"task": TEXT, "entities": 11}, "'entities' must be at least 1 and at most 10, got 11"),
        ({"task": TEXT, "words": "few"}, "'words' must be int"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
