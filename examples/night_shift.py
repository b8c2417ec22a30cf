"""A night shift: an event starts a strategy, a schedule starts a turn, and both run in the background. Needs no key.

python examples/night_shift.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import holdfast
from holdfast.agent.processes.processes import strategy
from holdfast.agent.triggers.terms import EventSource
from holdfast.testing import ScriptedProvider


@holdfast.strategy
async def check_stock(ctx: holdfast.Context) -> str:
    """Work one delivery."""
    return f"{ctx['payload']['crates']} crates are in {ctx['key']}"


async def first_run(runtime: holdfast.Runtime, schedule: str) -> str:
    """The process of the first run of a schedule, once it has started."""
    while True:
        if runs := await runtime.triggers.history(schedule):
            return runs[0].process
        await asyncio.sleep(0.1)


async def main() -> None:
    model = ScriptedProvider(["All quiet. One delivery was checked."])
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'shift.db'}"
        async with holdfast.Runtime(url, provider=model) as runtime, runtime.work():
            night = await runtime.session("night-shift").open()
            await runtime.triggers.declare("delivery")
            await runtime.triggers.register("stock", EventSource(type="delivery"), strategy(check_stock))
            receipt = await runtime.triggers.emit("delivery", "hall 3", {"crates": 12}, idempotency_key="truck-7")
            await runtime.processes.wait(receipt.occurrence)
            for process in receipt.processes.values():
                print("event:   ", (await runtime.processes.wait(process)).result)

            await night.triggers().schedule("report", "Write the report of the night.", at=time.time() + 0.5)
            print("schedule:", (await runtime.processes.wait(await first_run(runtime, "report"))).result)
            for handle in await runtime.processes.list(every=True):
                print(f"  {handle.status:<10} {handle.work:<9} {handle.title}")


if __name__ == "__main__":
    asyncio.run(main())
