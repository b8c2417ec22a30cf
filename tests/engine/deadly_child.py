"""A process of `test_deadly_tools`: it drives a tool that ends its process, and waits for the session that calls it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import holdfast
from holdfast import Context
from holdfast.engine.errors import SessionFailedError


@holdfast.strategy(name="deadly-caller")
async def caller(ctx: Context) -> Any:
    return await ctx.tool("deadly")


async def main(url: str, recovery: Any, options: dict[str, Any]) -> None:
    async def deadly() -> None:
        os._exit(9)

    async with holdfast.open(url, lease_ms=300, **options) as hf:
        hf.drive("deadly", deadly, recovery=recovery)
        if not (await hf.sessions()).rows:
            await hf.start(caller, id="s")
        try:
            await hf.result("s")
        except SessionFailedError as error:
            print(error)


asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
