"""A strategy that pays money back, tried in a simulation: crashes, a store in trouble, clocks that are wrong.

python examples/simulate_refunds.py
"""

from collections.abc import Iterator
from typing import Any

from holdfast import Holdfast, strategy
from holdfast.engine.drivers import Attempt
from holdfast.programs.errors import QueryFailedError
from holdfast.testing.simulation import Client, Evidence, Problem, Scenario, SimulatedProcess, check, simulate

ORDERS = ["order-1", "order-2", "order-3"]


@strategy(name="refunds")
async def refunds(ctx: Any) -> list[Any]:
    """Ask a person about each order, and pay it back if the person agrees; again if that fails."""
    agreed = [order for order in ctx["orders"] if await ctx.ask(f"Refund {order}?") == "yes"]
    return [await paid_back(ctx, order) for order in agreed]


async def paid_back(ctx: Any, order: str) -> Any:
    """Pay until the bank has answered; one that is out of order has done nothing."""
    while True:
        try:
            return await ctx.tool("pay_back", order=order)
        except QueryFailedError:
            await ctx.sleep(1)


class Refunds(Scenario):
    """Engines that pay, and a client who agrees to everything."""

    name = "refunds"
    clients = (1, 1)

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def pay_back(order: str, attempt: Attempt) -> Any:
            return await self.world.outside.perform(process, "idempotent", attempt)

        hf.drive("pay_back", pay_back, recovery="idempotent")

    async def drive(self, client: Client, number: int) -> None:
        await client.start(refunds, "r", {"orders": ORDERS})
        while not await client.has_ended("r"):
            for asked in await client.open_questions("r"):
                await client.feed(*asked, "yes")
            await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        payments = [each for each in run.world.outside.executions if each.happened_s is not None]
        if len(payments) != len(ORDERS):
            yield Problem("paid once", "r", f"{len(payments)} payments for {len(ORDERS)} orders")


if __name__ == "__main__":
    for seed in range(50):
        check(simulate(Refunds, seed))
    print("50 runs, and every order was paid back once")
