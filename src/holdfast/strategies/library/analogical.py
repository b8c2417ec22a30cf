"""Analogical prompting: have the model recall problems like the task and how they are solved, then solve the task.

Use it where worked examples would help and there are none at hand: mathematics, code, puzzles of a known sort. The
model makes its own, so it only knows what it knows: for tasks of a sort it has never seen, real examples in the task
do more. With `knowledge` it writes down the core concepts first, which helps with code and harder mathematics.

It costs two calls, one after the other; three with `knowledge`. Where examples cannot be had, it solves without.
"""

import re

META = {
    "name": "analogical",
    "category": "reasoning",
    "description": "Recall similar problems with their solutions, then solve the task by analogy.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to solve."},
        "examples": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "Problems to recall."},
        "knowledge": {"type": "bool", "default": False, "description": "Write down the core concepts first."},
    },
    "calls": "2 + knowledge",
    "result": "the answer, a text",
    "paper": {
        "title": "Large Language Models as Analogical Reasoners",
        "authors": "Yasunaga et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2310.01714",
    },
    "script": [
        {"when": "Recall", "answer": "1. Two bags of five apples: 2 * 5 = 10.\n2. Six rows of two: 6 * 2 = 12."},
        {"when": "Solve the task", "answer": "As with the bags: 3 * 4 = 12.\nAnswer: 12"},
        {"when": "core concepts", "answer": "Equal groups are multiplied."},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    concepts = ""
    if p["knowledge"]:
        said = llm_safe(f"{task}\n\nName the core concepts the task rests on. Explain each briefly.", role="knowledge")
        concepts = said.strip()
    known = f"\n\nCore concepts:\n{concepts}" if concepts else ""
    problems = "one problem" if p["examples"] == 1 else f"{p['examples']} problems, different from each other,"
    recalled = llm_safe(
        f"{task}{known}\n\nRecall {problems} of the same sort as the task, but not the task itself. "
        "For each: the problem, and its solution step by step.",
        role="recall",
    ).strip()
    seen = f"\n\nSimilar problems:\n{recalled}" if recalled else ""
    how = "as the similar problems were solved" if recalled else "step by step"
    solution = llm(
        f"{task}{known}{seen}\n\nSolve the task {how}. End with a line of its own:\nAnswer: …",
        role="solve",
    ).strip()
    ctx["concepts"] = concepts
    ctx["recalled"] = recalled
    ctx["solution"] = solution
    ctx["result"] = answer_in(solution)
    return ctx


def answer_in(text):
    """What stands after the last `Answer:`; all of the text if nothing does."""
    marks = list(re.finditer(r"(?im)^[ *#>]*(?:final +)?answer[ *]*:[ *]*", text))
    return (text[marks[-1].end() :].strip() if marks else "") or text
