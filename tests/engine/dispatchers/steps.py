"""A strategy of several steps and the tool that each of them calls, for workers that are started with the command."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import holdfast
from holdfast import Context


@holdfast.strategy(name="fleet-steps")
async def steps(ctx: Context) -> Any:
    """Takes as many steps as it is told to, one after the other."""
    return [await ctx.tool("step", ms=ctx.get("ms", 0)) for _ in range(ctx.get("count", 1))]


async def step(ms: int) -> int:
    """Take a step of so many milliseconds; says which process did."""
    await asyncio.sleep(ms / 1000)
    return os.getpid()
