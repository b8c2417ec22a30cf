"""Best of n: write several candidates, have each verified on its own, and keep the one with the best score.

Use it where an answer is easier to check than to get right at once (sums, code, plans, proofs), and where candidates
cannot simply be counted because no two read the same. Where they can, `self_consistency` is cheaper: it needs no
verifier. Not worth it where the verifier knows no better than whoever answers: then it rewards what sounds good.

It costs `n` calls in one pause and one more for each different candidate in a second one: at most twice `n`. Where no
score can be had, the candidate that was written most often wins.
"""

import re

META = {
    "name": "best_of_n",
    "category": "sampling",
    "description": "Write n candidates at once, score each with a verifier, keep the best.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to solve."},
        "n": {"type": "int", "default": 4, "min": 1, "max": 50, "description": "How many candidates."},
        "criteria": {
            "type": "str",
            "default": "Is it correct and complete?",
            "description": "What the verifier looks at.",
        },
    },
    "calls": "2 * n",
    "result": "the best candidate, a text",
    "paper": {
        "title": "Training Verifiers to Solve Math Word Problems",
        "authors": "Cobbe et al.",
        "year": 2021,
        "url": "https://arxiv.org/abs/2110.14168",
    },
    "script": [
        {"when": "Candidate 1 of", "answer": "3 + 4 = 7"},
        {"when": "Candidate 2 of", "answer": "3 * 4 = 12"},
        {"when": "Candidate 3 of", "answer": "4 + 4 + 4 = 12"},
        {"when": "Candidate 4 of", "answer": "It cannot be known."},
        {"when": "3 + 4 = 7", "answer": "Boxes are multiplied, not added.\nScore: 5"},
        {"when": "3 * 4 = 12", "answer": "Right.\nScore: 95"},
        {"when": "4 + 4 + 4 = 12", "answer": "Right, if clumsy.\nScore: 90"},
        {"when": "It cannot be known.", "answer": "It can.\nScore: 0"},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    progress(1, 2, f"{p['n']} candidates")
    written = llm_each([to_write(p, number + 1) for number in range(p["n"])], role="candidate")
    candidates = distinct([text.strip() for text in written if text and text.strip()])
    progress(2, 2, f"{len(candidates)} different ones to verify")
    for candidate, verdict in zip(candidates, verdicts_on(p, candidates), strict=True):
        candidate["score"] = score_in(verdict)
        candidate["verdict"] = verdict
    ctx["scored"] = candidates
    best = best_of(candidates)
    ctx["score"] = best["score"] if best else None
    ctx["result"] = best["answer"] if best else ""
    stats.record("best_score", ctx["score"])
    stats.record("different", len(candidates))
    return ctx


def to_write(p, number):
    return f"Task:\n{p['task']}\n\nCandidate {number} of {p['n']}: solve the task on your own and show how."


def verdicts_on(p, candidates):
    """What the verifier says about each candidate, empty where it failed."""
    prompts = [
        f"Task:\n{p['task']}\n\nProposed solution:\n{each['answer']}\n\n"
        f"Check the proposed solution step by step; do not trust it. {p['criteria']}\n"
        "End with a line of its own, 0 for certainly wrong to 100 for certainly right:\nScore: …"
        for each in candidates
    ]
    try:
        return [(verdict or "").strip() for verdict in llm_each(prompts, role="verify")]
    except (RuntimeError, TimeoutError) as error:
        log(f"best_of_n: no candidate could be verified: {error}", "warn")
        return ["" for _ in candidates]


def distinct(texts):
    """The candidates, each once, with how often it was written."""
    found = {}
    for text in texts:
        found.setdefault(fingerprint(text), []).append(text)
    return [{"answer": same[0], "count": len(same), "score": None, "verdict": ""} for same in found.values()]


def score_in(verdict):
    """The last score that is stated, from 0 to 100; None if there is none."""
    stated = r"(?i)score(?: *\([^)\n]*\))?[^0-9\n-]*(-?[0-9]+(?:\.[0-9]+)?) *((?:/|out of) *10\b)?"
    found = re.findall(stated, verdict)
    if not found:
        return None
    figure, of_ten = found[-1]
    return min(100.0, max(0.0, float(figure) * (10 if of_ten else 1)))


def best_of(candidates):
    """The best score wins; of equal ones what was written most often, then first. Without a score comes last."""
    best = None
    for each in candidates:
        if best is None or rank(each) > rank(best):
            best = each
    return best


def rank(candidate):
    return (-1 if candidate["score"] is None else candidate["score"], candidate["count"])
