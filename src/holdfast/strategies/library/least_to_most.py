"""Least to most: decompose the task into simpler problems, solve them one after the other, each with all before it.

Use it for tasks that are harder than any example of their kind: many steps, rules that are combined, questions inside
questions. As each problem is asked with the solutions of the easier ones, none is a large step. Do not use it where the
parts are independent, `map_reduce` and `skeleton_of_thought` do those in parallel, nor where `cot` gets there.

It costs one call to decompose, one a problem (`subproblems`, 5 by default) and one for the task itself: 7 calls at
most, one pause each, as every problem builds on those before.
"""

META = {
    "name": "least_to_most",
    "category": "reasoning",
    "description": "Decompose the task, and solve from the easiest part to the whole.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to work out."},
        "subproblems": {"type": "int", "default": 5, "min": 1, "max": 20, "description": "Simpler problems, at most."},
    },
    "calls": "2 + subproblems",
    "result": "the answer to the task, a text",
    "paper": {
        "title": "Least-to-Most Prompting Enables Complex Reasoning in Large Language Models",
        "authors": "Zhou et al.",
        "year": 2022,
        "url": "https://arxiv.org/abs/2205.10625",
    },
    "script": [
        {
            "when": "Decompose the task",
            "answer": (
                "1. How long does one trip up take?\n2. How long does one slide down take?\n3. How long is one turn?\n"
                "4. How many minutes are left?\n5. How many turns fit into them?"
            ),
        },
        {"when": "Solve this problem", "answer": "It takes 5 minutes."},
        {"when": "Now solve the task", "answer": "She can slide three times."},
    ],
}


def solved_so_far(solved):
    """What is known so far, as part of a prompt."""
    lines = [f"Problem: {each['problem']}\nSolution: {each['solution']}" for each in solved]
    return "\n\nSolved so far:\n" + "\n\n".join(lines) if lines else ""


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    plan = llm(
        f"{task}\n\nDecompose the task into simpler problems, at most {p['subproblems']}, the easiest first, so that "
        "each can be solved with the solutions of those before it, and the task with all of them. Do not solve them. "
        "One problem a line, numbered.",
        role="plan",
    )
    problems = list_items(plan, p["subproblems"])
    if not problems:
        log("least_to_most: no problems could be read; the task is solved as it is", "warn")

    solved = []
    failure = None
    for number, problem in enumerate(problems, 1):
        progress(number, len(problems), problem)
        try:
            solution = llm(
                f"{task}{solved_so_far(solved)}\n\nSolve this problem, and only this:\n{problem}", role="solve"
            ).strip()
        except (RuntimeError, TimeoutError) as error:
            log(f"least_to_most: problem {number} is left out: {error}", "warn")
            failure = error
            continue
        if solution:
            solved.append({"problem": problem, "solution": solution})
    if failure is not None and not solved:
        raise failure

    answer = llm(f"{task}{solved_so_far(solved)}\n\nNow solve the task. State the answer last.", role="answer").strip()
    ctx["solved"] = solved
    ctx["result"] = answer or (solved[-1]["solution"] if solved else "")
    stats.record("solved", len(solved))
    return ctx
