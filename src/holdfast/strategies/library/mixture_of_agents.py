"""Mixture of agents: several proposers answer, read each other's answers and answer again; an aggregator makes one.

Use it for open questions where different views add up: explanations, advice, designs, texts. It is strongest with
several models (`models`, which the host must know); with one model each proposer is told to look at the task in a
different way. Not for tasks with one short right answer: a vote (`self_consistency`) is cheaper there.

It costs `proposers * layers + 1` calls in `layers + 1` pauses. A proposer that fails is left out of its layer; if a
whole layer fails, the one before it stands.
"""

META = {
    "name": "mixture_of_agents",
    "category": "sampling",
    "description": "Layers of proposers that build on each other's answers, and an aggregator that makes one of them.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to answer."},
        "proposers": {"type": "int", "default": 3, "min": 1, "max": 12, "description": "Answers in each layer."},
        "layers": {"type": "int", "default": 2, "min": 1, "max": 6, "description": "Layers of proposers."},
        "models": {"type": "list", "default": [], "description": "Models of the proposers, in turn; empty: the usual."},
    },
    "calls": "proposers * layers + 1",
    "result": "the aggregated answer, a text",
    "paper": {
        "title": "Mixture-of-Agents Enhances Large Language Model Capabilities",
        "authors": "Wang et al.",
        "year": 2024,
        "url": "https://arxiv.org/abs/2406.04692",
    },
    "script": [
        {"when": "Make one answer", "answer": "Twelve: three boxes of four."},
        {"when": "Improve on them", "answer": "Three boxes of four are twelve."},
        {"when": "Task:", "answer": "Three times four is twelve."},
    ],
}

WAYS = [
    "Be exact: check every claim before you make it.",
    "Be practical: say what matters in use, and how to do it.",
    "Be sceptical: question the obvious answer, and look for what it misses.",
    "Be thorough: think of unusual cases and of what goes wrong.",
    "Be plain: explain it to somebody who knows nothing of it.",
    "Be inventive: look for an answer that others would not think of.",
]


def run(ctx):
    p = parameters(META, ctx)
    proposals = []
    every_layer = []
    for layer in range(p["layers"]):
        progress(layer + 1, p["layers"] + 1, f"layer {layer + 1} of proposers")
        answers = propose(p, proposals)
        every_layer.append(answers)
        proposals = answers or proposals
    progress(p["layers"] + 1, p["layers"] + 1, "aggregator")
    ctx["proposals"] = every_layer
    ctx["result"] = aggregate(p["task"], proposals) if proposals else ""
    stats.record("proposals", sum(len(answers) for answers in every_layer))
    return ctx


def aggregate(task, proposals):
    """One answer; the first proposal where the aggregator has none."""
    merged = llm_safe(
        f"Task:\n{task}{quoted(proposals)}\n\n"
        "Make one answer to the task out of the proposals. Keep what is right and useful, drop what is wrong, settle "
        "where they contradict each other. Do not mention the proposals.",
        role="aggregate",
    )
    return merged.strip() or proposals[0]


def quoted(proposals):
    parts = [f"\n\nProposal {number + 1}:\n{text}" for number, text in enumerate(proposals)]
    return "".join(parts)


def propose(p, before):
    """The answers of a layer, without empty ones; if all failed and there were none before, that is raised."""
    wanted = "Improve on them: answer the task better than any of the proposals." if before else "Answer the task."
    asked = []
    for number in range(p["proposers"]):
        model = {"model": str(p["models"][number % len(p["models"])])} if p["models"] else {}
        prompt = f"Task:\n{p['task']}{quoted(before)}\n\n{wanted} {WAYS[number % len(WAYS)]}"
        asked.append({"prompt": prompt, **model})
    try:
        answers = llm_each(asked, role="propose")
    except (RuntimeError, TimeoutError) as error:
        if not before:
            raise
        log(f"mixture_of_agents: the layer failed, the one before it stands: {error}", "warn")
        return []
    return [answer.strip() for answer in answers if answer and answer.strip()]
