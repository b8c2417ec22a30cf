"""FActScore: split a text into atomic facts, judge each on its own, and score the text by the share that is supported.

Use it to measure how far a text can be trusted, and to see which of its claims cannot: biographies, summaries, reports.
Give a `source` to judge by, or let the host look things up (`grounded`); without either, the model judges from memory,
which is no better than its memory. Not for opinions, plans or code: they are not made of facts.

It costs one call to split the text, and one for each fact (at most `facts`), all in one pause. A judgement that says
neither yes nor no counts as not supported; a fact whose question failed is left out of the score.
"""

import re

META = {
    "name": "fact_score",
    "category": "verification",
    "description": "Split a text into atomic facts, judge each, and score it by the share that is supported.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "The text to score."},
        "topic": {"type": "str", "default": "", "description": "What the text is about, where it does not say so."},
        "source": {"type": "str", "default": "", "description": "What to judge by; empty: what the model knows."},
        "grounded": {"type": "bool", "default": False, "description": "Have the host look facts up before it judges."},
        "facts": {"type": "int", "default": 30, "min": 1, "max": 500, "description": "Most facts to judge."},
    },
    "calls": "1 + facts",
    "result": "{score: 0 to 1 or null, supported, total}; each fact with its judgement is in `judged`",
    "paper": {
        "title": "FActScore: Fine-grained Atomic Evaluation of Factual Precision in Long Form Text Generation",
        "authors": "Min et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2305.14251",
    },
    "script": [
        {"when": "Split the text", "answer": "- Ada was born in 1815.\n- Ada was a poet.\n- Ada wrote on an engine."},
        {"when": "Ada was a poet.", "answer": "She was a mathematician.\nNo"},
        {"when": "Fact:", "answer": "That is well known.\nYes"},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    about = f"Topic: {p['topic']}\n\n" if p["topic"] else ""
    split = llm_safe(
        f"{about}Text:\n{p['task']}\n\nSplit the text into atomic facts: short sentences that each state one thing and "
        "can be understood alone, with names instead of pronouns. Leave opinions out. One a line, each after '- '.",
        role="split",
    )
    found = distinct(list_items(split) or re.split(r"(?<=[.!?])\s+", p["task"]))
    if len(found) > p["facts"]:
        log(f"fact_score: {len(found)} facts, of which the first {p['facts']} are judged", "warn")
    facts = found[: p["facts"]]
    source = f"Source:\n{p['source']}\n\n" if p["source"] else ""
    question = "Does the source support this fact?" if source else "Is this fact true?"
    prompts = [
        f"{source}{about}Fact:\n{fact}\n\n{question} Say why in one sentence. Then, in a line of its own, only Yes or "
        "No; No, if it cannot be known."
        for fact in facts
    ]
    answers = [answer and answer.strip() for answer in llm_each(prompts, grounded=p["grounded"], role="judge")]
    judged = [
        {"fact": fact, "supported": None if answer is None else match_bool(answer) is True, "why": answer}
        for fact, answer in zip(facts, answers, strict=True)
    ]
    total = len([each for each in judged if each["supported"] is not None])
    supported = len([each for each in judged if each["supported"]])
    score = supported / total if total else None
    ctx["judged"] = judged
    ctx["result"] = {"score": score, "supported": supported, "total": total}
    stats.record("fact_score", score)
    stats.record("facts", total)
    return ctx


def distinct(lines):
    """The facts, each once, however it is written."""
    found = {}
    for line in lines:
        if line.strip():
            found.setdefault(fingerprint(line), line.strip())
    return list(found.values())
