"""The strategy that `holdfast demo` runs: a few questions, one batch of them, two tools, one person."""

from __future__ import annotations

from typing import Any

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy

TOWNS = ("Whitby", "Robin Hood's Bay", "Staithes")


@strategy(name="weekend")
async def weekend(ctx: Context) -> Any:
    """Plan a weekend by the sea."""
    ctx.progress(1, 4, "where to")
    coast = await ctx.llm(f"{ctx.task} Which coast would you choose?")
    deposit = await ctx.tool("pay_deposit", coast=coast, pounds=20)
    ctx.progress(2, 4, "what to do there")
    ideas = await ctx.llm_batch([f"One thing to do in {town}?" for town in TOWNS])
    ctx.progress(3, 4, "choose")
    town = await ctx.ask("Which town shall it be?", choices=TOWNS)
    plan = ideas[TOWNS.index(town)]
    sent = await ctx.tool("send_invitation", town=town, plan=plan)
    ctx.progress(4, 4, "write it down")
    ctx.stats.record("towns considered", len(ideas))
    note = await ctx.llm(f"Put it in one sentence: {plan}, in {town}.")
    return {"plan": note, "deposit": deposit, "invitation": sent}
