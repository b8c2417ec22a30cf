"""Self-consistency: solve the task several times by independent reasoning, and let the answers vote.

Use it when the answer is short and can be compared with others: a number, a name, a choice, a yes or no. Right answers
are reached in many ways, wrong ones differ, so the most frequent answer is more often right than any single one. Do not
use it for texts, of which no two are the same: `best_of_n` and `panel` are for those.

It costs one call a sample (`samples`, 5 by default), all of them in one pause.
"""

import re

META = {
    "name": "self_consistency",
    "category": "sampling",
    "description": "Reason several times independently; the most frequent answer wins.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to work out; its answer should be short."},
        "samples": {"type": "int", "default": 5, "min": 1, "max": 50, "description": "How often to solve it."},
        "temperature": {
            "type": "float",
            "default": 0.7,
            "min": 0,
            "max": 2,
            "description": "How freely the model samples; at 0 the samples may all be the same.",
        },
    },
    "calls": "samples",
    "result": "the answer with the most votes, a text",
    "paper": {
        "title": "Self-Consistency Improves Chain of Thought Reasoning in Language Models",
        "authors": "Wang et al.",
        "year": 2022,
        "url": "https://arxiv.org/abs/2203.11171",
    },
    "script": [
        {"when": "Reason step by step", "answer": "There are 3 boxes of 4 eggs each, so 3 times 4.\nANSWER: 12"},
    ],
}


WAYS = [
    "Take the way that seems most direct to you.",
    "Begin from what is asked for, and work backwards.",
    "Write down what is given and what follows from it before you decide.",
    "Consider a simpler case first, or an estimate, then the task itself.",
    "Doubt your first idea: look for another way, and compare.",
]


def conclusion(path):
    """What a path of reasoning comes to: what its last ANSWER mark says, else its last line."""
    marked = re.findall(r"answer[ \t*_]*:[ \t*_]*([^\n]*)", path, re.IGNORECASE)
    lines = [line for line in path.splitlines() if not re.fullmatch(r"\W*(?:answer\W*)?", line, re.IGNORECASE)]
    stated = marked[-1] if marked and marked[-1].strip() else lines[-1] if lines else ""
    return stated.strip(" \t*_`")


def plain(answer):
    """An answer as it is compared: `12.` and `**12**` are one vote, and so are `Paris` and `paris`."""
    return " ".join(answer.casefold().strip(" .!\"'$`*_()").split())


def run(ctx):
    p = parameters(META, ctx)
    prompt = (
        f"Task:\n{p['task']}\n\nReason step by step. Then state the final answer, as short as possible, "
        'on a last line of its own that begins with "ANSWER:".'
    )
    # Samples must be independent, and able to differ. A temperature does that; where none can be set, as in an MCP
    # host, the prompts have to.
    asked = [f"{prompt}\n\n{WAYS[number % len(WAYS)]}" for number in range(p["samples"])]
    came = llm_each(asked, role="reason", temperature=p["temperature"])
    paths = [path.strip() for path in came if path is not None]

    votes = {}
    for answer in [conclusion(path) for path in paths]:
        # A sample without an answer does not vote.
        if plain(answer):
            ballot = votes.setdefault(plain(answer), {"answer": answer, "count": 0})
            ballot["count"] += 1
    ranked = sorted(votes.values(), key=lambda ballot: -ballot["count"])

    ctx["paths"] = paths
    ctx["votes"] = ranked
    ctx["agreement"] = ranked[0]["count"] / p["samples"] if ranked else 0.0
    ctx["result"] = ranked[0]["answer"] if ranked else ""
    stats.record("agreement", ctx["agreement"])
    return ctx
