"""Histories are checked against the code that is here: nothing is changed, and both sides are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Runtime
from holdfast.alc.lua.source import lua_code
from holdfast.core.errors import SessionNotFoundError
from holdfast.core.records import Program
from holdfast.engine.holdfast import Holdfast
from holdfast.programs import registry
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.programs.sandbox.source import python_code
from holdfast.store.export import export_session
from holdfast.testing import ScriptedProvider, check_replay, tool_call
from tests.engine.helpers import quiet, sqlite

NAME = "replayed-triage"


async def version_1(ctx: Context) -> list[str]:
    return [await ctx.llm("kind?"), await ctx.llm("draft?")]


async def version_2(ctx: Context) -> list[str]:
    return [await ctx.llm("which kind?"), await ctx.llm("draft?")]


async def same_so_far(ctx: Context) -> list[str]:
    return [await ctx.llm("kind?"), *await ctx.llm_batch(["draft?", "another?"])]


async def run(hf: Holdfast, program: Any, answers: int) -> str:
    event = await hf.start(program)
    for number in range(answers):
        event = await hf.feed(event.session_id, f"answer {number}")
    return event.session_id


def define(function: Callable[[Context], Any]) -> None:
    strategy(name=NAME)(function)


@pytest.mark.parametrize("answers", [0, 1, 2])
async def test_a_session_replays_on_the_code_that_it_ran_with(tmp_path: Path, answers: int) -> None:
    define(version_1)
    async with quiet(sqlite(tmp_path)) as hf:
        outcome = await hf.check_replay(await run(hf, NAME, answers))
    assert (outcome.state, outcome.why) == ("ok", "")
    assert outcome.records == 2 + 2 * answers


async def test_changed_code_is_found_with_both_sides_and_both_versions_and_nothing_is_changed(tmp_path: Path) -> None:
    define(version_1)
    async with quiet(sqlite(tmp_path)) as hf:
        sid = await run(hf, NAME, 1)
        began_with = registry.find(NAME).version
        define(version_2)
        before = await hf.store.session(sid), await hf.store.entries(sid)
        outcome = await hf.check_replay(sid)
        assert (await hf.store.session(sid), await hf.store.entries(sid)) == before
    shown = outcome.to_json()
    assert (shown["state"], shown["position"]) == ("diverges", 2)
    assert "kind?" in shown["recorded"]
    assert "which kind?" in shown["asked"]
    assert (shown["began_with"], shown["here"]) == (began_with, registry.find(NAME).version)
    assert shown["file"] == __file__
    assert f"it began with version {began_with}; here is version {shown['here']}" in str(outcome)


async def test_only_what_is_recorded_is_compared(tmp_path: Path) -> None:
    define(version_1)
    async with quiet(sqlite(tmp_path)) as hf:
        early, late = await run(hf, NAME, 0), await run(hf, NAME, 1)
        define(same_so_far)
        assert (await hf.check_replay(early)).state == "ok"
        assert (await hf.check_replay(late)).state == "diverges"


async def test_a_program_that_is_not_here_cannot_be_checked(tmp_path: Path) -> None:
    define(version_1)
    async with quiet(sqlite(tmp_path)) as hf:
        sid = await run(hf, NAME, 1)
        del registry._registered[NAME]
        outcome = await hf.check_replay(sid)
        assert outcome.state == "unchecked"
        assert "not registered in this process" in outcome.why
        with pytest.raises(SessionNotFoundError):
            await hf.check_replay("nowhere")


@pytest.mark.parametrize(
    "program",
    [
        lua_code("return alc.llm('one') .. alc.llm('two')"),
        python_code("def run(ctx):\n    return llm('one') + llm('two')"),
    ],
    ids=["lua", "python"],
)
async def test_programs_of_other_kinds_replay_too(tmp_path: Path, program: Program) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        for answers in (1, 2):
            assert (await hf.check_replay(await run(hf, program, answers))).state == "ok"


async def test_agents_replay_too(tmp_path: Path) -> None:
    def search(query: str) -> str:
        """Look something up."""
        return "a page"

    model = ScriptedProvider([tool_call("search", query="x"), "Found."])
    async with Runtime(sqlite(tmp_path), provider=model, tools=[search]) as runtime:
        session = await runtime.session("chat").open()
        await session.turn("Look for x.").run()
    async with quiet(sqlite(tmp_path)) as hf:
        outcome = await hf.check_replay("chat")
    assert outcome.state == "ok", str(outcome)
    assert outcome.records > 5


async def test_an_export_is_checked_without_its_store(tmp_path: Path) -> None:
    define(version_1)
    async with quiet(sqlite(tmp_path)) as hf:
        sid = await run(hf, NAME, 2)
        await export_session(hf.store, sid, tmp_path / "triage.jsonl")
    async with quiet("memory:") as hf:
        assert (await hf.check_replay(tmp_path / "triage.jsonl")).state == "ok"


def test_a_test_suite_checks_exports(tmp_path: Path) -> None:
    import asyncio

    define(version_1)

    async def export() -> None:
        async with quiet(sqlite(tmp_path)) as hf:
            await export_session(hf.store, await run(hf, NAME, 1), tmp_path / "triage.jsonl")

    asyncio.run(export())
    assert check_replay(tmp_path / "triage.jsonl").state == "ok"
    define(version_2)
    assert check_replay(tmp_path / "triage.jsonl").state == "diverges"
