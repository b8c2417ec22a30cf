"""Strategies that the tests of the HTTP API run."""

from __future__ import annotations

from holdfast import Context, strategy


@strategy(name="two_questions")
async def two_questions(ctx: Context) -> list[str]:
    """Asks a model, and then a person."""
    kind = await ctx.llm("Bug, wish or question?")
    approved = await ctx.ask("File it?", choices=["yes", "no"])
    return [kind, approved]


@strategy(name="is_a_child")
async def is_a_child(ctx: Context) -> str:
    """Asks a model on behalf of its parent."""
    return str(await ctx.llm("Well?"))


@strategy(name="has_a_child")
async def has_a_child(ctx: Context) -> str:
    """Leaves its question to a child."""
    return str(await ctx.child(is_a_child))


@strategy(name="echo_task")
async def echo(ctx: Context) -> str:
    """Gives back its task."""
    return ctx.task
