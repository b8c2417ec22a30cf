"""`alc.eval` in real sessions: one pause a question, budgets of the engine, and restarts in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import LlmQuery
from holdfast.core.records import Program
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep

ASKS = "return { run = function(ctx) ctx.result = alc.llm('Q: ' .. ctx.task); return ctx end }"

CAPITALS = """
return {
  { "contains", weight = 0.5 }, { "llm_yes_no", weight = 0.5 },
  cases = {
    { input = "Japan", expected = { "Tokyo", "東京" }, tags = { "asia" } },
    { input = "France", expected = "Paris", tags = { "europe" } },
    { input = "Peru", expected = "Lima" },
  },
}
"""

ANSWERS = {"Q: Japan": "It is 東京.", "Q: France": "Lyon", "Q: Peru": "Lima"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    for name, source in (("packages/asks/init.lua", ASKS), ("scenarios/capitals.lua", CAPITALS)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(source, encoding="utf-8")


def program() -> Program:
    """Made in the test, so that it looks for packages in the home of the test."""
    return lua_code("return alc.eval('capitals', 'asks')", name="evaluation")


def quiet(url: str) -> Holdfast:
    return open_holdfast(url, upkeep=Upkeep(on=False))


def question(event: Event) -> LlmQuery:
    assert isinstance(event, PausedEvent), event
    (query,) = event.queries
    assert isinstance(query, LlmQuery)
    return query


def answer(prompt: str) -> str:
    return ANSWERS.get(prompt) or ("No." if "Lyon" in prompt else "Yes.")


def report(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def check(found: Any) -> None:
    assert found["name"] == "asks:capitals"
    assert [result["score"] for result in found["results"]] == [1.0, 0.0, 1.0]
    assert [result["case"]["input"] for result in found["failures"]] == ["France"]
    assert found["aggregated"]["passed"] == 2
    assert {tag: entry["rate"] for tag, entry in found["aggregated"]["by_tag"].items()} == {"asia": 1.0, "europe": 0.0}


async def test_an_evaluation_pauses_for_each_answer_and_each_verdict() -> None:
    async with quiet("memory:") as holdfast:
        event = await holdfast.start(program(), id="e")
        asked = []
        while isinstance(event, PausedEvent):
            query = question(event)
            asked.append((query.prompt if query.prompt in ANSWERS else "judge", query.options))
            event = await holdfast.feed("e", answer(query.prompt))

        check(report(event))
        assert [prompt for prompt, _ in asked] == ["Q: Japan", "judge", "Q: France", "judge", "Q: Peru", "judge"]
        assert [options for prompt, options in asked if prompt == "judge"] == [{"role": "grader"}] * 3


async def test_an_evaluation_goes_on_after_a_restart_at_every_pause(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with quiet(url) as holdfast:
        event = await holdfast.start(program(), id="e")
    while isinstance(event, PausedEvent):
        async with quiet(url) as holdfast:
            again = await holdfast.resume("e")
            assert question(again) == question(event)
            event = await holdfast.feed("e", answer(question(event).prompt))

    check(report(event))


async def test_a_budget_of_the_engine_ends_an_evaluation_with_a_report_of_what_ran() -> None:
    async with quiet("memory:") as holdfast:
        event = await holdfast.start(program(), id="e", budget={"max_llm_calls": 3})
        while isinstance(event, PausedEvent):
            event = await holdfast.feed("e", answer(question(event).prompt))

        found = report(event)
        assert found["stopped"] == "budget_exceeded: max_llm_calls (3) reached (3 used)"
        assert [case["input"] for case in found["not_run"]] == ["Peru"]
        assert [result["passed"] for result in found["results"]] == [True, False]


async def test_a_scenario_is_found_by_its_path_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "cases").mkdir(parents=True)
    (project / "alc.toml").write_text("[packages]\n")
    (project / "cases" / "one.lua").write_text('return { cases = { { input = "Peru", expected = "Lima" } } }')
    monkeypatch.setenv("HOLDFAST_PROJECT_ROOT", str(project))
    for path in ("cases/one.lua", "./cases/one.lua", str(project / "cases" / "one.lua")):
        async with quiet("memory:") as hf:
            event = await hf.start(lua_code(f"return alc.eval('{path}', 'asks').aggregated.passed"))
            event = await hf.feed(event.session_id, "Lima")
            assert isinstance(event, CompletedEvent), event
            assert event.result == 1


@pytest.mark.parametrize("path", ["../secret.lua", "cases/none.lua", "cases/link.lua", "alc.toml", "/etc/passwd"])
async def test_a_path_out_of_the_project_is_no_scenario(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "cases").mkdir(parents=True)
    (project / "alc.toml").write_text("[packages]\n")
    (tmp_path / "secret.lua").write_text("return { cases = {} }")
    (project / "cases" / "link.lua").symlink_to(tmp_path / "secret.lua")
    monkeypatch.setenv("HOLDFAST_PROJECT_ROOT", str(project))
    async with quiet("memory:") as hf:
        event = await hf.start(lua_code(f"return alc.eval('{path}', 'asks')"))
        assert isinstance(event, FailedEvent)
        assert f"could not resolve scenario '{path}'" in event.error
