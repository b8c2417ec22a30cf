"""Tree of thoughts: build a solution step by step, keep the most promising beginnings, drop the others.

Use it for tasks in which an early step decides about everything after it, and a bad beginning can be told before the
end: puzzles, plans, plots, proofs. It searches breadth-first: each kept beginning gets several next steps, each of them
is rated, the best `beam` are continued. Do not use it where straight reasoning gets there: `cot` costs a tenth.

It costs 2 + branching + (depth - 1) * beam * (1 + branching) calls at most: 21 with the default depth 3, branching 3
and beam 2. The proposals of a level are one pause, and its ratings another.
"""

import re

META = {
    "name": "tree_of_thoughts",
    "category": "search",
    "description": "Search breadth-first through steps of reasoning; the best partial solutions are continued.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to work out."},
        "depth": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "How many steps a solution has."},
        "branching": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "Next steps of a beginning."},
        "beam": {"type": "int", "default": 2, "min": 1, "max": 10, "description": "How many beginnings are kept."},
    },
    "calls": "2 + branching + (depth - 1) * beam * (1 + branching)",
    "result": "the answer that follows from the best steps, a text",
    "paper": {
        "title": "Tree of Thoughts: Deliberate Problem Solving with Large Language Models",
        "authors": "Yao et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2305.10601",
    },
    "script": [
        {
            "when": "different next steps",
            "answer": "1. Take 4 and 6 first: 24\n2. Take 13 and 9 first: 4\n3. Take 10 and 4 first: 14",
        },
        {"when": "Rate how promising", "answer": "24 can still be reached.\nSCORE: 8"},
        {"when": "Carry out the steps", "answer": "(10 - 4) * (13 - 9) = 24"},
    ],
}


def score_of(rating):
    """From 1 to 10: what the last SCORE mark says, else the first number; the middle if there is none."""
    marked = re.findall(r"score\W*(\d{1,6}(?:\.\d+)?)", rating, re.IGNORECASE)
    return min(10.0, max(1.0, float(marked[-1]))) if marked else float(parse_score(rating))


def numbered(steps):
    return "\n".join([f"{number}. {step}" for number, step in enumerate(steps, 1)]) or "(none yet)"


def grown(p, kept, level):
    """The beginnings that are one step longer, the best first. Raises if all questions about them failed."""
    prompts = [
        f"Task:\n{p['task']}\n\nSteps so far:\n{numbered(state['steps'])}\n\nThis is step {level} of {p['depth']}. "
        f"Propose {p['branching']} different next steps. One step a line, numbered, each complete in itself."
        for state in kept
    ]
    proposed = llm_each(prompts, role="propose")
    longer = [
        state["steps"] + [step]
        for state, answer in zip(kept, proposed, strict=True)
        for step in list_items(answer or "", p["branching"])
    ]
    questions = [
        f"Task:\n{p['task']}\n\nSteps so far:\n{numbered(steps)}\n\nRate how promising these steps are: are they "
        'right, and can the task be solved from here? One sentence, then a last line "SCORE: n", n from 1 (hopeless) '
        "to 10 (certain)."
        for steps in longer
    ]
    # Steps whose rating failed are not given up, but come last.
    rated = ["1" if rating is None else rating for rating in llm_each(questions, role="judge")]
    states = [{"steps": steps, "score": score_of(rating)} for steps, rating in zip(longer, rated, strict=True)]
    return sorted(states, key=lambda state: -state["score"])


def run(ctx):
    p = parameters(META, ctx)
    kept = [{"steps": [], "score": 0.0}]
    levels = []
    for level in range(1, p["depth"] + 1):
        progress(level, p["depth"], f"level {level}")
        try:
            states = grown(p, kept, level)
        except (RuntimeError, TimeoutError) as error:
            if level == 1:
                raise
            log(f"tree_of_thoughts: all questions of a level failed: {error}", "warn")
            states = []
        if not states:
            log(f"tree_of_thoughts: there are no steps at level {level}; the search ends before it", "warn")
            break
        levels.append(states)
        kept = states[: p["beam"]]

    best = kept[0]
    answer = llm(
        f"Task:\n{p['task']}\n\nSteps:\n{numbered(best['steps'])}\n\nCarry out the steps, and state the answer that "
        "they lead to.",
        role="answer",
    )
    ctx["steps_taken"] = best["steps"]
    ctx["tree"] = levels
    ctx["result"] = answer.strip() or numbered(best["steps"])
    stats.record("best_score", best["score"])
    return ctx
