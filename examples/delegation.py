"""A writer that delegates: two subagents work at the same time, one of them with a typed result. Needs no key.

python examples/delegation.py
"""

from __future__ import annotations

import asyncio

import holdfast
from holdfast.agent.machine.messages import ToolResultBlock
from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing import ScriptedProvider, tool_call
from holdfast.testing.provider import ScriptStep

AGENTS = [
    holdfast.AgentDefinition(
        name="counter",
        description="Counts the words of a text.",
        instructions="Count words.",
        result={"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]},
    ),
    holdfast.AgentDefinition(
        name="critic",
        description="Says what is wrong with a text, in one sentence.",
        instructions="Be strict.",
        budget=holdfast.Budget(max_tokens=5_000),
    ),
]

TEXT = "The sea was angry that day"


def model(request: ModelRequest) -> ScriptStep:
    """Plays all three parts, told apart by their instructions."""
    if request.system == "Count words.":
        return tool_call("finish", words=len(TEXT.split()))
    if request.system == "Be strict.":
        return "Seas have no moods."
    results = [b.content for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)]
    if results:
        count, remark = results
        return f"{count['words']} words, and a remark: {remark}"
    return [
        tool_call("delegate", agent="counter", task="How many words?", seed={"text": TEXT}),
        tool_call("delegate", agent="critic", task="What is wrong with it?", seed={"text": TEXT}),
    ]


async def main() -> None:
    provider = ScriptedProvider([model], loop=True)
    async with holdfast.Runtime("memory:", provider=provider, model="writer", agents=AGENTS) as runtime:
        session = await runtime.session("draft").budget(max_llm_calls=20).open()
        result = await session.turn("Review my text.").run()
        print(result.text)
        for depth, node in (await session.tree()).walk():
            print(f"{'  ' * depth}{node.session_id}: {node.program}, {node.state}")


if __name__ == "__main__":
    asyncio.run(main())
