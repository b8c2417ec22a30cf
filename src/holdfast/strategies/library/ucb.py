"""UCB1 exploration: propose approaches to the task, and spend a number of attempts on those that promise most.

Use it when there are several ways to do something, it is not clear which is best, and attempts can be judged: prompts,
slogans, algorithms, proofs. Each approach is tried once; then the next attempt goes to the one with the highest upper
confidence bound: mean score (0 to 1) + exploration * sqrt(ln(attempts) / attempts of it). So good approaches get more
attempts, and none is given up for one bad attempt. Do not use it if one approach is known to be right: `best_of_n` is
simpler.

It costs one call for the proposals and two an attempt, one to make it and one to judge it (`pulls`, 8 by default: 17
calls at most). The first attempts of all approaches are one pause, and their judgements another.
"""

import math
import re

META = {
    "name": "ucb",
    "category": "search",
    "description": "Explore several approaches; the more promising get more attempts (UCB1).",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to work out."},
        "arms": {"type": "int", "default": 4, "min": 1, "max": 20, "description": "How many approaches to propose."},
        "pulls": {
            "type": "int",
            "default": 8,
            "min": 1,
            "max": 200,
            "description": "How many attempts to make in all.",
        },
        "exploration": {
            "type": "float",
            "default": 1.414,
            "min": 0,
            "max": 10,
            "description": "Weight of what is uncertain; 0 always takes the approach with the best mean.",
        },
        "criteria": {
            "type": "str",
            "default": "How well it does what the task asks.",
            "description": "What attempts are judged by.",
        },
    },
    "calls": "1 + 2 * pulls",
    "result": "the attempt with the highest score, a text",
    "paper": {
        "title": "Finite-time Analysis of the Multiarmed Bandit Problem",
        "authors": "Auer et al.",
        "year": 2002,
        "url": "https://doi.org/10.1023/A:1013689704352",
    },
    "script": [
        {
            "when": "Propose",
            "answer": "1. Name what it saves\n2. Make it rhyme\n3. Ask a question\n4. Say what is lost without it",
        },
        {"when": "Judge the attempt", "answer": "It is short and says what it is for.\nSCORE: 7"},
        {"when": "Follow this approach", "answer": "Sleep well: your sessions do."},
    ],
}


def mean(arm):
    return sum(arm["scores"]) / len(arm["scores"])


def bound(arm, attempts, exploration):
    """The upper confidence bound of an approach, whose scores are taken to lie between 0 and 1."""
    return mean(arm) / 10 + exploration * math.sqrt(math.log(attempts) / len(arm["scores"]))


def to_attempt(p, arm):
    return (
        f"Task:\n{p['task']}\n\nFollow this approach:\n{arm['approach']}\n\nThis is attempt {len(arm['scores']) + 1} "
        "along it; begin afresh. Answer with the work itself, without remarks on it."
    )


def score_of(judgement):
    """From 1 to 10: what the last SCORE mark says, else the first number; the middle if the judge says none."""
    marked = re.findall(r"score\W*(\d{1,6}(?:\.\d+)?)", judgement, re.IGNORECASE)
    return min(10.0, max(1.0, float(marked[-1]))) if marked else float(parse_score(judgement))


def judged(p, arms, made):
    """What was made along each of these approaches, and its score: 0 for what is empty or failed, 1 for what could not
    be judged."""
    texts = [(text or "").strip() for text in made]
    questions = [
        f"Task:\n{p['task']}\n\nAttempt:\n{text}\n\nCriteria:\n{p['criteria']}\n\nJudge the attempt by the criteria "
        'in one sentence. End with a line "SCORE: n", n from 1 (useless) to 10 (could not be better).'
        for text in texts
        if text
    ]
    try:
        said = llm_each(questions, role="judge")
    except (RuntimeError, TimeoutError) as error:
        log(f"ucb: nothing could be judged: {error}", "warn")
        said = [None for _ in questions]
    scores = [1.0 if judgement is None else score_of(judgement) for judgement in said]
    attempts = []
    for arm, text in zip(arms, texts, strict=True):
        score = scores.pop(0) if text else 0.0
        arm["scores"].append(score)
        attempts.append({"attempt": text, "score": score, "approach": arm["approach"]})
    return attempts


def run(ctx):
    p = parameters(META, ctx)
    answer = llm(
        f"Task:\n{p['task']}\n\nPropose {p['arms']} approaches to this task that differ as much as possible. Do not "
        "carry them out. One approach a line, numbered, each a short phrase.",
        role="plan",
    )
    approaches = list_items(answer, p["arms"])
    if not approaches:
        log("ucb: no approach could be read; the task is attempted directly", "warn")
    arms = [{"approach": each, "scores": []} for each in approaches or ["Do it in the most direct way."]]

    first = arms[: p["pulls"]]
    attempts = judged(p, first, llm_each([to_attempt(p, arm) for arm in first], role="attempt"))
    while len(attempts) < p["pulls"] and budget_check():
        progress(len(attempts), p["pulls"], "exploring")
        bounds = [bound(arm, len(attempts), p["exploration"]) for arm in arms]
        arm = arms[bounds.index(max(bounds))]
        attempts += judged(p, [arm], [llm_safe(to_attempt(p, arm), role="attempt")])

    best = max(attempts, key=lambda each: each["score"])
    ctx["approaches"] = [
        {"approach": arm["approach"], "pulls": len(arm["scores"]), "mean": mean(arm)} for arm in arms if arm["scores"]
    ]
    ctx["best"] = {"approach": best["approach"], "score": best["score"]}
    ctx["result"] = best["attempt"]
    stats.record("best_score", best["score"])
    return ctx
