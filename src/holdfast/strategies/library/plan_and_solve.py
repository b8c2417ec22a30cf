"""Plan and solve: make a plan first, carry it out step by step, then state the answer alone.

Use it for tasks of several steps where plain chain of thought leaves steps out: word problems, schedules, procedures.
For one-step questions `cot` does as well for less; for tasks whose parts are tasks of their own, use `least_to_most`.

It costs three calls, one after the other. Without a plan it solves the task step by step; where the answer cannot be
had alone, the worked solution is the result.
"""

META = {
    "name": "plan_and_solve",
    "category": "reasoning",
    "description": "Devise a plan, carry it out step by step, state the answer.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to solve."},
        "steps": {"type": "int", "default": 0, "min": 0, "max": 50, "description": "Most steps of the plan; 0: any."},
        "careful": {
            "type": "bool",
            "default": True,
            "description": "Also ask for the quantities given, and for every intermediate result (PS+ in the paper).",
        },
    },
    "calls": "3",
    "result": "the answer, a text",
    "paper": {
        "title": "Plan-and-Solve Prompting: Improving Zero-Shot Chain-of-Thought Reasoning by Large Language Models",
        "authors": "Wang et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2305.04091",
    },
    "script": [
        {"when": "Devise a plan", "answer": "1. Count the boxes.\n2. Multiply by what is in each."},
        {"when": "Work through", "answer": "1. There are 3 boxes.\n2. 3 * 4 = 12."},
        {"when": "State only the final answer", "answer": "12"},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    limit = f" in at most {p['steps']} steps" if p["steps"] else ""
    given = "First list what is given, with figures and units, and what is asked for. " if p["careful"] else ""
    plan = llm_safe(
        f"{task}\n\n{given}Devise a plan{limit}, one numbered step a line. Do not carry it out yet.",
        role="plan",
    ).strip()
    course = f"\n\nPlan:\n{plan}" if plan else ""
    what = "the plan" if plan else "the task"
    checks = " Write down every intermediate result, and check each calculation." if p["careful"] else ""
    solution = llm(
        f"{task}{course}\n\nWork through {what} step by step, leaving nothing out.{checks}",
        role="solve",
    ).strip()
    answer = llm_safe(
        f"{task}\n\nWorked solution:\n{solution}\n\nState only the final answer, without explanation.",
        role="answer",
    ).strip()
    ctx["plan"] = plan
    ctx["solution"] = solution
    ctx["result"] = answer or solution
    return ctx
