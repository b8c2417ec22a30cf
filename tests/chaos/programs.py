"""What the sessions of a chaos run do: some drive themselves, some ask a host."""

from __future__ import annotations

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy


@strategy(name="chaos-driven")
async def driven(ctx: Context) -> int:
    """Ends by itself, about a second after it was begun."""
    done = 0
    for _ in range(4):
        done += int(str(await ctx.tool("work", n=1)))
        await ctx.sleep(0.1)
    return done


@strategy(name="chaos-asked")
async def asked(ctx: Context) -> list[str]:
    """Waits for a host, again and again."""
    return [str(await ctx.llm(f"question {number}")) for number in range(10_000)]
