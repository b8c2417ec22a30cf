"""Red team: attack a draft from several angles at once, weigh the attacks, and rewrite it so that they no longer hold.

Use it before something is sent or shipped: answers, policies, plans, announcements, prompts. Give it as `target`, or
let it be written. The angles are yours to choose: name what would hurt in your case. Not for texts whose flaws are
matters of taste: `self_refine` polishes for less.

It costs a call for the draft unless you give one, and in each round a call an angle, in one pause, plus one to rewrite.
It stops as soon as no attack reaches `floor`. A rewrite that fails leaves the draft as it was.
"""

import re

META = {
    "name": "red_team",
    "category": "writing",
    "description": "Attack a draft from several angles in parallel, then harden it against the serious attacks.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What the draft should do."},
        "target": {"type": "str", "default": "", "description": "The text to attack; empty: it is written first."},
        "angles": {
            "type": "list",
            "default": [
                "correctness: what is false, unproven or contradicts itself",
                "gaps: which cases, objections and counterexamples it misses",
                "misuse: how somebody could abuse it, or come to harm by it",
                "reading: what can be misunderstood, or turned against its author",
            ],
            "description": "Where to attack from, a text each.",
        },
        "rounds": {"type": "int", "default": 1, "min": 1, "max": 5, "description": "Most rounds of attack and repair."},
        "floor": {"type": "int", "default": 3, "min": 1, "max": 10, "description": "Severity from which to repair."},
    },
    "calls": "1 - min(1, len(target)) + rounds * (len(angles) + 1)",
    "result": "the hardened text",
    "paper": {
        "title": "Constitutional AI: Harmlessness from AI Feedback",
        "authors": "Bai et al.",
        "year": 2022,
        "url": "https://arxiv.org/abs/2212.08073",
    },
    "script": [
        {"when": "Rewrite the draft", "answer": "There are 12, if every box is full."},
        {"when": "correctness", "answer": "Severity: 0\nNo flaw."},
        {"when": "gaps", "answer": "Severity: 7\nIt assumes that every box is full."},
        {"when": "Attack", "answer": "Severity: 1\nIt is a little short."},
        {"when": "Write what the task asks for", "answer": "There are 12."},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    angles = [str(angle).strip() for angle in p["angles"] if str(angle).strip()]
    if not angles:
        raise ValueError("red_team: 'angles' must name at least one angle to attack from")
    text = p["target"].strip()
    if not text:
        text = llm(f"Task:\n{p['task']}\n\nWrite what the task asks for, and nothing else.", role="draft").strip()
    ctx["first_draft"] = text
    attacks = []
    rounds = 0
    for number in range(p["rounds"]):
        rounds = number + 1
        progress(rounds, p["rounds"], f"{len(angles)} attacks")
        found = attacked(p["task"], text, angles)
        attacks += [{"round": rounds, **attack} for attack in found]
        serious = [attack for attack in found if attack["severity"] >= p["floor"]]
        if not serious:
            break
        text = hardened(p["task"], text, serious) or text
    ctx["attacks"] = attacks
    ctx["rounds_used"] = rounds
    ctx["result"] = text
    stats.record("rounds", rounds)
    stats.record("worst_severity", max([attack["severity"] for attack in attacks], default=0))
    return ctx


def hardened(task, draft, serious):
    worst_first = sorted(serious, key=lambda attack: -attack["severity"])
    listed = "\n\n".join(
        f"[{attack['angle']}; severity {attack['severity']:g}]\n{attack['text']}" for attack in worst_first
    )
    return llm_safe(
        f"Task:\n{task}\n\nDraft:\n{draft}\n\nAttacks on it, the worst first:\n{listed}\n\n"
        "Rewrite the draft so that the attacks no longer hold. Where an attack is mistaken, leave the draft as it is. "
        "Keep what is good. Write only the new text.",
        role="revise",
    ).strip()


def attacked(task, draft, angles):
    """What was found, angle by angle, without those that failed or said nothing. If all failed, that is raised."""
    prompts = [
        f"Task:\n{task}\n\nDraft:\n{draft}\n\nAttack the draft from one angle only, {angle}. Name its most serious "
        "flaws from there, each with the place it is at. Begin with a line of its own, 0 for no flaw to 10 for a flaw "
        "that makes it useless or dangerous:\nSeverity: …"
        for angle in angles
    ]
    texts = [(text or "").strip() for text in llm_each(prompts, role="attack")]
    pairs = zip(angles, texts, strict=True)
    return [{"angle": angle, "severity": severity_in(text), "text": flaws_in(text)} for angle, text in pairs if text]


def severity_in(text):
    """The severity that is stated, from 0 to 10; 5 if none is: something was found, and nobody knows how bad it is."""
    found = re.search(r"(?i)severity(?: *\([^)\n]*\))?[^0-9\n]*([0-9]+(?:\.[0-9]+)?)", text)
    return min(10.0, float(found.group(1))) if found else 5.0


def flaws_in(text):
    return re.sub(r"(?i)^[ *#>]*severity[^\n]*\n?", "", text).strip() or text
