"""Programs whose children ask, and a process that starts one of them, tells what it says, and stays until it is killed.

python -m engine.shown_child URL SESSION PROGRAM CTX [tool]
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import holdfast
from holdfast import Context, QueryFailedError
from holdfast.engine.upkeep import Upkeep


@holdfast.strategy(name="shown-asker")
async def asker(ctx: Context) -> Any:
    """Asks so many questions, one after the other."""
    return [await ctx.llm(f"{ctx['name']} {number}") for number in range(ctx.get("count", 1))]


@holdfast.strategy(name="shown-middle")
async def middle(ctx: Context) -> Any:
    """A question of its own, and a child, at the same time."""
    return list(await asyncio.gather(ctx.llm("middle"), ctx.child(asker, ctx.data)))


@holdfast.strategy(name="shown-top")
async def top(ctx: Context) -> Any:
    """A child with a child."""
    return {"below": await ctx.child(middle, ctx.data), "after": await ctx.llm("after")}


@holdfast.strategy(name="shown-three")
async def three(ctx: Context) -> Any:
    """Three children, two of which ask twice, between two questions of its own."""
    asked = [ctx.llm("own"), *(ctx.child(asker, {"name": name, "count": 2}) for name in "ab")]
    return list(await asyncio.gather(*asked, ctx.ask("person"), ctx.child(asker, {"name": "c"})))


@holdfast.strategy(name="shown-helped")
async def helped(ctx: Context) -> Any:
    """Waits for a tool, and for an answer, at the same time."""
    return list(await asyncio.gather(ctx.llm("anyone?"), ctx.tool("work")))


@holdfast.strategy(name="shown-by-name")
async def by_name(ctx: Context) -> Any:
    """Runs whatever is found under a name."""
    try:
        return await ctx.child(ctx["program"], ctx.get("ctx"))
    except QueryFailedError as failure:
        return {"code": failure.code, "why": str(failure)}


async def main(url: str, session: str, program: str, ctx: str, *drives: str) -> None:
    """Start, tell, stay."""

    async def work() -> str:
        await asyncio.sleep(60)
        return "never"

    async with holdfast.open(url, upkeep=Upkeep(on=False)) as hf:
        for tool in drives:
            hf.drive(tool, work)
        event = await hf.start(program, ctx=json.loads(ctx), id=session)
        print(json.dumps(event.to_json()), flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
