"""Step back: ask the more general question first, answer that one, and reason about the task from there.

Use it where a task is easier once the principle behind it is on the table: physics, law, history, policy, anything
whose details distract. Not for tasks that have no such principle (looking something up, plain arithmetic): there the
general question leads away from the task.

It costs three calls, one after the other. If the general question or its answer fails, it continues without them.
"""

META = {
    "name": "step_back",
    "category": "reasoning",
    "description": "Answer the more general question behind the task, then the task from those principles.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to answer."},
    },
    "calls": "3",
    "result": "the answer with its reasoning, a text",
    "paper": {
        "title": "Take a Step Back: Evoking Reasoning via Abstraction in Large Language Models",
        "authors": "Zheng et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2310.06117",
    },
    "script": [
        {"when": "one step more general", "answer": "How are things counted that come in equal groups?"},
        {"when": "State the facts and principles", "answer": "Groups of equal size are multiplied."},
        {"when": "Answer the task", "answer": "There are 3 groups of 4, so 12."},
    ],
}

FALLBACK = "Which facts and principles does a task like this rest on?"


def run(ctx):
    p = parameters(META, ctx)
    question = llm_safe(
        f"Task:\n{p['task']}\n\nWhich question, one step more general, is behind this task? It asks for the concept, "
        "law or history that the task is a case of. Write only that question.",
        role="abstract",
    ).strip()
    question = question or FALLBACK
    principles = llm_safe(
        f"Task, for context only:\n{p['task']}\n\nQuestion:\n{question}\n\n"
        "Answer the question, not the task. State the facts and principles briefly, one a line.",
        role="principles",
    ).strip()
    known = f"\n\nWhat is known in general ({question}):\n{principles}" if principles else ""
    start = "Reason step by step from what is known in general" if principles else "Reason step by step"
    answer = llm(
        f"Task:\n{p['task']}{known}\n\nAnswer the task. {start}, and end with the answer itself.",
        role="answer",
    ).strip()
    ctx["step_back_question"] = question
    ctx["principles"] = principles
    ctx["result"] = answer
    return ctx
