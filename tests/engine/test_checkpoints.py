"""Sessions of every kind are opened from their checkpoints, and are then what their whole journals say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.budget import Budget
from holdfast.core.events import CompletedEvent, Event, PausedEvent
from holdfast.core.queries import Failure
from holdfast.core.records import Entry, Program
from holdfast.core.state import Session, State
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.seals import Sealer
from holdfast.programs.errors import DivergenceError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Strategy, strategy
from holdfast.programs.sandbox.source import python_code
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Segment
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon
from tests.core.helpers import picture
from tests.engine.helpers import ponder, quiet, result, sqlite

RECORDS = 5
"""Records between two checkpoints here."""

ROUNDS = 6

SEAL_BYTES = 16
"""Bytes of the seal that a checkpoint begins with."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.session_fold.CHECKPOINT_RECORDS", RECORDS)


class NotedReads(MemoryStore):
    """A store that notes which entries are read and where checkpoints are made, and can lose or change those."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []
        self.checkpoints: list[int] = []
        self.change: Callable[[Checkpoint], Checkpoint | None] = lambda kept: kept

    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:
        kept = await super()._checkpoint(session_id)
        changed = self.change(kept[0]) if kept is not None else None
        return None if kept is None or changed is None else (changed, kept[1])

    async def _append(self, commit: Commit) -> CommitReceipt:
        if commit.checkpoint is not None:
            self.checkpoints.append(commit.checkpoint.position)
        return await super()._append(commit)

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:
        entries = await super()._read(session_id, after, limit)
        self.reads.append((after, after + len(entries)))
        return entries


def seen(ctx: Context) -> str:
    """All that a strategy can know about itself."""
    return f"{ctx.session_id} {ctx.now()} {ctx.stats.llm_calls()} {ctx.budget_remaining()} {ctx.uuid()}"


@strategy(name="checkpoints-looks")
async def looks(ctx: Context) -> list[str]:
    """Its questions say what it sees: a replay in which it sees something else diverges."""
    answers = [str(await ctx.llm(seen(ctx)))]
    for number in range(ROUNDS):
        ctx.log(f"round {number}")
        ctx.stats.record("round", number)
        first = asyncio.ensure_future(_or_failure(ctx, seen(ctx)))
        both = [first, asyncio.ensure_future(_or_failure(ctx, "the other"))]
        done, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        answers += [task.result() for task in both if task in done]
        if number % 2:
            for task in rest:
                task.cancel()
        else:
            answers += [await task for task in rest]
        answers.append(str(await ctx.llm_each(["left", "right"])))
    return answers


async def _or_failure(ctx: Context, prompt: str) -> str:
    return str(await ctx.llm_safe(prompt, default="failed"))


@strategy(name="checkpoints-does-not-look")
async def does_not_look(ctx: Context) -> list[str]:
    return [await ctx.llm(f"question {number}") for number in range(3 * ROUNDS)]


@strategy(name="checkpoints-ponders")
async def ponders(ctx: Context) -> None:
    """Its answers are committed before it continues, because it takes long."""
    for _ in range(ROUNDS):
        await ctx.llm("?")
        ponder(0.1)


LUA = f"""
local answers = {{}}
for number = 1, {2 * ROUNDS} do
    alc.log("info", "round " .. number)
    answers[number] = alc.llm(("%d %s"):format(number, alc.stats.llm_calls()))
end
return answers
"""

PYTHON = f"""
async def run(ctx):
    answers = []
    for number in range({2 * ROUNDS}):
        log("round " + str(number))
        answers.append(llm(str(number) + " " + str(stats.llm_calls())))
    return answers
