"""What the simulation has found once, and must not find again; most with a scenario of its own, not a lucky seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from holdfast import strategy
from holdfast.engine.drivers import Attempt
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.simulation import (
    Client,
    Faults,
    Run,
    Scenario,
    SimulatedProcess,
    profile,
    simulate,
    sweep,
    without,
)
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenarios.strategies import Strategies


def problems(scenario: type[Scenario], seeds: int, faults: Faults) -> list[str]:
    """What breaks in the runs of the first seeds."""
    runs: list[Run] = [simulate(scenario, seed, faults) for seed in range(seeds)]
    return [f"{run.seed}: {problem}" for run in runs for problem in run.problems]


@strategy(name="simulated_long_tool")
async def long_tool(ctx: Context) -> Any:
    return await ctx.tool("long")


class LongTool(Scenario):
    """One effect that takes far longer than a lease, and must never be repeated."""

    name: ClassVar[str] = "long tool"
    engines: ClassVar[tuple[int, int]] = (2, 2)
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def effect(attempt: Attempt) -> Any:
            value = await self.world.outside.perform(process, "never", attempt)
            await asyncio.sleep(6.0)
            return value

        hf.drive("long", effect)

    async def drive(self, client: Client, number: int) -> None:
        await client.start(long_tool, "s")
        while not await client.has_ended("s"):
            await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        if len(run.world.outside.executions) != 1:
            yield Problem("once", "s", f"the effect was begun {len(run.world.outside.executions)} times")


@pytest.mark.parametrize("rate", [0.01, 0.03])
def test_a_store_in_trouble_costs_no_healthy_effect_its_lease_or_its_answer(rate: float) -> None:
    assert problems(LongTool, 25, Faults(until_s=12.0, store_errors=rate)) == []


def test_a_lease_that_is_let_go_and_taken_again_in_the_same_moment_is_kept() -> None:
    run = simulate(Strategies, 912, without(profile(912), "jumps"), only=())
    assert run.problems == []


@strategy(name="simulated_parent")
async def parent(ctx: Context) -> Any:
    return await ctx.child(child)


@strategy(name="simulated_child")
async def child(ctx: Context) -> Any:
    return await ctx.tool("quick")


class ParentAndChild(Scenario):
    """A parent that waits for its only child."""

    name: ClassVar[str] = "parent and child"
    engines: ClassVar[tuple[int, int]] = (1, 1)
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def effect(attempt: Attempt) -> Any:
            return await self.world.outside.perform(process, "safe", attempt)

        hf.drive("quick", effect, recovery="safe")

    async def drive(self, client: Client, number: int) -> None:
        await client.start(parent, "s")
        while not await client.has_ended("s"):
            await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        for session_id, row in run.rows.items():
            if row.summary.state != "completed":
                yield Problem("completes", session_id, f"{session_id} is {row.summary.state}")


def test_a_child_is_not_said_to_be_impossible_to_start_because_the_store_is_in_trouble() -> None:
    assert problems(ParentAndChild, 40, Faults(until_s=6.0, store_errors=0.05, lost_replies=0.05)) == []


def test_an_attempt_that_was_not_begun_because_the_reply_of_its_commit_was_lost_is_no_death() -> None:
    assert problems(ParentAndChild, 25, Faults(until_s=10.0, lost_replies=0.7)) == []


def test_times_of_a_journal_do_not_fall_where_its_owners_clocks_differ() -> None:
    assert problems(ParentAndChild, 20, Faults(until_s=6.0, skew_s=2.0, jumps=3, kills=2)) == []


@strategy(name="simulated_model_and_person")
async def model_and_person(ctx: Context) -> Any:
    return list(await asyncio.gather(ctx.tool("quick"), ctx.ask("Well?")))


class AnswersOnce(ParentAndChild):
    """A session waits for a tool and for a person, who answers once, without waiting for that to be taken."""

    name: ClassVar[str] = "answers once"

    async def drive(self, client: Client, number: int) -> None:
        await client.start(model_and_person, "s")
        told = "unknown"
        while not await client.has_ended("s"):
            is_held = (await client.insist(lambda: client.hf.store.session("s"))).owner is not None
            for asked in await client.open_questions("s"):
                if told == "unknown" and (is_held or client.now_s() > 4.0):
                    told = await client.feed(*asked, "well", wait=0)
            await asyncio.sleep(0.02)


def test_a_message_is_taken_although_its_owner_dies_right_after_it_has_let_go() -> None:
    # Its owner hears of the message late, so that it is still there when the session is let go.
    runs = sweep(AnswersOnce, 2, "engine-0", Faults(until_s=4.0, late_notices=1.0))
    assert [str(problem) for run in runs for problem in run.problems] == []


class StuckMailbox(LongTool):
    """Engines whose mailboxes cannot be read for a while."""

    name: ClassVar[str] = "stuck mailbox"

    @asynccontextmanager
    async def opened(self, process: SimulatedProcess, **options: Any) -> AsyncIterator[Holdfast]:
        async with super().opened(process, **options) as hf:
            store: Any = hf.store
            read = store._mailbox

            async def stuck(session_id: str, limit: int) -> Any:
                await asyncio.sleep(5.0)
                return await read(session_id, limit)

            store._mailbox = stuck
            yield hf


def test_a_mailbox_that_cannot_be_read_costs_no_healthy_effect_its_lease() -> None:
    assert problems(StuckMailbox, 10, Faults(until_s=1.0)) == []


@strategy(name="simulated_sleeper")
async def sleeper(ctx: Context) -> Any:
    return await ctx.sleep(1.0)


class StuckWake(ParentAndChild):
    """The first read of a session that is due gets stuck, for longer than the looks for timers wait, and fails."""

    name: ClassVar[str] = "stuck wake"

    @asynccontextmanager
    async def opened(self, process: SimulatedProcess, **options: Any) -> AsyncIterator[Holdfast]:
        async with super().opened(process, **options) as hf:
            store: Any = hf.store
            read, stuck = store._session, [5.0]

            async def session(session_id: str) -> Any:
                row = await read(session_id)
                if process.name == "engine-0" and self.world.loop.time() > 1.0 and stuck:
                    await asyncio.sleep(stuck.pop())
                    raise StoreUnavailableError(store.url, "it does not answer")
                return row

            store._session = session
            yield hf

    async def drive(self, client: Client, number: int) -> None:
        await client.start(sleeper, "s")


def test_a_timer_whose_session_could_not_be_read_for_long_is_met_soon_after() -> None:
    run = simulate(StuckWake, 1, Faults(until_s=1.0))
    assert run.problems == []
    assert run.virtual_s < 8.0


@strategy(name="simulated_counter")
async def counter(ctx: Context) -> Any:
    return [await ctx.state.incr("all") for _ in range(5)]


class Counters(ParentAndChild):
    """Many sessions count in one place."""

    name: ClassVar[str] = "counters"
    engines: ClassVar[tuple[int, int]] = (2, 2)

    async def drive(self, client: Client, number: int) -> None:
        names = [f"s{each}" for each in range(6)]
        await asyncio.gather(*(client.start(counter, each) for each in names))
        while not all([await client.has_ended(each) for each in names]):
            await client.rest()


def test_sessions_that_begin_with_the_same_shared_value_all_start() -> None:
    assert problems(Counters, 20, Faults(until_s=1.0)) == []


def test_a_store_that_cannot_be_reached_is_no_answer_to_a_question_about_shared_state() -> None:
    assert problems(Counters, 20, Faults(until_s=6.0, store_errors=0.05)) == []
