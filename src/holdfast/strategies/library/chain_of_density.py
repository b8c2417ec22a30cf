"""Chain of density: summarise, then add what is missing again and again, without making the summary longer.

Use it to put as much as possible of a text into a few sentences: abstracts, briefings, notes. Each round names the most
important things that the summary leaves out, and rewrites it at the same length to hold them, too. The densest is not
always what people like to read: take fewer `rounds` then, or one of ctx["summaries"]. Do not use it for a text that
does not fit into one prompt: `map_reduce` is for that.

It costs one call a round (`rounds`, 5 by default), one after the other; it ends early when nothing is missing.
"""

import re

META = {
    "name": "chain_of_density",
    "category": "writing",
    "description": "Make a summary denser round by round at the same length.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "The text to summarise."},
        "rounds": {"type": "int", "default": 5, "min": 1, "max": 10, "description": "Summaries to write, at most."},
        "words": {"type": "int", "default": 80, "min": 10, "max": 2000, "description": "Length of the summary."},
        "entities": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "What to add a round, at most."},
    },
    "calls": "rounds",
    "result": "the densest summary, a text",
    "paper": {
        "title": "From Sparse to Dense: GPT-4 Summarization with Chain of Density Prompting",
        "authors": "Adams et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2309.04269",
    },
    "script": [
        {"when": "far:\nSessions", "answer": "MISSING: SQLite\nSUMMARY: Durable sessions live in SQLite."},
        {"when": "far:\nDurable", "answer": "MISSING: leases\nSUMMARY: Leased durable sessions live in SQLite."},
        {"when": "far:\nLeased", "answer": "MISSING: blobs\nSUMMARY: SQLite has leased durable sessions and blobs."},
        {"when": "far:\nSQLite", "answer": "MISSING: zstd\nSUMMARY: SQLite has leased durable sessions, zstd blobs."},
        {"when": "Summarise the text", "answer": "Sessions are what the text is about, and where they are kept."},
    ],
}


def read(answer):
    """What a round says is missing, and its summary. Without marks the answer is the summary, and nobody knows what
    was missing: None."""
    parts = re.split(r"^[ \t#*]*summary[ \t*]*:[ \t*]*", answer, maxsplit=1, flags=re.IGNORECASE | re.MULTILINE)
    if len(parts) < 2:
        return None, "" if re.match(r"[#*\s]*missing\W*:", answer, re.IGNORECASE) else answer
    named = re.sub(r"^[#*\s]*missing[\s*]*:", "", parts[0], flags=re.IGNORECASE)
    missing = [each.strip(" \t-*•.") for each in re.split(r"[;\n]", named)]
    return [each for each in missing if each and each.lower() not in ("none", "nothing")], parts[1].strip()


def run(ctx):
    p = parameters(META, ctx)
    source = f"Text:\n{p['task']}"
    length = f"about {p['words']} words"
    first = llm(f"{source}\n\nSummarise the text in {length}. Answer with the summary alone.", role="summarise")
    summaries = [first.strip()]
    added = []
    for number in range(2, p["rounds"] + 1):
        progress(number, p["rounds"], f"summary {number}")
        answer = llm_safe(
            f"{source}\n\nSummary so far:\n{summaries[-1]}\n\n"
            f"Name at most {p['entities']} things that matter in the text and that the summary leaves out (names, "
            f"figures, events, causes). Then rewrite the summary so that it holds them, too, still in {length}: make "
            "room by shorter wording, and drop nothing that it says. Answer in this form:\n"
            'MISSING: thing; thing (or "none")\nSUMMARY: the new summary',
            role="summarise",
        )
        missing, summary = read(answer.strip())
        if not summary or summary == summaries[-1]:
            log(f"chain_of_density: round {number} has no new summary; the one before is the last", "warn")
            break
        if missing == []:
            break
        summaries.append(summary)
        added.append(missing or [])

    ctx["summaries"] = summaries
    ctx["added"] = added
    ctx["result"] = summaries[-1]
    stats.record("words", len(summaries[-1].split()))
    return ctx
