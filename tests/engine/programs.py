"""Programs that several tests of the engine start: they ask a host one question after another, or two at once."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy


@strategy(name="runtime-two-questions")
async def two_questions(ctx: Context) -> list[str]:
    return [await ctx.llm("one"), await ctx.llm("two")]


@strategy(name="runtime-pair")
async def pair(ctx: Context) -> list[Any]:
    return list(await asyncio.gather(ctx.llm("left"), ctx.llm("right")))
