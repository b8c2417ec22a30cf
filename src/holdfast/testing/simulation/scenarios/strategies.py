"""Strategies: chains and groups of tools, people, timers and children, on a few engines and with a few clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from holdfast.core.needs import ANY
from holdfast.core.queries import LlmQuery
from holdfast.core.records import CompletedRecord
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Reply
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.world import SimulatedProcess

POLICIES = ("never", "safe", "idempotent", "confirm")

KEYS = ("one", "two")
"""Keys of the state that all sessions share."""

CHILD_STEPS = 2
"""Steps of a child; it has none of its own."""


@strategy(name="simulated_plan")
async def simulated_plan(ctx: Context) -> Any:
    """Take the steps that the session was started with, one after the other, and return what came of each."""
    steps: Any = ctx["steps"]
    return [await _taken(ctx, step) for step in steps]


async def _taken(ctx: Context, step: Any) -> Any:
    match step:
        case ["tool", policy]:
            try:
                return await ctx.tool(policy)
            except QueryFailedError as error:
                return ["failed", error.code]
        case ["ask", prompt]:
            return await ctx.ask(prompt)
        case ["sleep", seconds]:
            return await ctx.sleep(seconds)
        case ["model", prompt]:
            try:
                return await ctx.llm(prompt)
            except QueryFailedError as error:
                return ["failed", error.code]
        case ["count", key]:
            return await ctx.state.update(key, _one_more)
        case ["add", key, delta]:
            return await ctx.state.incr(key, delta)
        case ["together", *steps]:
            return list(await asyncio.gather(*(_taken(ctx, each) for each in steps)))
        case ["child", *steps]:
            try:
                return await ctx.child(simulated_plan, {"steps": steps})
            except QueryFailedError as error:
                return ["failed", error.code]
        case ["hurry", seconds, inner]:
            try:
                async with asyncio.timeout(seconds):
                    return await _taken(ctx, inner)
            except TimeoutError:
                return "too late"
        case _:
            raise ValueError(f"no such step: {step!r}")


def _one_more(value: Any) -> Any:
    return (value or 0) + 1


class Strategies(Scenario):
    """Native strategies with drawn steps."""

    name: ClassVar[str] = "strategies"

    def prepare(self) -> None:
        drawn = {f"s{number}": self.planned_steps(number) for number in range(self.random.randint(2, 5))}
        self.asks_once = self.random.random() < 0.3
        """Whether clients answer without waiting for that to be taken, and never again."""
        self.cancels = {session_id for session_id in drawn if self.random.random() < 0.15}
        is_observed = self.random.random() < 0.5
        kept = {session_id: steps for session_id, steps in drawn.items() if self.keeps(session_id)}
        super().prepare()
        self.plans = {
            session_id: [step for index, step in enumerate(steps) if self.keeps(f"{session_id}/{index}")]
            for session_id, steps in kept.items()
        }
        if is_observed and self.keeps("observer"):
            self.world.add_process("observer", self.run_observer, restarts=False)

    async def run_observer(self, process: SimulatedProcess) -> None:
        """One life of an observer: it watches all sessions until they end."""
        async with self.opened(process, upkeep=Upkeep(on=False)) as hf:
            client = Client(process, hf, self.history)
            await asyncio.gather(*(client.watch(session_id) for session_id in self.plans))

    def planned_steps(self, number: int) -> list[Any]:
        """The steps of the session of that number."""
        random = Random(f"{self.world.seed}/plan/{number}")
        return [drawn_step(random, depth=0) for _ in range(random.randint(1, 4))]

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        outside = self.world.outside

        def tool(policy: str) -> Any:
            async def effect(attempt: Attempt) -> Any:
                async def call_back(value: Json) -> None:
                    await hf.feed(attempt.session_id, {attempt.query_id: value}, wait=0)

                return await outside.perform(process, policy, attempt, call_back=call_back)

            return effect

        async def model(query: LlmQuery, attempt: Attempt) -> Reply:
            said = await outside.perform(process, "safe", attempt)
            return Reply(said, outside.report(attempt.key, process.random))

        hf.drive("llm", model)
        for policy in POLICIES:
            probe = outside.probe if policy == "confirm" else None
            hf.drive(policy, tool(policy), recovery=policy, probe=probe)  # type: ignore[arg-type]

    async def drive(self, client: Client, number: int) -> None:
        mine = [each for index, each in enumerate(self.plans) if index % self.number_of_clients == number]
        for session_id in mine:
            await client.start(simulated_plan, session_id, {"steps": self.plans[session_id]}, llm=ANY)
            await client.rest()
        answered: set[tuple[str, str]] = set()
        while waiting := [each for each in mine if not await client.has_ended(each)]:
            for session_id in waiting:
                if session_id in self.cancels and client.now_s() > 2.0:
                    await client.cancel(session_id)
                for asked in await client.open_questions(session_id):
                    if self.asks_once and asked in answered:
                        continue
                    wait = 0 if self.asks_once else None
                    if await client.feed(*asked, f"answer to {asked[0]}/{asked[1]}", wait=wait) != "unknown":
                        answered.add(asked)
            await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        for session_id, plan in self.plans.items():
            entries = run.journals.get(session_id, [])
            last = entries[-1].record if entries else None
            if session_id not in self.cancels and not isinstance(last, CompletedRecord):
                why = getattr(last, "error", None) or getattr(last, "reason", None) or type(last).__name__
                yield Problem("completes", session_id, f"{session_id} did not complete: {why}")
            elif isinstance(last, CompletedRecord) and len(last.result) != len(plan):
                yield Problem("completes", session_id, f"{session_id} did not take all of its steps: {last.result}")


def drawn_step(random: Random, depth: int) -> list[Any]:
    """A step, which has steps of its own only at depth 0."""
    kinds = ["tool", "tool", "tool", "model", "ask", "sleep", "count", "add"] + (
        ["together", "child", "hurry"] if depth == 0 else []
    )
    match random.choice(kinds):
        case "tool":
            return ["tool", random.choice(POLICIES)]
        case "model":
            return ["model", f"prompt {random.randrange(1000)}"]
        case "count":
            return ["count", random.choice(KEYS)]
        case "add":
            return ["add", random.choice(KEYS), random.randint(1, 9)]
        case "ask":
            return ["ask", f"question {random.randrange(1000)}"]
        case "sleep":
            return ["sleep", round(random.uniform(0.05, 3.0), 2)]
        case "together":
            return ["together", *(drawn_step(random, 1) for _ in range(random.randint(2, 3)))]
        case "child":
            return ["child", *(drawn_step(random, 1) for _ in range(random.randint(1, CHILD_STEPS)))]
        case _:
            return ["hurry", round(random.uniform(0.3, 3.0), 2), drawn_step(random, 1)]
