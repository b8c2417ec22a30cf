"""Skeleton of thought: first the points of an answer, then all of them written out at the same time.

Use it for long answers that fall into independent points: overviews, guides, comparisons, lists of advice. As the
points are written in parallel the answer is there after two waits, however long it is. Do not use it where a point
builds on the one before, as in reasoning and stories: nobody who writes a point sees the others' text.

It costs one call and one a point (`points`, 6 by default: 7 calls at most); the points are one pause. If no skeleton
can be read, the task is asked directly: 2 calls.
"""

META = {
    "name": "skeleton_of_thought",
    "category": "writing",
    "description": "Outline the answer, then write all of its points in parallel.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to write about."},
        "points": {"type": "int", "default": 6, "min": 1, "max": 30, "description": "Points of the answer, at most."},
        "sentences": {"type": "int", "default": 3, "min": 1, "max": 30, "description": "Length of a point."},
    },
    "calls": "1 + points",
    "result": "the answer, point by point, a text",
    "paper": {
        "title": "Skeleton-of-Thought: Prompting LLMs for Efficient Parallel Generation",
        "authors": "Ning et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2307.15337",
    },
    "script": [
        {
            "when": "Write only the skeleton",
            "answer": "1. Choose a site\n2. Dig the bed\n3. Sow\n4. Water\n5. Weed\n6. Harvest",
        },
        {"when": "Write out point", "answer": "Take a place with six hours of sun. Avoid frost pockets."},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    answer = llm(
        f"{task}\n\nWrite only the skeleton of an answer: its points, at most {p['points']}, which can be written "
        "independently of each other. One point a line, numbered, each of three to eight words.",
        role="plan",
    )
    points = list_items(answer, p["points"])
    ctx["skeleton"] = points
    stats.record("points", len(points))
    if not points:
        log("skeleton_of_thought: no skeleton could be read; the task is asked directly", "warn")
        ctx["result"] = llm(f"{task}\n\nAnswer it.", role="answer").strip()
        return ctx

    skeleton = "\n".join([f"{number}. {point}" for number, point in enumerate(points, 1)])
    prompts = [
        f"{task}\n\nSkeleton of the answer:\n{skeleton}\n\nWrite out point {number} and nothing else, in about "
        f"{p['sentences']} sentences: {point}"
        for number, point in enumerate(points, 1)
    ]
    written = [(each or "").strip() for each in llm_each(prompts, role="write")]
    if not all(written):
        log(f"skeleton_of_thought: {written.count('')} of {len(points)} points were not written out", "warn")
    # A point that nobody wrote out still says something by itself.
    sections = [f"{number}. {points[number - 1]}\n{body}".strip() for number, body in enumerate(written, 1)]
    ctx["result"] = "\n\n".join(sections)
    return ctx
