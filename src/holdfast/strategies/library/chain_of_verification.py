"""Chain of verification: draft, plan questions that check its facts, answer them without the draft, write it anew.

Use it when an answer consists of facts that can be asked about one by one: lists, biographies, summaries of events. A
model that is asked for a single fact is more often right than one that writes many, and as the questions are answered
without the draft in view, its mistakes are not repeated. It is of little use for reasoning and taste. With `grounded`
the host is told to look the answers up.

It costs three calls and one a question (`questions`, 4 by default: 7 calls at most); the questions are one pause.
"""

META = {
    "name": "chain_of_verification",
    "category": "verification",
    "description": "Draft, check its facts by independent questions, correct it.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to answer."},
        "questions": {"type": "int", "default": 4, "min": 1, "max": 20, "description": "Questions to check, at most."},
        "grounded": {"type": "bool", "default": False, "description": "Have the host look the facts up."},
    },
    "calls": "3 + questions",
    "result": "the corrected answer, a text",
    "paper": {
        "title": "Chain-of-Verification Reduces Hallucination in Large Language Models",
        "authors": "Dhuliawala et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2309.11495",
    },
    "script": [
        {
            "when": "Write questions that check",
            "answer": "1. Where was Ada Lovelace born?\n2. When?\n3. Who was her father?\n4. When did she die?",
        },
        {"when": "Answer the question", "answer": "London, 10 December 1815."},
        {"when": "Write the answer anew", "answer": "Ada Lovelace was born in London on 10 December 1815."},
        {"when": "Task:", "answer": "Ada Lovelace was born in Paris in 1815."},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    draft = llm(f"{task}\n\nAnswer it.", role="draft").strip()
    plan = llm(
        f"{task}\n\nDraft of an answer:\n{draft}\n\nWrite questions that check the facts of the draft, at most "
        f"{p['questions']}, the most doubtful facts first. Each must make sense by itself, to somebody who has not "
        "seen the draft, and must not say what the draft claims. One question a line, numbered.",
        role="plan",
    )
    questions = list_items(plan, p["questions"])
    ctx["draft"] = draft
    ctx["checks"] = []
    ctx["result"] = draft
    stats.record("checks", len(questions))
    if not questions:
        log("chain_of_verification: no question could be read; the draft is not checked", "warn")
        return ctx

    # Without the draft: whoever answers shall not be led by its mistakes.
    prompts = [
        f"Question:\n{question}\n\nAnswer the question in one or two sentences. Say so if you do not know."
        for question in questions
    ]
    answers = [(answer or "").strip() for answer in llm_each(prompts, role="verify", grounded=p["grounded"])]
    pairs = zip(questions, answers, strict=True)
    checks = [{"question": question, "answer": answer} for question, answer in pairs if answer]
    ctx["checks"] = checks
    if len(checks) < len(questions):
        log(f"chain_of_verification: {len(questions) - len(checks)} of {len(questions)} have no answer", "warn")
    if not checks:
        return ctx

    findings = "\n".join([f"- {check['question']} {check['answer']}" for check in checks])
    final = llm(
        f"{task}\n\nDraft of an answer:\n{draft}\n\nWhat was found out independently of the draft:\n{findings}\n\n"
        "Write the answer anew. Where the draft and the findings differ, follow the findings; leave out what they "
        "leave doubtful. Answer with the text alone.",
        role="answer",
    )
    ctx["result"] = final.strip() or draft
    return ctx
