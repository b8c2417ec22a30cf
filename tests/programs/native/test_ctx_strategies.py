"""`ctx.pipe` and `ctx.fork`: other strategies of any language, one after the other and side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import CompletedEvent, FailedEvent
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.errors import ProgramNotFoundError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Function, Strategy
from holdfast.testing.patience import soon
from tests.alc.lua import scripted
from tests.alc.lua.sessions import install
from tests.programs.surface import asked, breaks, converse, logged, result, run, shout, silent


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


PACKAGE = "return { run = function(ctx) ctx.result = ctx.task .. ' in Lua' return ctx end }"


@pytest.fixture
def _lua_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"surface_lua": PACKAGE})


@pytest.mark.usefixtures("_lua_package")
async def test_a_pipe_hands_results_on_between_names_strategies_and_functions(hf: Holdfast) -> None:
    given = {"task": "hi", "keep": 1}

    def plain(ctx: dict[str, Any]) -> dict[str, Any]:
        return {**ctx, "result": ctx["task"] + "+plain"}

    async def piped(ctx: Context) -> list[Any]:
        async def waits(state: dict[str, Any]) -> dict[str, Any]:
            state["result"] = await ctx.llm(f"inline {state['task']}")
            return state

        return [await ctx.pipe(["surface-shout", shout, plain, waits, "surface_lua"], given), given]

    hf.drive("llm", lambda query: query.prompt.upper())
    out, untouched = await soon(hf.result((await soon(hf.start(piped))).session_id))
    assert untouched == {"task": "hi", "keep": 1}
    assert out["keep"] == 1
    assert out["result"] == "INLINE SHOUT SHOUT HI+PLAIN in Lua"
    assert out["task"] == "INLINE SHOUT SHOUT HI+PLAIN"
    assert [(entry["strategy"], entry["result"]) for entry in out["pipe_history"]] == [
        ("surface-shout", "SHOUT HI"),
        ("surface-shout", "SHOUT SHOUT HI"),
        ("(inline-3)", "SHOUT SHOUT HI+plain"),
        ("(inline-4)", "INLINE SHOUT SHOUT HI+PLAIN"),
        ("surface_lua", "INLINE SHOUT SHOUT HI+PLAIN in Lua"),
    ]


@pytest.mark.parametrize("value", [[1, {"b": 2.5, "a": False}], {"x": "é"}, "text", 7, 7.0, True, None])
async def test_a_result_becomes_the_next_task_as_it_does_in_lua(hf: Holdfast, value: Any) -> None:
    async def piped(ctx: Context) -> Any:
        first = await ctx.pipe([lambda state: {**state, "result": value}, dict], {"task": "t"})
        return [first["task"], first["pipe_history"][0]["strategy"]]

    code = """
        local out = alc.pipe({function(c) c.result = ctx.value return c end, function(c) return c end}, {task = "t"})
        return {out.task, out.pipe_history[1].strategy}
    """
    assert await run(hf, piped) == scripted.run(code, ctx={"value": value}).result


async def test_an_error_of_a_stage_ends_the_pipe_unless_it_is_to_be_passed_over(hf: Holdfast) -> None:
    def half(state: dict[str, Any]) -> dict[str, Any]:
        state["junk"] = 1
        raise KeyError("half done")

    def add(state: dict[str, Any]) -> dict[str, Any]:
        return {"result": state["task"] + "!", "task": state["task"]}

    async def piped(ctx: Context) -> list[Any]:
        errors = []
        for stage in (breaks, half):
            try:
                await ctx.pipe([stage, add], {"task": "t"})
            except (QueryFailedError, KeyError) as error:
                errors.append(type(error).__name__)
        skipped = await ctx.pipe([add, breaks, half, add], {"task": "t"}, on_error="skip")
        return [errors, skipped]

    event = await soon(hf.start(piped))
    errors, out = await soon(hf.result(event.session_id))
    assert errors == ["QueryFailedError", "KeyError"]
    assert out["result"] == "t!!"
    assert "junk" not in out
    first, broken, keyed, last = out["pipe_history"]
    assert (first["result"], last["result"]) == ("t!", "t!!")
    assert (broken["strategy"], keyed["strategy"]) == ("surface-breaks", "(inline-3)")
    assert broken["error"].startswith(f"child session {event.session_id}.q-1 failed: ValueError: broken by t!")
    assert keyed["error"] == "KeyError: 'half done'"
    assert [level for level, _ in await logged(hf, event.session_id)] == ["warn", "warn"]


@pytest.mark.parametrize(
    ("strategies", "options", "told"),
    [
        ([], {}, "pipe: strategies must be a list, and not empty"),
        ("surface-shout", {}, "pipe: strategies must be a list, and not empty"),
        ([dict, 5], {}, "pipe: strategy 2 must be a name, a strategy or a function, got int"),
        ([dict], {"on_error": "ignore"}, "pipe: on_error must be 'abort', 'skip' or 'continue', got 'ignore'"),
        ([lambda _: None], {"on_error": "skip"}, "pipe: strategy '(inline-1)' must return a dict (ctx), got NoneType"),
        (["no.such.module:thing"], {"on_error": "skip"}, "no.such.module"),
    ],
)
async def test_a_pipe_says_what_is_wrong(hf: Holdfast, strategies: Any, options: dict[str, Any], told: str) -> None:
    async def wrong_pipe(ctx: Context) -> Any:
        return await ctx.pipe(strategies, {"task": "t"}, **options)

    event = await hf.start(wrong_pipe)
    assert isinstance(event, FailedEvent)
    assert told in event.error


async def test_a_pipe_asks_nothing_if_one_of_its_strategies_cannot_be_found(hf: Holdfast) -> None:
    async def piped(ctx: Context) -> str:
        try:
            await ctx.pipe([shout, "no.such.module:thing"], {"task": "t"})
        except ProgramNotFoundError:
            return "told"
        return "no"

    assert result(await soon(hf.start(piped))) == "told"


@pytest.mark.usefixtures("_lua_package")
async def test_a_fork_runs_strategies_side_by_side_and_tells_what_became_of_each(hf: Holdfast) -> None:
    async def function(ctx: Context) -> str:
        return str(await ctx.llm(f"function {ctx.task}"))

    async def forks(ctx: Context) -> list[Any]:
        given = {"task": "t"}
        names: list[str | Strategy | Function] = [
            "surface-shout",
            breaks,
            function,
            silent,
            "surface_lua",
            "surface_missing",
        ]
        return [await ctx.fork(names, given), given]

    event = await soon(hf.start(forks))
    assert sorted(query.prompt for query in asked(event)) == ["function t", "shout t"]
    _, ended = await converse(hf, event, str.upper)
    assert isinstance(ended, CompletedEvent), ended
    (shouted, broken, called, quietly, in_lua, missing), given = ended.result
    assert given == {"task": "t"}
    assert shouted == {"strategy": "surface-shout", "ok": True, "result": {"task": "t", "result": "SHOUT T"}}
    assert (broken["strategy"], broken["ok"]) == ("surface-breaks", False)
    assert "ValueError: broken by t" in broken["error"]
    assert called["strategy"].endswith(".function")
    assert (called["ok"], called["result"]) == (True, "FUNCTION T")
    assert quietly["result"] == {"result": {"b": [True, None], "a": 2.0}}
    assert in_lua == {"strategy": "surface_lua", "ok": True, "result": {"task": "t", "result": "t in Lua"}}
    assert (missing["ok"], "result" in missing) == (False, False)
    assert "surface_missing" in missing["error"]


async def test_a_fork_that_aborts_raises_the_first_failure_after_all_have_ended(hf: Holdfast) -> None:
    async def forks(ctx: Context) -> list[str]:
        try:
            await ctx.fork([shout, breaks], {"task": "t"}, on_error="abort")
        except QueryFailedError as error:
            return [str(error), error.code]
        return []

    event = await soon(hf.start(forks))
    pauses, ended = await converse(hf, event, str.upper)
    assert pauses == [["shout t"]]
    text, code = result(ended)
    assert text.startswith("fork: strategy 'surface-breaks' failed: child session")
    assert code == "child_failed"


@pytest.mark.parametrize(
    ("strategies", "options", "told"),
    [
        ([], {}, "fork: strategies must be a list, and not empty"),
        (["a", None], {}, "fork: strategy 2 must be a name, a strategy or a function, got NoneType"),
        (["a"], {"on_error": "fail"}, "fork: on_error must be 'skip' or 'abort', got 'fail'"),
        (["surface-shout", "no.such.module:thing"], {}, "no.such.module"),
    ],
)
async def test_a_fork_says_what_is_wrong_before_anything_is_begun(
    hf: Holdfast, strategies: Any, options: dict[str, Any], told: str
) -> None:
    async def wrong_fork(ctx: Context) -> Any:
        return await ctx.fork(strategies, {}, **options)

    event = await soon(hf.start(wrong_fork))
    assert isinstance(event, FailedEvent)
    assert told in event.error
