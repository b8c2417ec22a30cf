"""The programs of the kill tests, and the sessions that run them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import holdfast
from holdfast import Context, QueryFailedError
from holdfast.programs.native.kind import PROMPT_MS
from holdfast.programs.registry import Strategy
from holdfast.testing.patience import HANG_S, until

UNANSWERED = "nobody answers"
"""How the prompts begin that the host leaves alone."""


class Gate:
    """Holds up what must not be over too soon. Open from the start in a process that only finishes sessions."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def block(self) -> None:
        """Wait as a strategy that computes does: without letting anybody else run in its thread."""
        deadline = time.monotonic() + HANG_S
        while not self.is_open and time.monotonic() < deadline:
            time.sleep(0.002)

    async def wait(self) -> None:
        await until(lambda: self.is_open)


thinking = Gate()
"""Holds up the steps of `thinker`."""


@holdfast.strategy
async def single(ctx: Context) -> Any:
    token = str(ctx.uuid())
    first = await ctx.llm(f"{ctx['name']}: first", token=token)
    second = await ctx.llm(f"{ctx['name']}: second after {first}")
    return [first, second, len(token)]


@holdfast.strategy
async def batch(ctx: Context) -> Any:
    answers = await ctx.llm_batch([f"{ctx['name']}: item {n}" for n in range(3)])
    ctx.progress(1, 2, "batch")
    return [answers, await ctx.llm(f"{ctx['name']}: about {len(answers)} answers")]


@holdfast.strategy
async def gathered(ctx: Context) -> Any:
    chance = ctx.random.random()
    both = await asyncio.gather(ctx.llm(f"{ctx['name']}: left"), ctx.llm(f"{ctx['name']}: right"))
    ctx.log("both are here")
    ctx.stats.record("chance", chance)
    return both


@holdfast.strategy
async def tooled(ctx: Context) -> Any:
    return [await _called(ctx, ctx["tool"], "once"), await ctx.llm(f"{ctx['name']}: after the tool")]


@holdfast.strategy
async def queued(ctx: Context) -> Any:
    return await asyncio.gather(_called(ctx, "queued", "one"), _called(ctx, "queued", "two"))


async def _called(ctx: Context, tool: str, what: str) -> Any:
    try:
        return await ctx.tool(tool, what=what)
    except QueryFailedError as error:
        return error.code


@holdfast.strategy
async def sleeper(ctx: Context) -> Any:
    await ctx.sleep(0.04)
    return await ctx.llm(f"{ctx['name']}: after the sleep")


@holdfast.strategy
async def impatient(ctx: Context) -> Any:
    try:
        async with asyncio.timeout(0.04):
            return await ctx.llm(f"{UNANSWERED} {ctx['name']}")
    except TimeoutError:
        return await ctx.llm(f"{ctx['name']}: out of patience")


@holdfast.strategy
async def parent(ctx: Context) -> Any:
    try:
        told = await ctx.child(sibling, {"name": f"{ctx['name']}'s child"})
    except QueryFailedError as error:
        told = error.code
    return [told, await ctx.llm(f"{ctx['name']}: after the child")]


@holdfast.strategy
async def sibling(ctx: Context) -> Any:
    return [ctx["name"], await ctx.llm(f"{ctx['name']}: as a child")]


@holdfast.strategy
async def counter(ctx: Context) -> Any:
    before = await ctx.state.update("count", _plus_one)
    await ctx.llm(f"{ctx['name']}: between")
    after = await ctx.state.update("count", _plus_one)
    await ctx.state.set("last", ctx["name"])
    return [before, after]


def _plus_one(value: Any) -> Any:
    return (value or 0) + 1


@holdfast.strategy
async def thinker(ctx: Context) -> Any:
    time.sleep(1.5 * PROMPT_MS / 1000)  # noqa: ASYNC251 - not prompt, so that its next step is run in a thread
    first = await ctx.llm(f"{ctx['name']}: to think about")
    thinking.block()
    return [first, await ctx.llm(f"{ctx['name']}: thought")]


@holdfast.strategy
async def busy(ctx: Context) -> Any:
    return await asyncio.gather(ctx.tool("held", what="on"), ctx.llm(f"{ctx['name']}: meanwhile"))


@holdfast.strategy
async def idle(ctx: Context) -> Any:
    return await ctx.llm(f"{UNANSWERED} {ctx['name']}")


PROGRAMS: dict[str, tuple[Strategy, dict[str, str]]] = {
    "single": (single, {}),
    "batch": (batch, {}),
    "gather": (gathered, {}),
    "never": (tooled, {"tool": "never"}),
    "safe": (tooled, {"tool": "safe"}),
    "idempotent": (tooled, {"tool": "idempotent"}),
    "confirm": (tooled, {"tool": "confirm"}),
    "ask": (tooled, {"tool": "ask"}),
    "queued": (queued, {}),
    "timer": (sleeper, {}),
    "deadline": (impatient, {}),
    "child": (parent, {}),
    "state": (counter, {}),
    "slow": (thinker, {}),
    "cancel": (parent, {}),
    "stop": (thinker, {}),
    "takeover": (tooled, {"tool": "late"}),
    "busy": (busy, {}),
    "idle": (idle, {}),
}
"""The sessions that are started in the scenario, by their ids: each is a step of its own."""

STEPS = (*PROGRAMS, "fork")

FORKED_AT = 3
"""Position in the journal of `single` after its first answer."""

CANCELLED = ("cancel", "stop")
