"""The functions that run beside a strategy, and those that the engine answers: state, cards, caches, pipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.programs.sandbox.library import PATH_VARIABLE
from tests.programs.sandbox.helpers import asked, code, converse, echo, engine, failed, logged, result, run
from tests.tables import each_row

STAGES = {
    "first_stage": "def run(ctx):\n    ctx['result'] = 'one:' + llm('first ' + ctx['task'])\n    return ctx",
    "second_stage": "def run(ctx):\n    ctx['result'] = {'two': llm('second ' + ctx['task'])}\n    return ctx",
    "bad_stage": "def run(ctx):\n    raise ValueError('bad luck')",
    "odd_stage": "5",
}


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in STAGES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))


# --- asking ------------------------------------------------------------------------------------------------


async def test_llm_json_asks_once_more_for_what_is_not_json() -> None:
    answers = iter(["it is {five}", 'so: {"n": 5}'])
    seen: list[LlmQuery] = []

    def answer(query: Query) -> Any:
        assert isinstance(query, LlmQuery)
        seen.append(query)
        return next(answers)

    assert await run("llm_json('how many?', role='r', system='s')", answer) == {"n": 5}
    assert "how many?" in seen[1].prompt
    assert "it is {five}" in seen[1].prompt
    assert (seen[0].system, seen[1].options) == ("s", {"role": "r"})
    assert seen[1].system is not None
    assert "JSON" in seen[1].system


async def test_llm_json_gives_up_after_the_second_answer() -> None:
    assert await run("[llm_json('how many?')]", lambda _: "no") == [None]


async def test_llm_safe_gives_the_default_for_any_failure_and_says_so() -> None:
    def answer(query: Query) -> Any:
        return Failure("late", "timeout") if "late" in echo(query) else Failure("no")

    async with engine() as hf:
        event = await hf.start(code("[llm_safe('x'), llm_safe('late', default=5)]"))
        _, event = await converse(hf, event, answer)
        assert result(event) == ["", 5]
        assert await logged(hf.store, event.session_id, "log") == ["llm_safe: no", "llm_safe: late"]


async def test_parallel_asks_for_all_items_in_one_pause() -> None:
    source = """
        def prompt(item):
            return {"prompt": f"p{item}", "system": "own"} if item == 2 else f"p{item}"
        parallel((1, 2, 3), prompt, post=lambda answer, item: [item, answer], system="all")
    """
    async with engine() as hf:
        event = await hf.start(code(source))
        assert [query.system for query in event.queries if isinstance(query, LlmQuery)] == ["all", "own", "all"]
        pauses, event = await converse(hf, event)
    assert pauses == [["p1", "p2", "p3"]]
    assert result(event) == [[1, "<p1>"], [2, "<p2>"], [3, "<p3>"]]


async def test_cache_asks_the_same_question_once() -> None:
    source = """
        got = [cache("a"), cache("a"), cache("a", role="r"), cache("b", cache_key="k"), cache("c", cache_key="k")]
        got.append(cache("a", cache_skip=True))
        info = cache_info()
        cache_clear()
        [got, info, cache("a"), cache_info()["entries"]]
    """
    async with engine() as hf:
        pauses, event = await converse(hf, await hf.start(code(source)))
    got, info, again, left = result(event)
    assert pauses == [["a"], ["a"], ["b"], ["a"], ["a"]]
    assert got == ["<a>", "<a>", "<a>", "<b>", "<b>", "<a>"]
    assert info == {"entries": 3, "hits": 2, "misses": 3, "max_entries": 256}
    assert (again, left) == ("<a>", 1)


async def test_cache_forgets_the_oldest() -> None:
    source = """
        for i in range(258):
            cache(str(i), cache_key=str(i))
        [cache_info()["entries"], cache("x", cache_key="0"), cache("y", cache_key="9")]
    """
    assert await run(source) == [256, "<x>", "<9>"]


# --- other strategies --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stages")
async def test_a_pipe_hands_results_on_and_keeps_a_history() -> None:
    source = """
        def shout(ctx):
            ctx["result"] = ctx["task"].upper()
            return ctx
        pipe(["first_stage", "second_stage", shout], {"task": "t", "own": 1})
    """
    async with engine(minds=True) as hf:
        event = await hf.start(code(source))
        pauses, event = await converse(hf, event)
    left = result(event)
    assert pauses == [["first t"], ["second one:<first t>"]]
    assert left["result"] == '{"TWO":"<SECOND ONE:<FIRST T>>"}'
    assert left["own"] == 1
    assert [step["strategy"] for step in left["pipe_history"]] == ["first_stage", "second_stage", "(inline-3)"]


@pytest.mark.usefixtures("stages")
async def test_a_pipe_that_fails_stops_or_goes_on_as_it_is_told() -> None:
    for on_error, expected in (("skip", True), ("continue", True), ("abort", False)):
        source = f"pipe(['bad_stage', 'first_stage'], {{'task': 't'}}, on_error={on_error!r})"
        async with engine(minds=True) as hf:
            _, event = await converse(hf, await hf.start(code(source)))
        if expected:
            assert result(event)["result"] == "one:<first t>"
            assert "bad luck" in result(event)["pipe_history"][0]["error"]
        else:
            assert "bad luck" in failed(event).error


@pytest.mark.usefixtures("stages")
@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        ("pipe([], {})", "ValueError", "at least one"),
        ("pipe(['first_stage'], {}, on_error='panic')", "ValueError", "on_error must be"),
        ("pipe(['odd_stage'], {})", "TypeError", "must return its ctx, a dict, and gave int"),
    ],
)
async def test_a_pipe_that_makes_no_sense_says_so(call: str, kind: str, words: str) -> None:
    async with engine(minds=True) as hf:
        end = failed(await hf.start(code(f"eval({call!r})"), wait=20))
    assert end.error_kind == kind
    assert words in end.error


@pytest.mark.usefixtures("stages")
async def test_a_fork_runs_strategies_side_by_side_in_one_pause() -> None:
    source = "fork(['first_stage', 'bad_stage', 'second_stage'], {'task': 't'})"
    async with engine(minds=True) as hf:
        event = await hf.start(code(source))
        assert asked(event) == ["first t", "second t"]
        _, event = await converse(hf, event)
    entries = result(event)
    assert [(entry["strategy"], entry["ok"]) for entry in entries] == [
        ("first_stage", True),
        ("bad_stage", False),
        ("second_stage", True),
    ]
    assert entries[0]["result"]["result"] == "one:<first t>"
    assert "bad luck" in entries[1]["error"]


@pytest.mark.usefixtures("stages")
async def test_a_child_is_awaited_beside_questions() -> None:
    source = """
        import asyncio
        async def run(ctx):
            left, answer = await asyncio.gather(child_async("first_stage", {"task": "t"}), llm_async("mine"))
            return [left["result"], answer]
    """
    async with engine(minds=True) as hf:
        event = await hf.start(code(source))
        assert sorted(asked(event)) == ["first t", "mine"]
        _, event = await converse(hf, event)
    assert result(event) == ["one:<first t>", "<mine>"]


@each_row("name", ["no_such_strategy", "../etc/passwd", "os:system", "/etc/passwd", "x.py", ""])
async def test_a_child_that_is_not_there_is_an_error_that_can_be_caught(name: str) -> None:
    source = f"try:\n    x = child({name!r})\nexcept RuntimeError as error:\n    x = str(error)\nx"
    async with engine(minds=True) as hf:
        said = result(await hf.start(code(source), wait=20))
    assert "cannot be started" in said


# --- durable state -----------------------------------------------------------------------------------------


async def test_state_is_kept_and_read_within_one_step_and_by_other_sessions() -> None:
    source = """
        first = [state.get("k"), state.get("k", 5), state.has("k"), state.set_nx("k", [1]), state.set_nx("k", 2)]
        state.set("none", None)
        second = [state.get("k"), state.get("none", 7), state.keys(), state.incr("n"), state.incr("n", 2.5)]
        third = [state.update("k", lambda v: v + [2]), state.delete("k"), state.delete("k"), state.get("k")]
        third.append(state.update("d", lambda v: v + [1], default=[]))
        [first, second, third]
    """
    async with engine() as hf:
        assert result(await hf.start(code(source), ctx={"_ns": "own"})) == [
            [None, 5, False, True, False],
            [[1], None, ["k", "none"], 1, 3.5],
            [[1, 2], True, False, None, [1]],
        ]
        looks = code("[state.keys(), state.list('own'), state.show('own', 'd')]")
        assert result(await hf.start(looks, ctx={"_ns": "own"})) == [["d", "n", "none"], ["d", "n", "none"], [1]]
        end = failed(await hf.start(code("state.show('own', 'gone')"), ctx={"_ns": "own"}))
    assert "state: 'gone' not found in namespace 'own'" in end.error


async def test_a_state_that_is_no_number_cannot_be_counted_up() -> None:
    source = (
        "state.set('k', 'text')\ntry:\n    x = state.incr('k')\nexcept RuntimeError as error:\n    x = str(error)\nx"
    )
    assert "incr: value at 'k' is not a number" in await run(source)


async def test_cards_are_written_found_and_named() -> None:
    source = """
        def there(found):
            return found
        made = card.create({"pkg": {"name": "sandbox_test"}, "stats": {"pass_rate": 0.5}})
        card.append(made["card_id"], {"note": "n"})
        card.write_samples(made["card_id"], [{"score": 1}, {"score": 2}])
        card.alias_set("sandbox_best", made["card_id"], note="good")
        found = card.find(pkg="sandbox_test", where={"stats": {"pass_rate": {"gte": 0.4}}})
        [
            there(card.get(made["card_id"]))["note"],
            card.read_samples(made["card_id"], limit=1),
            there(card.get_by_alias("sandbox_best"))["card_id"] == made["card_id"],
            [each["card_id"] for each in found] == [made["card_id"]],
            card.get("no_such_card"),
        ]
    """
    async with engine(minds=True) as hf:
        assert result(await hf.start(code(source), wait=20)) == ["n", [{"score": 1}], True, True, None]


async def test_a_card_that_cannot_be_made_is_an_error_that_can_be_caught() -> None:
    source = "try:\n    card.create({})\nexcept RuntimeError as error:\n    said = str(error)\nsaid"
    async with engine(minds=True) as hf:
        assert "pkg" in result(await hf.start(code(source), wait=20))


# --- reading -----------------------------------------------------------------------------------------------


async def test_what_models_write_is_read() -> None:
    source = """
        [
            json_extract("so: [1, 2]"), match_enum("a wish", ["Bug", "Wish"]), match_bool("lgtm"), parse_score("8/10"),
            parse_number("tax: 12.5"), parse_number("n=7", r"n=(\\d+)"), parse_number("none"),
            vote(["a ", "b", "a"]), chunk("abcde", mode="chars", size=2), fingerprint("A b") == fingerprint("a  B"),
            tuning({"n": 1, "m": {"x": 1, "y": 2}}, {"n": 2, "m": {"y": 3}, "z": 1}), list_items("- a\\n- b", most=1),
        ]
    """
    assert await run(source) == [
        *([1, 2], "Wish", True, 8, 12.5, 7, None),
        {"winner": "a", "count": 2, "total": 3},
        *(["ab", "cd", "e"], True, {"n": 2, "m": {"x": 1, "y": 3}}, ["a"]),
    ]


PARAMETERS = """
META = {
    "name": "m", "description": "d",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to do."},
        "n": {"type": "int", "default": 3, "min": 1, "max": 5, "description": "How often."},
        "mode": {"type": "str", "default": "a", "choices": ["a", "b"], "description": "How."},
    },
}
def run(ctx):
    return parameters(META, ctx)
"""


async def test_parameters_are_filled_in() -> None:
    assert await run(PARAMETERS, ctx={"task": "t", "n": 5, "more": 1}) == {"task": "t", "n": 5, "mode": "a"}


@each_row(
    ("ctx", "words"),
    [
        ({}, "m: ctx has no 'task' (What to do.)"),
        ({"task": 5}, "m: 'task' must be str, got 5"),
        ({"task": "t", "n": 9}, "m: 'n' must be at least 1 and at most 5, got 9"),
        ({"task": "t", "n": True}, "m: 'n' must be int, got true"),
        ({"task": "t", "mode": "c"}, "m: 'mode' must be one of a, b; got \"c\""),
    ],
)
async def test_a_parameter_that_meta_does_not_allow_is_named(ctx: dict[str, Any], words: str) -> None:
    async with engine() as hf:
        end = failed(await hf.start(code(PARAMETERS), ctx=ctx))
    assert (end.error_kind, words in end.error) == ("ValueError", True), end.error
