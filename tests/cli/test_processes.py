"""The command as a process: exit codes, errors as JSON, interrupts, pipes, a store in common, the demo."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.patience import HANG_S
from tests.cli.helpers import Home

OWNER = """
import asyncio, os, sys, holdfast

async def main(url, program, gate):
    async with holdfast.open(url) as hf:
        async def slow():
            while not os.path.exists(gate):
                await asyncio.sleep(0.01)
            return "late"
        hf.drive("slow", slow)
        await hf.start(program, id="owned", wait=0)
        print("started", flush=True)
        print(await hf.result("owned", timeout=60), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_one_store_is_shared_by_a_running_process_and_the_command(home: Home) -> None:
    gate = home.folder / "gate"
    command = [sys.executable, "-c", OWNER, home.url, f"{home.file}:owned", str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "started\n"
            row = home.json("sessions")["sessions"][0]
            assert (row["waiting_for"], row["owner"] is not None) == (["human", "tool"], True)
            assert home.json("answer", "owned", "Ada", "--query", "q-0")["status"] == "accepted"
            gate.touch()  # the answer did not wait for the owner's effect
            assert owner.stdout.readline() == "Ada and late\n"
        finally:
            owner.kill()


def test_errors_are_json_on_stderr_where_json_is_asked_for(home: Home) -> None:
    home.start("greet")
    result = home.process("show", "nobody", "--json")
    assert (result.returncode, result.stdout) == (3, "")
    assert json.loads(result.stderr)["kind"] == "session_not_found"
    usage = home.process("--json", "show")
    assert usage.returncode == 2
    assert json.loads(usage.stderr)["kind"] == "usage"


def test_options_go_before_the_command_or_after_it(home: Home, tmp_path: Path) -> None:
    home.start("greet", "--id", "here")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    home.ok("run", f"{home.file}:greet", "--id", "there", "--store", other)
    for args in (["--store", other, "--json", "sessions"], ["sessions", "--json", "--store", other]):
        assert [row["session_id"] for row in json.loads(home.ok(*args))["sessions"]] == ["there"]


def test_a_store_that_cannot_be_used_gives_exit_code_5(home: Home, tmp_path: Path) -> None:
    home.start("greet")
    missing = home.call("sessions", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert missing.exit_code == 5
    assert "there is no such file" in missing.stderr
    assert not (tmp_path / "none.db").exists()
    foreign = tmp_path / "notes.txt"
    foreign.write_text("no database " * 100)
    assert home.call("sessions", "--store", f"sqlite:///{foreign}").exit_code == 5
    assert home.call("sessions", "--store", "mysql://x").exit_code == 5
    with closing(sqlite3.connect(home.db)) as connection, connection:
        connection.execute("PRAGMA user_version = 999")
    newer = home.call("sessions")
    assert newer.exit_code == 5
    assert "Use a newer Holdfast" in newer.stderr


def test_a_store_in_memory_is_refused(home: Home) -> None:
    result = home.call("run", f"{home.file}:greet", "--store", "memory:")
    assert result.exit_code == 2
    assert "gone when the command ends" in result.stderr


def test_ctrl_c_gives_exit_code_130_and_a_sentence(home: Home) -> None:
    sid = home.start("greet")
    watching = home.background("watch", sid)
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=HANG_S)
    assert watching.returncode == 130
    assert told.strip().splitlines()[-1] == "holdfast: interrupted; all answers are kept"


def test_a_reader_that_goes_away_is_no_error(home: Home) -> None:
    sid = home.start("greet")
    watching = home.background("watch", sid)
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.stdout.close()
    home.ok("answer", sid, "Ada")
    assert watching.stderr is not None
    with watching.stderr:
        assert watching.stderr.read() == ""
    assert watching.wait(timeout=HANG_S) == 141


def test_version_and_help_come_from_the_installed_command(home: Home) -> None:
    assert home.process("--version").stdout == f"holdfast {holdfast.__version__}\n"
    assert "doctor" in home.process("--help").stdout
    assert home.process().returncode == 2
    unknown = home.process("dance")
    assert unknown.returncode == 2
    assert unknown.stderr == "holdfast: No such command 'dance'; see `holdfast --help`\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(home: Home, shell: str) -> None:
    assert "_HOLDFAST_COMPLETE" in home.ok("completion", shell)


def test_completion_knows_sessions_strategies_and_functions_of_a_file(home: Home) -> None:
    home.start("greet", "--id", "s-one")

    def suggested(words: str) -> list[str]:
        env = {"_HOLDFAST_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        return home.process(env=env).stdout.splitlines()

    assert "s-one" in suggested("holdfast show s-")
    assert "strategies:greet" in "\n".join(suggested("holdfast run strategies:gr")).replace("\\:", ":")
    assert f"{home.file}:panel" in "\n".join(suggested(f"holdfast run {home.file}:pa")).replace("\\:", ":")
    assert "sessions" in suggested("holdfast ses")


def test_the_demo_survives_its_kill_and_counts_every_question_once(home: Home) -> None:
    result = home.process("demo", "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["ok"] is True
    assert facts["first_exit"] == -signal.SIGKILL
    assert facts["first_pid"] != facts["second_pid"]
    assert facts["effects"] == {"pay_deposit": 1, "send_invitation": 1}
    assert facts["asked_again"] == []
    assert facts["answered_before"][:4] == ["q-0", "q-1", "q-2", "q-3"]
    assert not home.db.exists()
