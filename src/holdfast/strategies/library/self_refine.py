"""Self-refine: write a draft, criticise it, revise it, until the criticism finds nothing or the rounds are spent.

Use it for texts, code and plans, where a first attempt can be improved and faults are easier to see than to avoid. Do
not use it where the model cannot judge its own work (arithmetic, facts it does not know): `self_consistency` and
`chain_of_verification` are for those. With `criteria` the criticism looks at what matters to you.

It costs one call for the draft and two a round (`rounds`, 3 by default: 7 calls at most); a round whose criticism finds
nothing costs one, and is the last.
"""

import re

META = {
    "name": "self_refine",
    "category": "writing",
    "description": "Draft, criticise and revise until nothing is left to change.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to write or work out."},
        "rounds": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "How often to revise, at most."},
        "criteria": {
            "type": "str",
            "default": "It does what the task asks, is correct and complete, and has nothing superfluous.",
            "description": "What the draft is judged by.",
        },
    },
    "calls": "1 + 2 * rounds",
    "result": "the last revision, a text",
    "paper": {
        "title": "Self-Refine: Iterative Refinement with Self-Feedback",
        "authors": "Madaan et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2303.17651",
    },
    "script": [
        {"when": "Criticism:\n- It says", "answer": "Sessions survive crashes."},
        {"when": "Criticism:\n- How", "answer": "Sessions survive crashes, for each answer is stored."},
        {"when": "Criticism:\n- Where", "answer": "Sessions survive crashes, for each answer is stored in a journal."},
        {"when": "Draft:\nSessions survive. They", "answer": "- It says the same twice.\nVERDICT: revise"},
        {"when": "Draft:\nSessions survive crashes.", "answer": "- How do they?\nVERDICT: revise"},
        {"when": "Draft:\nSessions survive crashes, for", "answer": "- Where is it stored?\nVERDICT: revise"},
        {"when": "Task:", "answer": "Sessions survive. They survive crashes."},
    ],
}


def is_good(feedback):
    """Whether a criticism ends with the verdict that nothing has to change. Without a verdict, something has to."""
    verdicts = re.findall(r"verdict\W*(\w+)", feedback, re.IGNORECASE)
    return bool(verdicts) and verdicts[-1].lower() == "good"


def criticise(p, draft):
    return llm_safe(
        f"Task:\n{p['task']}\n\nDraft:\n{draft}\n\nCriteria:\n{p['criteria']}\n\n"
        "Criticise the draft by these criteria: list what has to change and how, one fault a line. Be concrete. "
        'End with the line "VERDICT: good" if nothing has to change, else with "VERDICT: revise".',
        role="critique",
    ).strip()


def revise(p, draft, feedback):
    return llm_safe(
        f"Task:\n{p['task']}\n\nDraft:\n{draft}\n\nCriticism:\n{feedback}\n\n"
        "Rewrite the draft so that the criticism no longer applies, and keep what is good. "
        "Answer with the new version alone.",
        role="revise",
    ).strip()


def run(ctx):
    p = parameters(META, ctx)
    first = llm(f"Task:\n{p['task']}\n\nAnswer with the work itself, without remarks on it.", role="draft")
    drafts = [first.strip()]
    feedback = []
    is_done = False
    for number in range(1, p["rounds"] + 1):
        progress(number, p["rounds"], f"round {number}")
        said = criticise(p, drafts[-1])
        if not said:
            log("self_refine: there was no criticism; the draft stays as it is", "warn")
            break
        feedback.append(said)
        is_done = is_good(said)
        if is_done:
            break
        revised = revise(p, drafts[-1], said)
        if not revised or revised == drafts[-1]:
            log("self_refine: the revision changed nothing; the draft stays as it is", "warn")
            break
        drafts.append(revised)

    ctx["drafts"] = drafts
    ctx["feedback"] = feedback
    ctx["approved"] = is_done
    ctx["result"] = drafts[-1]
    stats.record("revisions", len(drafts) - 1)
    return ctx
