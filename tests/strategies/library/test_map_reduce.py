"""The bundled strategy map_reduce."""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

TASK = "When was the harbour rebuilt?"
FAILED = Failure("overloaded")
SIZE = 200


def text_of(chars: int) -> str:
    """A text of numbered words, so that each can be looked for."""
    return " ".join(f"word{number:05}" for number in range(chars))[:chars]


def ctx_of(chars: int, **given: Any) -> dict[str, Any]:
    return {"task": TASK, "text": text_of(chars), "size": SIZE, "overlap": 20, **given}


def quoted_part(prompt: str) -> str:
    """The part of the text that a question is about."""
    found = re.search(r"of a longer text:\n(.*)\n\nNote down", prompt, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_text_of_one_part_is_asked_about_directly() -> None:
    ctx = {"task": TASK, "text": text_of(8000)}
    run = rehearse("map_reduce", ctx, by_role(reduce="In 1870.\n"))
    assert len(run.calls) == most_calls("map_reduce", ctx) == 1
    assert run.prompts[0] == f"Text:\n{ctx['text']}\n\nTask:\n{TASK}\n\nDo the task."
    assert (run.result["parts"], run.result["result"]) == (1, "In 1870.")


def test_parts_are_noted_in_one_pause_and_reduced_in_another() -> None:
    ctx = {"task": TASK, "text": text_of(20_000)}
    run = rehearse("map_reduce", ctx, scripted("map_reduce"))
    assert roles(run) == ["map", "map", "map", "reduce"]
    assert pauses(run) == [1, 1, 1, 2]
    assert run.result["notes"] == ["The harbour was rebuilt in 1870."] * 3
    assert (run.result["missing"], run.result["merge_rounds"]) == ([], 0)
    assert run.result["result"] == "The harbour was last rebuilt in 1870."


def test_each_part_is_quoted_with_the_task_and_its_number() -> None:
    run = rehearse("map_reduce", ctx_of(500), by_role(map="note", reduce="r"))
    maps = prompts_of(run, "map")
    assert all(prompt.startswith(f"Task:\n{TASK}\n\nPart {n} of 3 of") for n, prompt in enumerate(maps, 1))
    assert run.prompts[-1] == (
        f"Task:\n{TASK}\n\nNotes on a long text, in order:\nnote\n\nnote\n\nnote\n\nDo the task from the notes."
    )


@each_row("overlap", [20, 31, 100])
def test_every_word_is_whole_in_some_part_and_none_is_cut(overlap: int) -> None:
    ctx = ctx_of(1500, overlap=overlap)
    run = rehearse("map_reduce", ctx, by_role(map="note", reduce="r"))
    seen = {word for prompt in prompts_of(run, "map") for word in quoted_part(prompt).split()}
    assert seen == set(ctx["text"].split())


def test_parts_without_overlap_are_the_text() -> None:
    ctx = ctx_of(1500, overlap=0)
    run = rehearse("map_reduce", ctx, by_role(map="note", reduce="r"))
    assert "".join(quoted_part(prompt) for prompt in prompts_of(run, "map")) == ctx["text"]


def test_notes_that_do_not_fit_are_merged_in_rounds_each_in_one_pause() -> None:
    ctx = ctx_of(200 + 180 * 7)
    run = rehearse("map_reduce", ctx, by_role(map="n" * 90, merge="m" * 90, reduce="done"))
    assert roles(run) == ["map"] * 8 + ["merge"] * 4 + ["merge"] * 2 + ["reduce"]
    assert pauses(run) == [1] * 8 + [2] * 4 + [3] * 2 + [4]
    assert len(run.calls) == most_calls("map_reduce", ctx) == 15
    assert run.result["merge_rounds"] == 2
    notes = "n" * 90
    assert f"Notes on parts of a text, in order:\n{notes}\n\n{notes}\n\nMerge these notes" in run.prompts[8]


@each_row(
    ("chars", "overlap", "calls"), [(200, 0, 1), (201, 0, 3), (400, 0, 3), (401, 0, 5), (380, 20, 3), (381, 20, 5)]
)
def test_the_most_calls_are_one_less_than_two_a_part(chars: int, overlap: int, calls: int) -> None:
    ctx = ctx_of(chars, overlap=overlap)
    run = rehearse("map_reduce", ctx, by_role(map="n" * 100, merge="m" * 100, reduce="done"))
    assert len(run.calls) == most_calls("map_reduce", ctx) == calls


def test_notes_longer_than_a_question_allows_are_cut_and_the_rounds_end() -> None:
    ctx = ctx_of(200 + 180 * 4)
    run = rehearse("map_reduce", ctx, by_role(map="n" * 5000, merge="m" * 5000, reduce="done"))
    assert len(run.calls) == most_calls("map_reduce", ctx) == 9
    assert max(len(prompt) for prompt in prompts_of(run, "merge")) < SIZE + 300
    assert run.result["result"] == "done"


@each_row("nothing", ["", "Nothing.", "**nothing**", "none"])
def test_parts_with_nothing_in_them_are_dropped(nothing: str) -> None:
    run = rehearse("map_reduce", ctx_of(500), by_role(map=[nothing, "In 1870.", nothing], reduce="1870"))
    assert run.result["notes"] == ["In 1870."]
    assert "in order:\nIn 1870.\n\nDo the task" in run.prompts[-1]


def test_a_text_with_nothing_in_it_needs_no_more_questions() -> None:
    run = rehearse("map_reduce", ctx_of(500), by_role(map="Nothing."))
    assert len(run.calls) == 3
    assert run.result["result"] == "The text has nothing that this task needs."


def test_a_part_that_fails_is_left_out_and_named() -> None:
    said = ["In 1820.", FAILED, Failure("late", "timeout")]
    run = rehearse("map_reduce", ctx_of(500), by_role(map=said, reduce="1820"))
    assert (run.result["notes"], run.result["missing"]) == (["In 1820."], [2, 3])
    assert "Parts that could not be read: 2, 3." in run.prompts[-1]
    assert run.result["result"] == "1820"


@each_row("nothing", ["", FAILED])
def test_a_merge_that_comes_to_nothing_keeps_what_there_is_room_for(nothing: str | Failure) -> None:
    said = by_role(map=["a" * 90, "b" * 90, "c" * 90, "d" * 90], merge=["ab", nothing], reduce="done")
    run = rehearse("map_reduce", ctx_of(200 + 180 * 3), said)
    assert f"in order:\nab\n\n{'c' * 50}\n\n{'d' * 48}\n" in run.prompts[-1]
    assert run.result["result"] == "done"


def test_an_empty_result_is_the_notes() -> None:
    run = rehearse("map_reduce", ctx_of(300), by_role(map=["In 1820.", "In 1870."], reduce=" "))
    assert run.result["result"] == "In 1820.\n\nIn 1870."


@each_row(
    ("said", "last"),
    [
        ({"map": FAILED}, "map"),
        ({"map": "n" * 99, "merge": FAILED}, "merge"),
        ({"map": "note", "reduce": FAILED}, "reduce"),
    ],
)
def test_if_all_questions_of_a_step_fail_that_is_the_end(said: dict[str, Any], last: str) -> None:
    run = rehearse("map_reduce", ctx_of(500), by_role(**said))
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (map_reduce.py:")
    assert roles(run)[-1] == last


def test_an_empty_text_is_asked_about_once() -> None:
    run = rehearse("map_reduce", ctx_of(0), by_role(reduce="There is no text."))
    assert (len(run.calls), run.result["parts"]) == (1, 0)


async def test_the_parts_and_the_rounds_of_merging_are_recorded() -> None:
    said = by_role(map="n" * 90, merge="m", reduce="done")
    assert await figures("map_reduce", ctx_of(500), said) == {"parts": 3, "rounds": 1}


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "map_reduce: ctx has no 'task'"),
        ({"text": None}, "map_reduce: ctx has no 'text'"),
        ({"size": 10}, "'size' must be at least 200 and at most"),
        ({"overlap": -1}, "'overlap' must be at least 0 and at most"),
        ({"overlap": 101}, "map_reduce: 'overlap' must be at most half of 'size', 200; got 101"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("map_reduce", ctx_of(500, **given))
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
