"""Calibrate: answer with a stated confidence, and spend more only where it is low.

Use it over many tasks of mixed difficulty: the easy ones cost one call, and only those the model doubts are given to
something costlier. That is a panel of fresh samples with a vote, or any other strategy by name (`strategy`, with its
parameters in `options`). Models state too much confidence rather than too little: keep the threshold high. Not for
open-ended writing, where neither a confidence nor a vote means much.

It costs one call, and `samples` more where it escalates; with a `strategy`, what that one costs instead. A confidence
that cannot be read counts as none. If the escalation fails, the first answer stands, and `escalation_failed` says why.
"""

import re

META = {
    "name": "calibrate",
    "category": "verification",
    "description": "Answer with a confidence; below a threshold, escalate to a vote of samples or to another strategy.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to answer."},
        "threshold": {
            "type": "float",
            "default": 0.8,
            "min": 0,
            "max": 1,
            "description": "Confidence from which the first answer is enough.",
        },
        "samples": {"type": "int", "default": 5, "min": 1, "max": 50, "description": "Answers of the panel."},
        "strategy": {"type": "str", "default": "", "description": "Strategy to escalate to; empty: the panel."},
        "options": {"type": "dict", "default": {}, "description": "Parameters of that strategy, beside the task."},
    },
    "calls": "1 + samples * (1 - min(1, len(strategy)))",
    "result": "the answer, a text; with `strategy`, whatever that one gives",
    "paper": {
        "title": "Can LLMs Express Their Uncertainty? An Empirical Evaluation of Confidence Elicitation in LLMs",
        "authors": "Xiong et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2306.13063",
    },
    "script": [
        {"when": "how sure you are", "answer": "Answer: 12\nConfidence: 55"},
        {"when": "Sample 2 of", "answer": "Four and three are seven.\nAnswer: 7"},
        {"when": "Sample", "answer": "Three boxes of four.\nAnswer: 12"},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    said = llm(
        f"Task:\n{p['task']}\n\nGive your best answer, then how sure you are that it is right, from 0 to 100. "
        "Write two lines and nothing else:\nAnswer: …\nConfidence: …",
        role="answer",
    )
    first, confidence = answer_in(said), confidence_in(said)
    ctx["first_answer"] = first
    ctx["confidence"] = confidence
    ctx["escalated"] = confidence < p["threshold"] or not first
    ctx["result"] = first
    stats.record("confidence", confidence)
    stats.record("escalated", ctx["escalated"])
    if not ctx["escalated"]:
        return ctx
    try:
        better = from_strategy(p) if p["strategy"] else from_panel(p, ctx)
    except (RuntimeError, TimeoutError) as error:
        if str(error).startswith("program_not_found:"):
            raise  # no bad luck, but a wrong parameter
        log(f"calibrate: the escalation failed, the first answer stands: {error}", "warn")
        ctx["escalation_failed"] = str(error)
        return ctx
    ctx["result"] = better or first
    return ctx


def answer_in(text):
    """What stands after the last `Answer:`, without the confidence; all of the text if nothing does."""
    kept = re.sub(r"(?i)[ ,;(*]*\bconfidence[ *]*(?:\([^)\n]*\))?[ *]*[:=][^\n]*", "", text)
    marks = list(re.finditer(r"(?im)^[ *#>]*(?:final +)?answer[ *]*:[ *]*", kept))
    return (kept[marks[-1].end() :].strip() if marks else "") or kept.strip()


def confidence_in(text):
    """The last confidence that is stated, from 0 to 1; 0 if there is none that can be."""
    stated = r"(?i)confidence(?: *\([^)\n]*\))?[^0-9\n]*([0-9]+(?:\.[0-9]+)?) *(%|(?:/|out of) *100?\b)?"
    found = re.findall(stated, text)
    if not found:
        return 0.0
    figure, unit = found[-1]
    number = float(figure)
    if unit.endswith("10"):
        number = number / 10
    elif unit or "." not in figure or number > 1:  # a lone 0.9 is a fraction, though a percentage was asked for
        number = number / 100
    return number if number <= 1 else 0.0


def from_strategy(p):
    left = child(p["strategy"], {**p["options"], "task": p["task"]})
    return left.get("result") if isinstance(left, dict) else left


def from_panel(p, ctx):
    prompts = [
        f"Task:\n{p['task']}\n\nSample {number + 1} of {p['samples']}: work it out afresh, step by step. "
        "End with a line of its own:\nAnswer: …"
        for number in range(p["samples"])
    ]
    said = [answer_in(text) for text in llm_each(prompts, role="sample") if text]
    answers = [answer for answer in said if answer]
    # Answers that differ only in case, blanks or a full stop are one.
    tally = vote([fingerprint(answer.rstrip(".")) for answer in answers])
    winners = [answer for answer in answers if fingerprint(answer.rstrip(".")) == tally["winner"]]
    winner = winners[0] if winners else ""
    ctx["votes"] = {"winner": winner, "count": tally["count"], "total": tally["total"]}
    stats.record("agreement", tally["count"] / tally["total"] if answers else 0.0)
    return winner
