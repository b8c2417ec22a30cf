"""A support agent with a tool and a plugin, tried in a simulation: no amount above the limit is ever paid back.

python examples/simulate_support_agent.py
"""

from collections.abc import Iterator, Sequence
from typing import Any

import holdfast
from holdfast.agent.machine.messages import TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest
from holdfast.agent.tools import Tool
from holdfast.testing.simulation import AgentScenario, Client, Evidence, Problem, check, last_input, simulate

LIMIT = 100

ORDERS = {"order-1": 30, "order-2": 500, "order-3": 99}
"""The orders that customers want their money back for, with its amount."""


class Limit(holdfast.Plugin):
    """Refuses to pay back more than the limit, whatever the model thinks of it."""

    id = "limit"

    def before_tool(self, call: Any) -> Any:
        if call.tool == "pay_back" and call.arguments["amount"] > LIMIT:
            return holdfast.Deny(f"more than {LIMIT} needs a person")
        return None


class Support(AgentScenario):
    """An agent that customers write to."""

    def make_plugins(self) -> Sequence[holdfast.Plugin]:
        return [Limit()]

    def make_tools(self) -> Sequence[Any]:
        async def pay_back(order: str, amount: int, ctx: holdfast.ToolContext) -> str:
            """Pay an order back."""
            return str(await self.perform(ctx, "idempotent", lambda _: f"{amount} for {order}"))

        return [Tool.of(pay_back, recovery="idempotent")]

    def reply(self, request: ModelRequest) -> ModelReply:
        """The model calls the tool once for each input, and then says what came of it."""
        last, order = last_input(request)
        results = [b for m in request.messages[last:] for b in m.content if isinstance(b, ToolResultBlock)]
        if not results:
            call = ToolUseBlock(f"call-{order}", "pay_back", {"order": order, "amount": ORDERS[order]})
            return ModelReply(content=[call], stop="tool_use")
        return ModelReply(content=[TextBlock(f"{order}: {'sorry' if results[-1].is_error else 'paid'}")])

    async def talk(self, client: Client, runtime: holdfast.Runtime, number: int) -> None:
        """Each client sends all orders, with the same ids: each of them is worked once."""
        session = await client.insist(runtime.session("support").open)
        for order in ORDERS:
            await client.insist(session.enqueue(order).id(order).send)
        for order in ORDERS:
            while not (await client.insist(lambda order=order: session.outcome(order))).is_settled:  # type: ignore[misc]
                await client.rest()

    def problems(self, run: Evidence) -> Iterator[Problem]:
        paid = [str(each.value) for each in run.world.outside.executions if each.happened_s is not None]
        allowed = {f"{amount} for {order}" for order, amount in ORDERS.items() if amount <= LIMIT}
        if len(set(paid)) < len(paid) or not set(paid) <= allowed:
            yield Problem("paid right", "support", f"paid back: {paid}")


def main() -> None:
    for seed in range(10):
        check(simulate(Support, seed))
    print("10 runs, and nothing was paid twice or above the limit")


if __name__ == "__main__":
    main()