"""

PROGRAMS: dict[str, Strategy | Program] = {
    "native": looks,
    "native, blind": does_not_look,
    "lua": lua_code(LUA, name="checkpoints-lua"),
    "python": python_code(PYTHON, name="checkpoints-python"),
}

BUDGET = Budget(max_llm_calls=1_000, max_tokens=1_000_000)


def answer(event: Event, number: int) -> dict[str, Any]:
    """An answer to the first or the last of the open questions; now and then a failure, where it does not matter."""
    assert isinstance(event, PausedEvent), event
    query = event.queries[-(number % 2)]
    fails = number % 3 == 2 and getattr(query, "prompt", "") in ("left", "right", "the other")
    return {query.id: Failure("no") if fails else f"answer {number}"}


async def check(hf: Holdfast, session_id: str) -> None:
    """The session that an engine knows is the one that its whole journal tells of."""
    entries = await hf.store.entries(session_id)
    assert picture(await hf.session(session_id)) == picture(Session.fold(session_id, entries))


async def undisturbed(program: Strategy | Program, budget: Budget | None) -> Any:
    async with quiet("memory:") as hf:
        event = await soon(hf.start(program, budget=budget, id="s"))
        number = 0
        while not isinstance(event, CompletedEvent):
            event = await _next(hf, event, number)
            number += 1
        return event.result


async def _next(hf: Holdfast, event: Event, number: int) -> Event:
    event = await soon(hf.feed("s", answer(event, number)))
    return event if isinstance(event, (PausedEvent, CompletedEvent)) else await soon(hf.resume("s"))


@pytest.mark.parametrize("budget", [None, BUDGET], ids=["without", "with a budget"])
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_session_reopened_at_every_answer_goes_on_as_if_it_never_was(
    tmp_path: Path, kind: str, budget: Budget | None
) -> None:
    program = PROGRAMS[kind]
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(program, budget=budget, id="s"))
    number, restored = 0, set[int]()
    while not isinstance(event, CompletedEvent):
        async with quiet(sqlite(tmp_path)) as hf:
            await check(hf, "s")
            event = await _next(hf, event, number)
            await check(hf, "s")
            if (found := await hf.store.checkpoint("s")) is not None:
                restored.add(found[0].position)
        number += 1
    assert len(restored) > 2
    if kind != "native":  # which says what time it is
        assert event.result == await undisturbed(program, budget)


async def run(store: MemoryStore, rounds: int) -> None:
    async with quiet(store) as hf:
        event = await hf.start(does_not_look, id="s")
        for number in range(rounds):
            event = await _next(hf, event, number)


async def test_a_session_that_is_looked_at_is_read_from_its_checkpoint_on() -> None:
    store = NotedReads()
    await run(store, 9)
    kept = await store.checkpoint("s") or pytest.fail("there is no checkpoint")
    store.reads.clear()
    async with quiet(store) as hf:
        assert (await hf.session("s")).queries_asked == 10
        assert store.reads == [(kept[0].position, 20)]


async def test_a_program_that_is_run_again_reads_every_entry_once() -> None:
    store = NotedReads()
    await run(store, 9)
    kept = await store.checkpoint("s") or pytest.fail("there is no checkpoint")
    store.reads.clear()
    async with quiet(store) as hf:
        await hf.feed("s", "next")
        assert store.reads == [(kept[0].position, 20), (0, kept[0].position)]


def _flipped(kept: Checkpoint) -> Checkpoint:
    return Checkpoint(kept.position, kept.state[:-1] + bytes([kept.state[-1] ^ 1]))


def _sealed_for_another(kept: Checkpoint) -> Checkpoint:
    return Sealer().seal_checkpoint("other", Checkpoint(kept.position, kept.state[SEAL_BYTES:]))


def _sealed_nonsense(kept: Checkpoint) -> Checkpoint:
    return Sealer().seal_checkpoint("s", Checkpoint(kept.position, b"=nonsense"))


@pytest.mark.parametrize(
    "change",
    [lambda _: None, _flipped, _sealed_for_another, _sealed_nonsense],
    ids=["lost", "changed", "of another session", "unreadable"],
)
async def test_without_a_sound_checkpoint_a_session_is_read_from_the_start_and_goes_on(
    change: Callable[[Checkpoint], Checkpoint | None],
) -> None:
    store = NotedReads()
    await run(store, 9)
    store.change = change
    store.reads.clear()
    async with quiet(store) as hf:
        event: Event = await hf.feed("s", "next")
        assert store.reads == [(0, 20)]
        await check(hf, "s")
        for number in range(10, 3 * ROUNDS):
            event = await _next(hf, event, number)
    assert len(result(event)) == 3 * ROUNDS


async def test_a_replay_that_diverges_before_the_checkpoint_is_an_error_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = NotedReads()
    await run(store, 9)

    async def another(ctx: Context) -> None:
        await ctx.llm("question 0")
        await ctx.llm("something else")

    monkeypatch.setattr(does_not_look, "function", another)
    async with quiet(store) as hf:
        with pytest.raises(DivergenceError, match=r"something else") as caught:
            await hf.feed("s", "next")
        assert caught.value.position == 4
        assert await store.position("s") == 20
        assert (await hf.session("s")).state is State.PAUSED


async def test_a_fork_has_checkpoints_of_its_own() -> None:
    store = NotedReads()
    await run(store, 9)
    async with quiet(store) as hf:
        event: Event = await hf.fork("s", before="q-2", id="fork")
        for number in range(2, 3 * ROUNDS):
            event = await hf.feed("fork", f"other {number}")
    source, fork = await store.checkpoint("s"), await store.checkpoint("fork")
    assert source is not None
    assert fork is not None
    assert fork[0].position > source[0].position
    async with quiet(store) as hf:
        await check(hf, "fork")
        await check(hf, "s")
    assert result(event) == ["answer 0", "answer 1", *(f"other {number}" for number in range(2, 3 * ROUNDS))]


async def test_a_checkpoint_is_of_a_session_whose_program_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say with which answers a program runs, so none is made while it does."""
    monkeypatch.setattr("holdfast.engine.session_fold.CHECKPOINT_RECORDS", 1)
    store = NotedReads()
    async with quiet(store) as hf:
        event = await soon(hf.start(ponders, id="s"))
        for number in range(ROUNDS):
            event = await _next(hf, event, number)
    assert len(store.checkpoints) > 2
    entries = await store.entries("s")
    assert {Session.fold("s", entries[:position]).state for position in store.checkpoints} == {State.PAUSED}
