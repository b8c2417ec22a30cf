"""Two sides argue in rounds, then a judge decides.

Run it with `holdfast run examples/debate.py:debate --task "Tabs or spaces?" --ctx '{"rounds": 2}'`.
"""

import asyncio
from typing import Any

import holdfast


@holdfast.strategy
async def debate(ctx: holdfast.Context) -> dict[str, Any]:
    """Both sides speak at the same time in each round, so neither has the last word."""
    said: list[str] = []
    rounds = int(ctx.get("rounds", 2))
    for number in range(1, rounds + 1):
        ctx.progress(number, rounds, "arguing")
        so_far = "\n".join(said) or "(nothing yet)"
        pro, con = await asyncio.gather(
            ctx.llm(f"Argue FOR. Two sentences.\nQuestion: {ctx.task}\nSaid so far:\n{so_far}"),
            ctx.llm(f"Argue AGAINST. Two sentences.\nQuestion: {ctx.task}\nSaid so far:\n{so_far}"),
        )
        said += [f"For: {pro}", f"Against: {con}"]
    verdict = await ctx.llm("Who argued better, and why? One sentence.\n" + "\n".join(said), system="You are a judge.")
    ctx.stats.record("rounds", rounds)
    return {"verdict": verdict, "arguments": said}
