"""Recursive language model: answer a question about a long text in cells of Python, which the model writes one by one.

Use it for a `text` that is far too long to be read at once, where the answer must be searched, counted or computed: the
text is a variable, and only what a cell prints is ever read. Not for short texts (`cot`), nor for a summary of all of a
text (`map_reduce`). Each cell is a session of its own: one that loops or takes too much memory costs only itself.

It costs one call a cell (`cells`, 12 by default), one more if these do not lead to an answer, and those that the cells
make themselves (`calls`, 20 by default): 33 calls at most.
"""

import json
import re

META = {
    "name": "rlm",
    "category": "long-text",
    "description": "Answer questions about a long text in cells of Python, whose variables stay.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to find out, or to make of the text."},
        "text": {"type": "str", "default": "", "description": "The long text, which cells read as `text`."},
        "cells": {"type": "int", "default": 12, "min": 1, "max": 50, "description": "How many cells, at most."},
        "calls": {"type": "int", "default": 20, "min": 0, "max": 500, "description": "Model calls in cells, at most."},
    },
    "calls": "cells + 1 + calls",
    "result": "the answer, a text; a value that a cell finished with is in `value` as well",
    "paper": {
        "title": "Recursive Language Models",
        "authors": "Zhang et al.",
        "year": 2025,
        "url": "https://arxiv.org/abs/2512.24601",
    },
    "script": [
        {"when": "[OUTPUT]\nYes.", "answer": "There are 12 eggs."},
        {"when": "[OUTPUT]\n0", "answer": "```python\nprint(llm(f'Is it about eggs? {size}'))\n```"},
        {"when": "Task:", "answer": "First its size.\n```python\nsize = len(text)\nprint(size)\n```"},
        {"when": "Is it about eggs?", "answer": "Yes."},
    ],
}

SHOWN = 6_000
REMEMBERED = 60_000
BLOCK = "[POLICY] Begin the block with ```python, end it with ``` on a line of its own, and put code into it."
TOP = r"^(?:@[^\n]*\n)*(?:async def|def|class|import|from)\b[^\n]*(?:\n(?:[ \t)\]][^\n]*)?)*"
RULES = """You work in cells of Python. Think in a few sentences, then write ONE block that begins with ```python.
It is run, and you are shown what it printed. `text` is there to be read. Variables of plain data stay, and so do
functions and imports at the top of a cell. There are no files, no network, no generators, no inheritance. Print little.
llm(prompt) asks a model that sees only the prompt; llm_batch(prompts) asks many at once.
To end, answer in words without a block, or call finish(value) in a cell."""


def run(ctx):
    if "rlm_cell" in ctx:
        return run_cell(ctx["rlm_cell"])
    p = parameters(META, ctx)
    held = {"names": {"text": p["text"]}, "sources": [], "calls": p["calls"]}
    steps, value, answer = [], None, ""
    while not answer and len(steps) < p["cells"]:
        progress(len(steps) + 1, p["cells"], f"cell {len(steps) + 1}")
        said = llm(question(p, steps, held), role="cell").strip()
        code = cell_in(said)
        if code:
            came = cell_done(p, code, held)
            steps.append([said, came["told"]])
            if came["ended"]:
                value = came["ended"][0]
                answer = value if isinstance(value, str) and value else json.dumps(value)
        elif said and code is None:
            answer = said
        else:
            steps.append([said, BLOCK])
    if not answer:
        last = "There are no cells left: answer in words now, as well as you can."
        answer = llm(f"{question(p, steps, held)}\n\n{last}", role="answer").strip() or "There is no answer."
    stats.record("cells", len(steps))
    return {**ctx, "value": value, "transcript": steps, "result": answer}


def question(p, steps, held):
    """The rules, the task, the cells so far with what came of them, and what there is for the next."""
    told = [f"Cell {number}:\n{said}\n\n{came}" for number, (said, came) in enumerate(steps, 1)]
    while len(told) > 1 and sum([len(each) for each in told]) > REMEMBERED:
        told.pop(0)
    names = [f"{name} ({type(value).__name__})" for name, value in held["names"].items()]
    there = f"Variables: {', '.join(names)}; text has {len(p['text'])} characters\nCalls left: {held['calls']}"
    return "\n\n".join([RULES, f"Task:\n{p['task']}", *told, there])


def cell_in(said):
    """The code of the first block of Python; empty if it is not closed, None if there is none."""
    code = None
    for line in said.split("\n"):
        if code is None:
            code = [] if re.fullmatch(r" *```+ *(python3?|py|repl)\s*", line.lower()) else None
        elif re.fullmatch(r" *```+\s*", line) and "\n".join(code).count('"""') % 2 == 0:
            return "\n".join(code).strip()
        else:
            code.append(line)
    return None if code is None else ""


def cell_done(p, code, held):
    """What a cell came to, which is run as a child: whatever becomes of that, this session goes on."""
    try:
        came = child("rlm", {"task": p["task"], "rlm_cell": {**held, "code": code}})
    except (RuntimeError, TimeoutError) as error:
        return {"told": f"[POLICY] The cell was stopped: {error}\nVariables are as before it.", "ended": []}
    held["names"] = {"text": p["text"], **came["names"]}
    held["sources"] = held["sources"] + [each for each in came["sources"] if each not in held["sources"]]
    held["calls"] = came["calls"]
    return came


def run_cell(given):
    """In the child: run one cell on the names of those before it."""
    printed, ended, left = [], [], [given["calls"]]

    def finish(value=None):
        if not ended:
            ended.append(json.loads(json.dumps(value)))
        raise SystemExit("finished")

    def ask_all(prompts, **options):
        if ended:
            raise SystemExit("finished")
        if len(prompts) > left[0]:
            raise RuntimeError(f"{len(prompts)} calls of models are asked for, and {left[0]} are left")
        left[0] -= len(prompts)
        return llm_batch(list(prompts), **{"role": "ask", **options}) if prompts else []

    own = {"finish": finish, "llm_batch": ask_all, "llm": lambda prompt, **options: ask_all([prompt], **options)[0]}
    own["print"] = lambda *values, sep=" ", end="\n": printed.append(sep.join([str(each) for each in values]) + end)
    space, error = {**given["names"], **own}, ""
    for source in given["sources"]:
        try:
            exec(source, space)
        except Exception as raised:  # a line of a text that looks like a definition is none
            log(f"rlm: this is no definition: {raised}", "debug")
    space.update(given["names"])
    try:
        exec(given["code"], space)
    except (Exception, SystemExit) as raised:
        error = "" if ended else f"[ERROR] {type(raised).__name__}: {raised}"
    sources = re.findall(TOP, given["code"], re.MULTILINE)
    words = set(re.findall(r"\w+", "\n".join([*sources, *given["sources"]])))
    names = [name for name in space if name not in own and not name.startswith("_") and name != "text"]
    kept = {name: space[name] for name in names if is_plain(space[name])}
    lost = [f"{name} ({type(space[name]).__name__})" for name in names if name not in kept and name not in words]
    output = "".join(printed).rstrip() or "(nothing was printed)"
    output = output if len(output) <= SHOWN else f"{output[:SHOWN]}\n[… {len(output) - SHOWN} more characters …]"
    notes = f"Not kept, for only plain data is: {', '.join(lost)}" if lost else ""
    told = "\n".join([each for each in (f"[OUTPUT]\n{output}", error, notes) if each])
    return {"names": kept, "sources": sources, "calls": left[0], "told": told, "ended": ended}


def is_plain(value):
    """Whether a value comes back as it is after the cell."""
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return False
