"""Completion: the scripts work in the shells that are installed, and what they are told is right in any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.patience import HANG_S
from tests.cli.helpers import Home

COMPLETE = {
    "bash": """
compopt() {{ :; }}
{script}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_holdfast_completion holdfast
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
compdef() {{ :; }}
_describe() {{ for each in ${{(P)3}}; do print -r -- ${{each%%:*}}; done }}
compadd() {{ print -rl -- ${{(P)argv[-1]}} }}
{script}
words=({words}); CURRENT=${{#words}}
_holdfast_completion
""",
    "fish": """
{script}
complete --do-complete "{words}" | string split -f1 \\t
""",
}
"""What each shell does when a key is pressed, without the key."""


def suggestions(home: Home, shell: str, *words: str) -> list[str]:
    """What a shell suggests for the last of some words."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = home.process("completion", shell).stdout
    command = COMPLETE[shell].format(script=script, words=" ".join(words))
    folder = _on_path(home.folder)
    env = {**os.environ, "HOLDFAST_STORE": home.url, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, "-c", command], env=env, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=home.folder
    )
    assert done.stderr == ""
    return [each for each in done.stdout.split("\n") if each]


def _on_path(folder: Path) -> Path:
    """A folder with the command in it, as the scripts call it by its name."""
    found = folder / "bin" / "holdfast"
    found.parent.mkdir(exist_ok=True)
    found.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast.cli "$@"\n')
    found.chmod(0o755)
    return found.parent


@pytest.mark.parametrize("shell", COMPLETE)
def test_a_shell_completes_commands_sessions_and_strategies(home: Home, shell: str) -> None:
    home.ok("run", f"{home.file}:greet", "--id", "greeting")
    assert suggestions(home, shell, "holdfast", "sess") == ["sessions"]
    assert suggestions(home, shell, "holdfast", "show", "gree") == ["greeting"]
    assert "self_consistency" in suggestions(home, shell, "holdfast", "run", "self_con")


@pytest.mark.parametrize(("shell", "separator"), [("bash", " "), ("zsh", " "), ("fish", " ")])
def test_what_a_script_asks_for_is_answered_for_each_shell(home: Home, shell: str, separator: str) -> None:
    home.ok("run", f"{home.file}:greet", "--id", "greeting")
    env = {"_HOLDFAST_COMPLETE": f"{shell}_complete", "COMP_WORDS": separator.join(["holdfast", "show", "gree"])}
    env["COMP_CWORD"] = "gree" if shell == "fish" else "2"
    assert "greeting" in home.process(env=env).stdout
