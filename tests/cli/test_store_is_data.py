"""A store is data: nothing is imported because a journal, a mailbox or a message names it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.patience import HANG_S, until_so
from tests.cli.helpers import Home

SCRIPT = """
    import pathlib
    import holdfast

    with open(pathlib.Path(__file__).parent / "ran.txt", "a") as ran:
        ran.write("ran\\n")

    @holdfast.strategy
    async def triage(ctx):
        return "It is a " + await ctx.llm("Bug or wish?")

    with holdfast.open_sync({url!r}) as hf:
        print(hf.start(triage).session_id)
"""
"""A script that somebody wrote without a guard: whoever imports it starts another session."""


@pytest.fixture
def sid(home: Home) -> str:
    """A session that such a script has started; nothing is served."""
    (home.folder / "holdfast.toml").write_text("")
    script = home.folder / "app.py"
    script.write_text(textwrap.dedent(SCRIPT.format(url=home.url)))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=HANG_S, check=True)
    return done.stdout.strip()


def times_run(folder: Path) -> int:
    return len((folder / "ran.txt").read_text().splitlines())


def test_an_answer_does_not_run_the_file_that_a_session_came_from(home: Home, sid: str) -> None:
    answered = home.process("answer", sid, "bug")
    assert answered.returncode == 0, answered.stderr
    assert "the answer is kept in the mailbox" in answered.stdout
    assert times_run(home.folder) == 1
    assert len(home.json("sessions")["sessions"]) == 1


def test_an_answer_that_nobody_takes_is_explained_wherever_one_looks(home: Home, sid: str) -> None:
    home.process("answer", sid, "bug")
    waits = "has 1 message in its mailbox; waits for a process that serves service `default` and program `app:triage`"
    assert f"{sid}  stands still, {waits}" in home.ok("doctor")
    assert waits in home.json("show", sid)["waits"]["why"]
    assert home.json("top", "--once")["sessions"][0]["missing"] == ["service `default`", "program `app:triage`"]
    assert waits in home.process("run", "--resume", sid).stderr


def test_a_worker_does_not_run_the_file_that_a_session_came_from(home: Home, sid: str) -> None:
    home.process("answer", sid, "bug")
    other = home.start("greet")
    assert home.json("answer", other, "Ada")["sent"]
    worker = home.background("worker", "--serve", str(home.file))
    try:
        until_so(lambda: _outcome(home, other))  # it has looked at the sessions of the store
        assert home.json("show", sid)["state"] == "paused"
    finally:
        worker.terminate()
        worker.communicate(timeout=HANG_S)
    assert times_run(home.folder) == 1
    assert len(home.json("sessions")["sessions"]) == 2


def test_a_worker_continues_the_sessions_of_what_it_serves(home: Home, sid: str) -> None:
    home.process("answer", sid, "bug")
    (home.folder / "app.py").write_text(
        "import holdfast\n\n@holdfast.strategy\nasync def triage(ctx):\n"
        "    return 'It is a ' + await ctx.llm('Bug or wish?')\n"
    )
    worker = home.background("worker", "--serve", f"{home.folder}/app.py")
    try:
        assert until_so(lambda: _outcome(home, sid))["result"] == "It is a bug"
    finally:
        worker.terminate()
        worker.communicate(timeout=HANG_S)


def _outcome(home: Home, sid: str) -> Any:
    return home.json("show", sid).get("outcome")
