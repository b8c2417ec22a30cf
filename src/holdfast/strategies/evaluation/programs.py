"""The programs of an evaluation's own sessions: the evaluation itself, a bare model, a judge, and a person who grades.

They are native strategies: importing this module registers them, so that any process that may take over such sessions
can continue them.
"""

from __future__ import annotations

from holdfast.core.values import Json
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.strategies.evaluation.graders.judges import ROLE

EVALUATION = "holdfast.evaluation"
"""The name of the program of evaluations."""

WORK = "evaluation.work"
"""The tool that starts and grades trials: its driver is the dispatcher."""

PART = "evaluation.part"
"""The label of trials, judges and questions to people: lists of sessions show the evaluation instead of them."""

AWAITS_ORDERS = "evaluation"
"""The label of evaluations themselves: that they wait for an order is no question to anybody, and in no inbox."""

ORDER = "evaluation.order"
"""The tool that nobody drives: whoever wants more of an evaluation answers it."""


@strategy(name=EVALUATION, is_listed=False)
async def evaluation(ctx: Context) -> Json:
    """Do the work that was ordered, and wait for the next order."""
    orders: list[Json] = [{"do": "run"}]
    while True:
        try:
            outcome = await ctx.tool(WORK, orders=orders)
        except QueryFailedError as error:
            outcome = {"state": "failed", "why": str(error), "code": error.code}
        ctx.log(f"order {len(orders)}: {outcome.get('state')}")
        orders = [*orders, await ctx.tool(ORDER, orders=orders, last=outcome)]


@strategy(name="holdfast.model", is_listed=False)
async def ask_model(ctx: Context) -> Json:
    """Ask the model the task, and nothing else."""
    options = {key: value for key, value in ctx.data.items() if key != "task"} if isinstance(ctx.data, dict) else {}
    return await ctx.llm(ctx.task, **options)


@strategy(name="holdfast.judge", is_listed=False)
async def ask_judge(ctx: Context) -> Json:
    """Ask the judge each prompt; the result is the list of its replies."""
    prompts = ctx.get("prompts")
    assert isinstance(prompts, list)
    return await ctx.llm_batch([str(prompt) for prompt in prompts], role=ROLE)


@strategy(name="holdfast.person", is_listed=False)
async def ask_person(ctx: Context) -> Json:
    """Ask a person; the result is what they said."""
    return await ctx.ask(str(ctx.get("question")))
