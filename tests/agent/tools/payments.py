"""A process that pays by HTTP, once: run as `python paying.py STORE SERVER`. It may be killed while it does."""

from __future__ import annotations

import asyncio
import sys

from holdfast import Context, strategy
from holdfast.agent.tools import http_tool
from holdfast.agent.tools.runner import ToolRunner
from holdfast.core.values import Json
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import HANG_S

SESSION = "payment"
LEASE_MS = 300


@strategy(name="tools-pays")
async def pays(ctx: Context) -> Json:
    return await ctx.tool("pay", amount=3)


async def main(store: str, server: str) -> None:
    pay = http_tool("pay", f"{server}/pay", description="Pay.")
    async with open_holdfast(store, lease_ms=LEASE_MS, upkeep=Upkeep()) as hf:
        ToolRunner().drive(hf, pay)
        if not (await hf.sessions()).rows:
            await hf.start(pays, id=SESSION, wait=0)
        print(await hf.result(SESSION, timeout=HANG_S), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
