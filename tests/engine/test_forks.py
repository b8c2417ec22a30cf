"""Forks: made before a query, with effects of their own, past damage, and compared with where they come from."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import InvalidValueError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.records import StartedRecord
from holdfast.engine.drivers import Attempt
from holdfast.engine.errors import ForkPointError
from holdfast.programs.native.ctx import Context
from holdfast.store.errors import ForkPositionError
from holdfast.testing.patience import soon, until
from tests.engine.helpers import attempts_at, of_type, prompts, quiet, records, result, sqlite


@holdfast.strategy(name="forking-three")
async def three(ctx: Context) -> list[Any]:
    said: list[Any] = []
    for number in range(3):
        ctx.log(f"asks {number}")
        said.append(await ctx.llm(f"{number}? {said}"))
    return said


@holdfast.strategy(name="forking-pays")
async def pays(ctx: Context) -> Any:
    await ctx.llm("ready?")
    return await ctx.tool("pay", amount=3)


async def finished(hf: holdfast.Holdfast, session_id: str = "s") -> None:
    await hf.start(three, id=session_id)
    for answer in ("a", "b", "c"):
        await hf.feed(session_id, answer)


async def test_before_a_query_the_program_asks_it_anew() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        fork = await hf.fork("s", before="q-1", id="f")
        assert prompts(fork) == {"q-1": "1? ['a']"}
        await hf.feed("f", "other")
        assert result(await hf.feed("f", "last")) == ["a", "other", "last"]
        assert await hf.result("s") == ["a", "b", "c"]


async def test_a_fork_before_a_query_notes_nothing_twice() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        await hf.fork("s", before="q-2", id="f")
        assert (await records(hf.store, "f"))[1:] == (await records(hf.store, "s"))[1:9]


async def test_in_the_middle_of_what_was_written_at_once_the_place_before_is_taken() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        await hf.fork("s", at=5, id="f")  # between a log line and the question that follows it
        [started] = await of_type(hf.store, "f", StartedRecord)
        assert started.forked_from is not None
        assert started.forked_from.position == 4


async def test_a_query_that_was_never_asked_is_refused_with_those_near_it() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        with pytest.raises(ForkPointError) as refusal:
            await hf.fork("s", before="q-9")
        assert refusal.value.near == ["q-0", "q-1", "q-2"]
        with pytest.raises(ForkPointError, match="it has no turn at all"):
            await hf.fork("s", turn="t-1")
        with pytest.raises(ForkPointError, match="it has no node at all"):
            await hf.fork("s", node="n-1")


async def test_places_out_of_reach_and_two_places_at_once_are_refused() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        for at in (-1, 0, 12):
            with pytest.raises(ForkPositionError, match="from 1 to 11"):
                await hf.fork("s", at)
        with pytest.raises(InvalidValueError, match="at=3, before='q-1'"):
            await hf.fork("s", 3, before="q-1")
        assert len((await hf.sessions()).rows) == 1


async def test_a_fork_of_what_is_not_there_or_to_what_is_says_so() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        with pytest.raises(SessionNotFoundError):
            await hf.fork("none")
        with pytest.raises(SessionExistsError):
            await hf.fork("s", id="s")
        await hf.delete("s")
        with pytest.raises(SessionDeletedError):
            await hf.fork("s")


async def test_the_points_of_a_session_are_listed_with_what_is_asked_there() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        found = [(each.position, each.kind, each.id, each.text) for each in await hf.fork_points("s")]
        assert found == [
            (1, "start", "", "forking-three"),
            (1, "pause", "q-0", "0? []"),
            (4, "pause", "q-1", "1? ['a']"),
            (7, "pause", "q-2", "2? ['a', 'b']"),
        ]


async def test_two_branches_are_compared() -> None:
    async with quiet("memory:") as hf:
        await finished(hf)
        await hf.fork("s", before="q-1", id="f")
        await hf.feed("f", "other")
        found = await hf.compare("s", "f")
        assert found.difference == "the answer to q-1 is another"
        assert (found.left.common, found.right.common) == (6, 6)
        assert found.descent is not None
        assert (found.descent.session_id, found.descent.position) == ("s", 4)


def test_the_door_without_await_forks_and_compares() -> None:
    with holdfast.open_sync("memory:") as hf:
        hf.start(three, id="s")
        hf.feed("s", "a")
        hf.fork("s", before="q-1", id="f")
        assert [each.id for each in hf.fork_points("f")] == ["", "q-0", "q-1"]
        assert hf.compare("s", "f").difference is None


# --- sharing ---------------------------------------------------------------------------------------


async def test_a_fork_goes_on_after_its_source_was_deleted_in_another_process(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        await finished(hf)
        await hf.fork("s", before="q-2", id="f")
        await hf.fork("f", before="q-1", id="g")
        await hf.delete("s")
    async with quiet(sqlite(tmp_path)) as hf:
        await hf.delete("f")
        await hf.feed("g", "x")
        assert result(await hf.feed("g", "y")) == ["a", "x", "y"]


async def test_a_damaged_session_is_forked_at_any_named_place_before_the_damage(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        await finished(hf)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database, database:
        database.execute("update journal set body = '{}' where 8 between first and last")
    async with quiet(sqlite(tmp_path)) as hf:
        assert [each.id for each in await hf.fork_points("s")] == ["", "q-0", "q-1"]
        assert prompts(await hf.fork("s", before="q-1")) == {"q-1": "1? ['a']"}
        with pytest.raises(ForkPointError, match="near it are q-0, q-1"):
            await hf.fork("s", before="q-2")


# --- effects ---------------------------------------------------------------------------------------


async def test_what_was_under_way_is_run_anew_under_a_key_of_the_fork(tmp_path: Path) -> None:
    keys: list[tuple[str, int]] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def pay(amount: int, attempt: Attempt) -> str:
        keys.append((attempt.key, attempt.number))
        begun.set()
        await may_end.wait()
        return f"paid by {attempt.session_id}"

    async with quiet(sqlite(tmp_path)) as hf:
        hf.drive("pay", pay)  # which is never to be run twice
        await hf.start(pays, id="s", wait=0)
        await hf.feed("s", "yes", wait=0)
        await soon(begun.wait())
        reach = await hf.store.position("s")
        assert len(await attempts_at(hf.store, "s")) == 1
        await hf.fork("s", reach, id="f", wait=0)
        await until(lambda: has(keys, "f/q-1"))
        may_end.set()
        assert await hf.result("s", 5) == "paid by s"
        assert await hf.result("f", 5) == "paid by f"
    assert keys == [("s/q-1", 1), ("f/q-1", 1)]


async def has(keys: list[tuple[str, int]], wanted: str) -> bool:
    return any(key == wanted for key, _ in keys)


async def test_what_was_answered_is_not_run_again_in_a_fork() -> None:
    runs: list[str] = []

    def pay(amount: int, attempt: Attempt) -> str:
        runs.append(attempt.key)
        return "paid"

    async with quiet("memory:") as hf:
        hf.drive("pay", pay)
        await hf.start(pays, id="s")
        await hf.feed("s", "yes")
        assert await hf.result("s", 5) == "paid"
        await hf.fork("s", await hf.store.position("s") - 1, id="f")
        assert await hf.result("f", 5) == "paid"
        await hf.fork("s", before="q-1", id="g")
        assert await hf.result("g", 5) == "paid"
    assert runs == ["s/q-1", "g/q-1"]
