"""Pairwise rank: compare every two items, each pair in both orders, and rank the items by the comparisons they win.

Use it to put a few texts in order of quality or relevance: answers, headlines, search results. Models are better at
saying which of two is better than at giving scores, but favour the place in which an item stands: so each pair is asked
about twice, and only a verdict that survives the exchange is a win; else both get half a point. Without `items`,
candidates for the task are made up first. It grows with the square of the items: for more than a dozen, score them.

It costs n * (n - 1) calls for n items, all of them in one pause, and one more to make candidates up (`candidates`, 4 by
default: 13 calls).
"""

import json
import re

META = {
    "name": "pairwise_rank",
    "category": "ranking",
    "description": "Rank items by comparing every two of them in both orders.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What the items should do or answer."},
        "items": {"type": "list", "default": [], "description": "What to rank, at most 30; empty: made up."},
        "candidates": {"type": "int", "default": 4, "min": 2, "max": 12, "description": "How many items to make up."},
        "criteria": {
            "type": "str",
            "default": "How well it does what the task asks.",
            "description": "What makes one item better than another.",
        },
    },
    "calls": "len(items) * (len(items) - 1) + (1 - min(1, len(items))) * (1 + candidates * (candidates - 1))",
    "result": "the items, the best one first, a list",
    "paper": {
        "title": "Large Language Models are Effective Text Rankers with Pairwise Ranking Prompting",
        "authors": "Qin et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2306.17563",
    },
    "script": [
        {
            "when": "Write 4 different candidates",
            "answer": "1. Sleep well: your sessions do.\n2. Never ask twice.\n3. Nothing is lost.\n4. Pause. Resume.",
        },
        {"when": "A:\nNever ask twice.", "answer": "It says what you gain.\nVERDICT: A"},
        {"when": "B:\nNever ask twice.", "answer": "It says what you gain.\nVERDICT: B"},
        {"when": "Which of the two", "answer": "They are close.\nVERDICT: A"},
    ],
}

MOST_ITEMS = 30
"""Above that the comparisons would be more than 870."""


def candidates(p):
    """Items for the task. An answer that is no list is one item."""
    answer = llm(
        f"Task:\n{p['task']}\n\nWrite {p['candidates']} different candidates for the answer. One candidate a line, "
        "numbered, without remarks.",
        role="propose",
    )
    made = list_items(answer, p["candidates"])
    if len(made) < 2:
        log(f"pairwise_rank: {len(made)} candidates could be read; there is nothing to compare", "warn")
    return made or [answer.strip()]


def shown(item):
    return item if isinstance(item, str) else json.dumps(item)


def verdict_in(answer):
    """`A` or `B`, as the last VERDICT mark says, or because the answer is nothing else; else nothing."""
    marked = re.findall(r"verdict\W*([ab])\b", answer, re.IGNORECASE)
    alone = re.fullmatch(r"\W*(?:option|answer|item)?\W*([ab])\W*", answer, re.IGNORECASE)
    return (marked[-1] if marked else alone.group(1) if alone else "").upper()


def run(ctx):
    p = parameters(META, ctx)
    if len(p["items"]) > MOST_ITEMS:
        raise ValueError(
            f"pairwise_rank: 'items' must be at most {MOST_ITEMS}, got {len(p['items'])}; rank a selection"
        )
    items = p["items"] or candidates(p)
    pairs = [(i, j) for i in range(len(items)) for j in range(i + 1, len(items))]
    prompts = [
        f"Task:\n{p['task']}\n\nCriteria:\n{p['criteria']}\n\n"
        f"A:\n{shown(items[first])}\n\nB:\n{shown(items[second])}\n\n"
        'Which of the two is better by the criteria? Give the reason in one sentence, then a last line "VERDICT: A" or '
        '"VERDICT: B".'
        for i, j in pairs
        for first, second in ((i, j), (j, i))
    ]
    verdicts = [verdict_in(answer or "") for answer in llm_each(prompts, role="compare")]

    points = [0.0 for _ in items]
    decided = 0
    for number, (i, j) in enumerate(pairs):
        said = verdicts[2 * number] + verdicts[2 * number + 1]
        # In the second question the items stand the other way round.
        won = {"AB": 1.0, "BA": 0.0}.get(said, 0.5)
        decided += 1 if won != 0.5 else 0
        points[i] += won
        points[j] += 1.0 - won
    order = sorted(range(len(items)), key=lambda i: -points[i])
    ctx["ranking"] = [{"item": items[i], "points": points[i], "index": i} for i in order]
    ctx["result"] = [items[i] for i in order]
    stats.record("decided", decided / len(pairs) if pairs else 1.0)
    return ctx
