"""`new`: a strategy in Python with a test, ready to run, and the stubs that tell an editor what it may call."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path

import msgspec

from holdfast.core.errors import ExitCode, HoldfastError
from holdfast.programs.api.python_stubs import PYTHON_STUB_NAME, render_python_stubs
from holdfast.programs.paths import find_project
from holdfast.programs.sandbox.library import BUNDLED

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)

_STRATEGY = '''\
"""Draft an answer, then make it better: what {name} does, when to use it, and what it costs in calls.

Say here what somebody has to know who chooses between strategies.
"""

# What the strategy says about itself: `holdfast strategies show {name}` prints it. It is read without running the file,
# so it has to be written out: texts, numbers and lists, no calls.
META = {{
    "name": "{name}",
    "category": "writing",
    "description": "Draft an answer, then make it better.",
    # The fields of ctx that it reads. `parameters` checks them, and fills in the defaults.
    "parameters": {{
        "task": {{"type": "str", "required": True, "description": "What to answer."}},
        "words": {{"type": "int", "default": 100, "min": 10, "max": 2000, "description": "How long it may be."}},
    }},
    # How many questions it asks models at most, as arithmetic over the parameters.
    "calls": "2",
    "result": "the better answer, a text",
    # Answers for rehearsals (`--dry-run`): to a prompt with these words in it, this is said.
    "script": [
        {{"when": "Answer this", "answer": "A first draft."}},
        {{"when": "Make this draft better", "answer": "A better answer."}},
    ],
}}


def run(ctx):
    p = parameters(META, ctx)

    # A question: the session is stored and waits, for a second or a week, until somebody answers.
    draft = llm(f"Answer this in at most {{p['words']}} words.\\n\\nTask:\\n{{p['task']}}", role="draft").strip()

    better = llm(
        f"Make this draft better: clearer, and no longer.\\n\\nTask:\\n{{p['task']}}\\n\\nDraft:\\n{{draft}}",
        role="improve",
    ).strip()

    # By convention the task comes in as ctx["task"], and the answer goes out as ctx["result"]: so strategies can be
    # put one behind another. A model may say nothing; then the draft is still there.
    ctx["draft"] = draft
    ctx["result"] = better or draft
    return ctx
'''

_TEST = '''\
"""The strategy `{name}`, rehearsed: it runs as it would, and the answers are those of this file."""

from pathlib import Path

from holdfast.testing import rehearse

STRATEGY = str(Path(__file__).with_name("{name}.py"))


def test_the_draft_is_made_better():
    done = rehearse(STRATEGY, {{"task": "Why is the sky blue?"}}, ["It scatters.", "Air scatters blue light most."])
    assert done.error is None
    assert done.result["result"] == "Air scatters blue light most."
    assert done.pauses == 2


def test_the_second_question_carries_the_draft():
    done = rehearse(STRATEGY, {{"task": "Why is the sky blue?"}}, ["It scatters.", "Better."])
    first, second = done.prompts
    assert "Why is the sky blue?" in first
    assert "It scatters." in second


def test_an_empty_answer_leaves_the_draft():
    done = rehearse(STRATEGY, {{"task": "Why is the sky blue?"}}, ["It scatters.", "  "])
    assert done.result["result"] == "It scatters."


def test_a_task_is_needed():
    assert "task" in rehearse(STRATEGY, {{}}).error
'''


class StrategyNameError(HoldfastError):
    """A name that no new strategy can have."""

    name: str
    why: str
    kind = "invalid_strategy_name"

    def __str__(self) -> str:
        return f"a strategy cannot be called {self.name[:80]!r}: {self.why}"


class StrategyExistsError(HoldfastError):
    """A file that would be overwritten."""

    name: str
    path: str
    kind = "strategy_exists"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"{self.path} exists already; nothing was written. Choose another name than '{self.name}', or remove it"


class NewReport(msgspec.Struct, frozen=True):
    """What was written."""

    name: str
    strategy: str
    test: str
    stubs: str
    written: list[str]
    hides: str | None = None
    """The bundled strategy that is not found under this name any more."""


def new_strategy(name: str, directory: Path | None = None) -> NewReport:
    """Write a strategy and its test into `strategies/` of a directory: the one given, else the project, else this one.

    Nothing is overwritten, except stubs that this command wrote before.
    """
    name = name.replace("-", "_")
    if not _NAME.fullmatch(name):
        raise StrategyNameError(name, "it has 1 to 64 of a-z, 0-9 and '_', and begins with a letter")
    if keyword.iskeyword(name) or name.startswith("test_"):
        raise StrategyNameError(name, "it is a word of Python" if keyword.iskeyword(name) else "that is a test's name")
    root = directory or find_project() or Path()
    strategy, test = root / "strategies" / f"{name}.py", root / "strategies" / f"test_{name}.py"
    for path in (strategy, test):
        if path.exists() or path.is_symlink():
            raise StrategyExistsError(name, str(path))
    strategy.parent.mkdir(parents=True, exist_ok=True)
    _write_new(strategy, _STRATEGY.format(name=name))
    _write_new(test, _TEST.format(name=name))
    stubs = root / PYTHON_STUB_NAME
    written = [str(strategy), str(test), *([str(stubs)] if _write_stubs(stubs) else [])]
    hides = str(BUNDLED / f"{name}.py") if (BUNDLED / f"{name}.py").exists() else None
    return NewReport(name, str(strategy), str(test), str(stubs), written, hides)


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:  # and not over what has come since we looked
        file.write(text)


def _write_stubs(path: Path) -> bool:
    """Write the stubs, unless somebody else's are there; whether anything was written."""
    text = render_python_stubs()
    try:
        there = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = None
    if there is not None and (there == text or there.partition("\n")[0] != text.partition("\n")[0]):
        return False
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")  # whole or not at all: an editor may be reading
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return True
