"""Map-reduce over a long text: take notes on each part at once, then merge the notes until they fit one question.

Use it to summarise, search or question a `text` that is longer than a model reads well at once. A text that fits into
one part is asked about directly. Not for tasks where distant places must be compared word by word: the notes on a part
are taken without knowing the others.

It costs one call for a text of one part. Otherwise a call a part, in one pause, and a call for each merge of notes: for
m parts at most m - 1 of those, in few pauses, for all merges of a round are asked together. Parts whose question failed
are left out, named in `missing`, and mentioned to whoever writes the result.
"""

META = {
    "name": "map_reduce",
    "category": "long-text",
    "description": "Take notes on each part of a long text in parallel, merge them in rounds, then do the task.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to find out, or to make of the text."},
        "text": {"type": "str", "required": True, "description": "The long text."},
        "size": {"type": "int", "default": 8000, "min": 200, "max": 1000000, "description": "Characters of a part."},
        "overlap": {
            "type": "int",
            "default": 200,
            "min": 0,
            "max": 100000,
            "description": "Characters that a part repeats of the one before; at most half of a part.",
        },
    },
    "calls": "1 + 2 * max(0, (len(text) - overlap - 1) // (size - overlap))",
    "result": "the task done on the whole text, a text",
    "paper": {
        "title": "Recursively Summarizing Books with Human Feedback",
        "authors": "Wu et al.",
        "year": 2021,
        "url": "https://arxiv.org/abs/2109.10862",
    },
    "script": [
        {"when": "a longer text", "answer": "The harbour was rebuilt in 1870."},
        {"when": "Merge these notes", "answer": "The harbour was rebuilt twice, last in 1870."},
        {"when": "Do the task", "answer": "The harbour was last rebuilt in 1870."},
    ],
}


def run(ctx):
    p = parameters(META, ctx)
    if p["overlap"] * 2 > p["size"]:
        raise ValueError(f"map_reduce: 'overlap' must be at most half of 'size', {p['size']}; got {p['overlap']}")
    parts = parts_of(p["text"], p["size"], p["overlap"])
    ctx["parts"] = len(parts)
    if len(parts) < 2:
        ctx["result"] = llm(f"Text:\n{p['text']}\n\nTask:\n{p['task']}\n\nDo the task.", role="reduce").strip()
        return ctx
    progress(1, 3, f"notes on {len(parts)} parts")
    came = llm_each([to_note(p, part, number, len(parts)) for number, part in enumerate(parts)], role="map")
    missing = [number + 1 for number, note in enumerate(came) if note is None]
    notes = [note.strip() for note in came if note and note.strip()]
    notes = [note for note in notes if note.lower().strip(" .*") not in ("nothing", "none")]
    ctx["notes"] = notes
    ctx["missing"] = missing
    rounds = 0
    groups = packed(notes, p["size"])
    while len(groups) > 1:
        rounds += 1
        progress(2, 3, f"round {rounds}: {len(notes)} notes to merge")
        notes = merged(p, groups)
        groups = packed(notes, p["size"])
    progress(3, 3, "result")
    ctx["result"] = done(p, groups[0], missing) if groups else "The text has nothing that this task needs."
    ctx["merge_rounds"] = rounds
    stats.record("parts", len(parts))
    stats.record("rounds", rounds)
    return ctx


def parts_of(text, size, overlap):
    """The text in parts. A word that is cut at an edge is left to the neighbour that has it whole, if one does."""
    parts = chunk(text, mode="chars", size=size, overlap=overlap)
    trimmed = []
    for number, part in enumerate(parts):
        first, last = 0, len(part)
        if number > 0:
            first = part.find(" ", 0, overlap // 2) + 1
        if number + 1 < len(parts):
            blank = part.rfind(" ", last - overlap // 2)
            last = blank if blank > 0 else last
        trimmed.append(part[first:last])
    return trimmed


def to_note(p, part, number, count):
    return (
        f"Task:\n{p['task']}\n\nPart {number + 1} of {count} of a longer text:\n{part}\n\n"
        "Note down, briefly and exactly, all in this part that the task needs. The task itself is done later, from the "
        "notes on all parts. If there is nothing, write only: Nothing."
    )


def packed(notes, size):
    """The notes in groups that fit one question. Two always do, so that every round leaves fewer."""
    groups = []
    room = 0
    most = size // 2 if len(notes) > 1 else size
    for note in [each[:most] for each in notes]:
        if not groups or room < len(note):
            groups.append([])
            room = size
        groups[-1].append(note)
        room -= len(note)
    return groups


def merged(p, groups):
    """One note per group, all asked for together. If a group yields nothing, as much of it as fits is kept."""
    wanted = [group for group in groups if len(group) > 1]
    prompts = [
        f"Task:\n{p['task']}\n\nNotes on parts of a text, in order:\n{joined(group)}\n\nMerge these notes into one, "
        "shorter than all of them together. Keep all that the task needs, leave out repeats."
        for group in wanted
    ]
    answers = [(answer or "").strip() for answer in llm_each(prompts, role="merge")]
    made = [answer or shortened(group, p["size"] // 2) for answer, group in zip(answers, wanted, strict=True)]
    return [made.pop(0) if len(group) > 1 else group[0] for group in groups]


def done(p, notes, missing):
    gaps = f"\n\nParts that could not be read: {', '.join(str(number) for number in missing)}." if missing else ""
    prompt = (
        f"Task:\n{p['task']}\n\nNotes on a long text, in order:\n{joined(notes)}{gaps}\n\nDo the task from the notes."
    )
    return llm(prompt, role="reduce").strip() or joined(notes)


def joined(notes):
    return "\n\n".join(notes)


def shortened(notes, size):
    return joined([note[: size // len(notes)] for note in notes])
