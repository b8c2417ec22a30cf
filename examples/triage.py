"""Triage a support ticket: classify it, draft two replies at once, and let a person choose.

Run it with `holdfast run examples/triage.py:triage --task "The invoice shows last year's address"`.
"""

from typing import Any

import holdfast

KINDS = ("billing", "bug", "question")


@holdfast.strategy
async def triage(ctx: holdfast.Context) -> dict[str, Any]:
    """Classify, draft, approve."""
    said = await ctx.llm(f"Which of {', '.join(KINDS)} is this ticket? One word.\n\n{ctx.task}", max_tokens=5)
    kind = next((each for each in KINDS if each in said.lower()), "question")
    ctx.log(f"the ticket is a {kind}")
    drafts = await ctx.llm_batch([f"Draft a {tone} reply to this {kind}:\n\n{ctx.task}" for tone in ("short", "warm")])
    choice = await ctx.ask(f"1: {drafts[0]}\n\n2: {drafts[1]}\n\nWhich one to send?", choices=["1", "2", "neither"])
    return {"kind": kind, "reply": None if choice == "neither" else drafts[int(choice) - 1]}
