"""A replay takes the same steps, whatever the program does with its values and wherever it is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.events import AcceptedEvent, PausedEvent
from holdfast.core.queries import Failure
from holdfast.core.records import (
    AnsweredRecord,
    StartedRecord,
)
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.examples import examples
from tests.programs.native.helpers import asked, of_type, quiet, result

# --- what a program is given is its own ------------------------------------------------------------------


async def test_a_program_may_change_the_answer_it_was_given(tmp_path: Path) -> None:
    async def changes_the_answer(ctx: Context) -> Any:
        items = await ctx.ask("items?")
        items.append("mine")
        await ctx.llm(f"{items}")
        return items

    async with quiet(tmp_path) as hf:
        event = await hf.start(changes_the_answer)
        event = await hf.feed(event.session_id, ["yours"])
        (answered,) = await of_type(hf, event.session_id, AnsweredRecord)
        assert answered.answer.value == ["yours"]  # type: ignore[union-attr]
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == ["yours", "mine"]


async def test_a_program_may_change_the_data_it_was_started_with(tmp_path: Path) -> None:
    async def changes_its_data(ctx: Context) -> Any:
        ctx.data["n"] += 1
        await ctx.llm(f"{ctx.data}")
        return ctx.data

    mine = {"n": 1}
    async with quiet(tmp_path) as hf:
        event = await hf.start(changes_its_data, ctx=mine)
        assert mine == {"n": 1}
        (started,) = await of_type(hf, event.session_id, StartedRecord)
        assert started.ctx == {"n": 1}
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == {"n": 2}


async def test_a_tuple_among_the_arguments_replays_as_what_was_recorded(tmp_path: Path) -> None:
    async def asks_with_tuple(ctx: Context) -> Any:
        await ctx.tool("area", corners=((0, 0), (1, 1)))
        return await ctx.llm("?", stop=("a", "b"))

    async with quiet(tmp_path) as hf:
        event = await hf.start(asks_with_tuple)
    async with quiet(tmp_path) as hf:
        event = await hf.feed(event.session_id, 1)
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == "ok"


# --- replay at every pause ------------------------------------------------------------------------------


async def rich(ctx: Context) -> Any:
    """A bit of everything that needs no clock."""
    seen: list[Any] = [ctx.random.randint(0, 9), str(ctx.uuid())]
    ctx.log("begun")
    seen.append(await ctx.llm("plain"))
    seen += await ctx.llm_batch(["a", "b"])
    seen.append(await ctx.state.update("n", lambda n: n + 1, default=0))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(chain(ctx, name)) for name in "xy"]
    seen += [task.result() for task in tasks]
    racing = [ctx.ask("fast?"), ctx.ask("slow?")]
    done, rest = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    seen += [each.result() for each in done]
    try:
        async with asyncio.timeout(3600):
            seen.append(await ctx.tool("t", x=len(seen)))
    except QueryFailedError as error:
        seen.append(error.code)
    seen.append(ctx.random.random())
    return seen


async def chain(ctx: Context, name: str) -> str:
    try:
        first = await ctx.llm(f"{name}1")
    except QueryFailedError:
        first = "none"
    return str(first + await ctx.llm(f"{name}2 after {first}"))


Transcript = list[Any]


async def play(folder: Path, program: Any, session_id: str, reopen: Callable[[int], bool]) -> tuple[Transcript, Any]:
    """Answer one question at a time, the last offered first; the engine is closed and opened where `reopen` says."""
    hf = await quiet(folder).__aenter__()
    transcript: Transcript = []
    try:
        event = await soon(hf.start(program, id=session_id))
        for round_ in range(200):
            if reopen(round_):
                await hf.__aexit__()
                hf = await quiet(folder).__aenter__()
                event = await soon(hf.resume(session_id))
            if not isinstance(event, (PausedEvent, AcceptedEvent)):
                break
            event = await soon(hf.resume(session_id)) if isinstance(event, AcceptedEvent) else event
            shown = sorted((query.id, repr(query)) for query in asked(event))
            transcript.append(shown)
            last = max((query.id for query in asked(event)), key=lambda asked: int(asked[2:]))
            answer: Any = Failure("no", "code") if round_ % 7 == 5 else f"answer {round_}"
            event = await soon(hf.feed(session_id, {last: answer}))
        return transcript, event.to_json().get("result", event.to_json().get("error"))
    finally:
        await hf.__aexit__()


async def seeded(folder: Path, program: Any) -> str:
    """A fresh session of a program, to be forked: so that two runs have the same seed."""
    async with quiet(folder) as hf:
        return (await hf.start(program)).session_id


async def test_a_replay_at_every_pause_gives_the_same_questions_and_the_same_result(tmp_path: Path) -> None:
    async def fixed(ctx: Context) -> Any:
        ctx.random.seed(7)
        return await rich(ctx)

    for name in ("straight", "broken"):
        (tmp_path / name).mkdir()
    straight = await play(tmp_path / "straight", fixed, "s", lambda round_: False)
    broken = await play(tmp_path / "broken", fixed, "s", lambda round_: True)
    assert straight == broken
    assert len(straight[0]) >= 8


Op = tuple[Any, ...]


def ops(depth: int) -> st.SearchStrategy[list[Op]]:
    leaf = st.one_of(
        st.tuples(st.just("llm")),
        st.tuples(st.just("ask")),
        st.tuples(st.just("batch"), st.integers(0, 3)),
        st.tuples(st.just("draw")),
        st.tuples(st.just("log")),
        st.tuples(st.just("state")),
        st.tuples(st.just("race"), st.integers(1, 3)),
        st.tuples(st.just("late")),
    )
    if depth == 0:
        return st.lists(leaf, max_size=4)
    inner = ops(depth - 1)
    node = st.one_of(
        leaf,
        st.tuples(st.just("group"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("timeout"), inner),
    )
    return st.lists(node, max_size=4)


async def perform(ctx: Context, todo: list[Op], name: str) -> list[Any]:
    """A random program: its questions say where they come from and what came before."""
    seen: list[Any] = []
    for number, op in enumerate(todo):
        here = f"{name}.{number}"
        try:
            match op:
                case ("llm",):
                    seen.append(await ctx.llm(f"{here} {seen[-1:]}"))
                case ("ask",):
                    seen.append(await ctx.ask(here))
                case ("batch", n):
                    seen += await ctx.llm_batch([f"{here}[{i}]" for i in range(n)])
                case ("draw",):
                    seen.append(ctx.random.randint(0, 99))
                case ("log",):
                    ctx.log(here)
                case ("state",):
                    seen.append(await ctx.state.update("n", lambda n: n + 1, default=0))
                case ("race", n):
                    racing = [ctx.llm(f"{here}/{i}") for i in range(n)]
                    done, rest = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
                    for each in rest:
                        each.cancel()
                    seen += [each.result() for each in done]
                case ("late",):
                    early = ctx.llm(f"{here} early")
                    seen.append(await ctx.llm(f"{here} late"))
                    seen.append(await early)
                case ("group", parts):
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(perform(ctx, p, f"{here}g{i}")) for i, p in enumerate(parts)]
                    seen += [task.result() for task in tasks]
                case ("gather", parts):
                    seen += await asyncio.gather(*(perform(ctx, p, f"{here}a{i}") for i, p in enumerate(parts)))
                case ("timeout", part):
                    async with asyncio.timeout(3600):
                        seen += await perform(ctx, part, f"{here}t")
        except QueryFailedError as error:
            seen.append(error.code)
    return seen


@settings(max_examples=examples(20), deadline=None)
@given(todo=ops(2), reopened=st.sets(st.integers(0, 30)))
def test_random_programs_give_the_same_however_often_the_engine_is_closed(
    tmp_path_factory: pytest.TempPathFactory, todo: list[Op], reopened: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    for name in ("straight", "broken"):
        (folder / name).mkdir()

    async def performer(ctx: Context) -> Any:
        ctx.random.seed(7)
        return await perform(ctx, todo, "p")

    async def both() -> None:
        straight = await play(folder / "straight", performer, "s", lambda round_: False)
        broken = await play(folder / "broken", performer, "s", lambda round_: round_ in reopened)
        assert straight == broken

    asyncio.run(both())
