"""The version of a strategy: the same for the same code, another one for another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.programs.registry import load
from holdfast.testing.patience import HANG_S
from tests.tables import each_row

CODE = '''
import holdfast

KINDS = ("bug", "wish")
seen = []

def prompt(task):
    return tidy(f"Which of {KINDS}? {task}")

def tidy(text):
    return text.strip()

def unused():
    return 1

@holdfast.strategy
async def triage(ctx, most=3):
    """Find the kind."""
    def again(text):
        return text in {"bug", "wish", "question"}
    seen.append(1)
    return again(await ctx.llm(prompt(ctx.task)))
'''


def version(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "triage.py").write_text(text)
    return load(f"{folder}/triage.py:triage").version


@each_row(
    ("old", "new"),
    [
        ("import holdfast\n", "import holdfast\n\n# A comment.\n\n\n"),
        ('"""Find the kind."""', '"""Find out which kind it is."""'),
        ("    seen.append(1)\n", "    seen.append(1)  # a comment\n\n"),
        ("return 1", "return 2"),
    ],
)
def test_lines_comments_the_docstring_and_what_is_not_used_do_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert version(tmp_path / "a", CODE) == version(tmp_path / "b", CODE.replace(old, new))


@each_row(
    ("old", "new"),
    [
        ("again(await ctx.llm(prompt(ctx.task)))", "await ctx.llm(prompt(ctx.task))"),
        ('"question"', '"other"'),
        ("most=3", "most=4"),
        ("Which of", "Is it one of"),
        ("text.strip()", "text.lower()"),
        ('KINDS = ("bug", "wish")', 'KINDS = ("bug", "idea")'),
        ("seen.append(1)", "seen.append(2)"),
    ],
)
def test_code_constants_and_the_functions_it_calls_count(tmp_path: Path, old: str, new: str) -> None:
    assert version(tmp_path / "a", CODE) != version(tmp_path / "b", CODE.replace(old, new))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_every_process_gives_the_same_version(tmp_path: Path, seed: str) -> None:
    here = version(tmp_path, CODE)
    done = subprocess.run(
        [sys.executable, "-c", "import triage; print(triage.triage.version)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert done.stdout.strip() == here
