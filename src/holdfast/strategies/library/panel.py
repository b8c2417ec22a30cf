"""Panel: several roles take a position each, read the others', revise their own; a moderator draws the conclusion.

Use it for questions with sides to them: decisions, designs, disputed facts, where one voice would overlook something.
The roles are those you give, or are made up for the task. Do not use it for what has one short answer:
`self_consistency` is cheaper.

It costs one call a role and round (`rounds`, 2 by default; 3 roles), one for the moderator, and one to make up the
roles if none are given: 8 calls by default. All the roles of a round are one pause.
"""

META = {
    "name": "panel",
    "category": "debate",
    "description": "Roles debate in rounds; a moderator draws the conclusion.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to debate."},
        "roles": {"type": "list", "default": [], "description": "Who debates, each a text; empty: made up."},
        "panelists": {"type": "int", "default": 3, "min": 2, "max": 10, "description": "How many roles to make up."},
        "rounds": {"type": "int", "default": 2, "min": 1, "max": 6, "description": "How often each role speaks."},
    },
    "calls": "len(roles) * rounds + 1 + (1 - min(1, len(roles))) * (panelists * rounds + 1)",
    "result": "the moderator's conclusion, a text",
    "paper": {
        "title": "Improving Factuality and Reasoning in Language Models through Multiagent Debate",
        "authors": "Du et al.",
        "year": 2023,
        "url": "https://arxiv.org/abs/2305.14325",
    },
    "script": [
        {
            "when": "Name the roles",
            "answer": "1. An engineer who runs the system\n2. A customer who pays for it\n3. An auditor of it",
        },
        {"when": "You moderate", "answer": "Move in two steps, with a way back after the first."},
        {"when": "Revise your position", "answer": "I still say: move, but not at once."},
        {"when": "State your position", "answer": "Move, because the old system is costly."},
    ],
}

STOCK = ["a practitioner who would have to do it", "a sceptic who looks for what is wrong", "somebody affected by it"]
"""Who debates if the roles that were made up cannot be read."""


def seats(p):
    """Who debates."""
    given = p["roles"]
    if given:
        if len(given) < 2 or not all(isinstance(role, str) and role.strip() for role in given):
            raise ValueError(f"panel: 'roles' must be two or more texts, got {str(given)[:100]}")
        return given
    answer = llm_safe(
        f"Task:\n{p['task']}\n\nName the roles of {p['panelists']} people who would look at this task from different "
        "sides, and disagree. One role a line, numbered, each a short phrase.",
        role="plan",
    )
    roles = list_items(answer, p["panelists"])
    if len(roles) < 2:
        log("panel: no roles could be read; stock ones debate", "warn")
        return STOCK[: p["panelists"]]
    return roles


def others(roles, positions, own):
    return "\n\n".join([f"{roles[i]}:\n{positions[i]}" for i in range(len(roles)) if i != own and positions[i]])


def run(ctx):
    p = parameters(META, ctx)
    task = f"Task:\n{p['task']}"
    roles = seats(p)
    positions = ["" for _ in roles]
    for number in range(1, p["rounds"] + 1):
        progress(number, p["rounds"], f"round {number}")
        prompts = []
        for i, role in enumerate(roles):
            prompt = f"You are: {role}\n\n{task}\n\n"
            if number > 1:
                prompt += f"Your position so far:\n{positions[i] or '(none)'}\n\n"
                prompt += f"What the others say:\n{others(roles, positions, i)}\n\n"
                prompt += "Revise your position: take up what convinces you, and say what does not and why. "
            else:
                prompt += "State your position from the point of view of your role, with your reasons. "
            prompts.append(f"{prompt}At most 200 words.")
        try:
            came = llm_each(prompts, role="debate")
        except (RuntimeError, TimeoutError) as error:
            if number == 1:
                raise
            log(f"panel: nobody spoke in round {number}, which ends the debate: {error}", "warn")
            break
        positions = [(new or "").strip() or old for new, old in zip(came, positions, strict=True)]

    heard = [{"role": role, "position": position} for role, position in zip(roles, positions, strict=True) if position]
    summary = "\n\n".join([f"{each['role']}:\n{each['position']}" for each in heard]) or "(nobody took a position)"
    conclusion = llm(
        f"You moderate a panel.\n\n{task}\n\nThe positions at the end:\n{summary}\n\n"
        "Weigh the arguments, not the number of voices, and answer the task. Name what stays disputed, if it matters.",
        role="answer",
    )
    ctx["positions"] = heard
    ctx["result"] = conclusion.strip() or summary
    stats.record("panelists", len(heard))
    return ctx
