"""Chain of thought: let the model think step by step, then ask it for the answer alone.

Use it when a task needs several steps of reasoning and one good pass is enough; it is the cheapest strategy of the
library. It costs two calls: one for the reasoning, one that takes the answer out of it. For tasks whose answers can be
compared, `self_consistency` does the same several times and lets the answers vote.
"""

META = {
    "name": "cot",
    "category": "reasoning",
    "description": "Reason step by step, then state the answer alone.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to work out."},
        "steps": {"type": "int", "default": 0, "min": 0, "max": 50, "description": "How many steps to ask for; 0: any"},
    },
    "calls": "2",
    "result": "the answer, a text",
    "paper": {
        "title": "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models",
        "authors": "Wei et al.",
        "year": 2022,
        "url": "https://arxiv.org/abs/2201.11903",
    },
    "script": [
        {"when": "Reason step by step", "answer": "1. There are 3 boxes of 4.\n2. That is 12."},
        {"when": "State only the final answer", "answer": "12"},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    steps = f" in {p['steps']} numbered steps" if p["steps"] else ""
    reasoning = llm(f"Task:\n{p['task']}\n\nReason step by step{steps}. Do not skip steps.", role="reason").strip()
    answer = llm(
        f"Task:\n{p['task']}\n\nReasoning:\n{reasoning}\n\nState only the final answer, without explanation.",
        role="answer",
    ).strip()
    ctx["reasoning"] = reasoning
    ctx["result"] = answer or reasoning
    return ctx
