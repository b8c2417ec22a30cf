"""`run` with sandboxed Python: files, names, standard input, parameters, limits, and how faults are told."""

from __future__ import annotations

import json

import pytest

from tests.cli.helpers import Home

GREETER = """\
def run(ctx):
    name = llm(f"What is your {ctx['what']}?", max_tokens=7)
    return f"Hello {name}"
"""

MARKED = """\
def run(ctx):
    return llm("Who?") + env["MARK"]
"""

FAULTY = """\
import os

def run(ctx):
    return await llm("Who?")
"""

BRITTLE = """\
def inner(text):
    return int(text)

def run(ctx):
    return inner(llm("A number?"))
"""


def write(home: Home, name: str, code: str) -> str:
    path = home.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return str(path)


# --- what is run -----------------------------------------------------------------------------------


def test_a_file_of_python_runs_in_the_sandbox_to_its_result(home: Home) -> None:
    file = write(home, "greeter.py", GREETER)
    event = home.json("run", file, "--ctx", '{"what": "name"}', "--id", "mine")
    assert (event["status"], event["prompt"], event["max_tokens"]) == ("needs_response", "What is your name?", 7)
    assert home.json("show", "mine", "--journal")["journal"][0]["record"]["program"]["kind"] == "python"
    assert home.json("answer", "mine", "Ada")["result"] == "Hello Ada"


def test_env_and_project_reach_a_strategy_in_python(home: Home) -> None:
    write(home, "strategies/marked.py", MARKED)
    sid = home.json("run", "marked", "--project", str(home.folder), "--env", "MARK=!")["session_id"]
    assert home.json("answer", sid, "Ada")["result"] == "Ada!"


def test_the_deadline_and_the_memory_limit_hold_for_python(home: Home) -> None:
    spinner = write(home, "spinner.py", "def run(ctx):\n    n = 0\n    while True:\n        n = n + 1\n")
    slow = home.call("run", spinner, "--deadline", "0.3")
    assert slow.exit_code == 1
    assert "more than 0.3 s without asking anything" in slow.stdout
    hoarder = write(home, "hoarder.py", 'def run(ctx):\n    return len("x" * 40_000_000)\n')
    assert "more than 16 MiB" in home.call("run", hoarder, "--memory", "16").stdout
    assert home.json("run", hoarder)["result"] == 40_000_000


def test_a_native_file_is_refused_with_what_to_do_and_runs_where_it_is_trusted(home: Home) -> None:
    native = write(
        home, "own.py", "import holdfast\n\n@holdfast.strategy\nasync def own(ctx):\n    return await ctx.llm('Hm?')\n"
    )
    refused = home.call("run", native)
    assert refused.exit_code == 2
    assert "run it with --trusted, or as FILE.py:name" in refused.stderr
    assert home.json("run", native, "--trusted")["prompt"] == "Hm?"
    assert home.json("run", f"{native}:own")["prompt"] == "Hm?"


def test_standard_input_is_lua_unless_it_is_said_to_be_python(home: Home) -> None:
    assert json.loads(home.ok("run", "-", "--json", stdin='return alc.llm("Lua?")'))["prompt"] == "Lua?"
    asked = home.ok("run", "-", "--language", "python", "--json", stdin='llm("Python?").upper()\n')
    assert json.loads(asked)["prompt"] == "Python?"
    assert home.json("answer", json.loads(asked)["session_id"], "yes")["result"] == "YES"


def test_the_language_of_a_file_can_be_said(home: Home) -> None:
    file = write(home, "greeter.txt", GREETER)
    assert home.json("run", file, "--language", "python", "--set", "what=name")["prompt"] == "What is your name?"


def test_a_bundled_strategy_runs_by_its_name(home: Home) -> None:
    event = home.json("run", "cot", "--task", "3 boxes of 4", "--set", "steps=2")
    assert "3 boxes of 4" in event["prompt"]
    assert "2 numbered steps" in event["prompt"]


# --- parameters ------------------------------------------------------------------------------------


def test_set_takes_json_or_text_and_task_wins(home: Home) -> None:
    file = write(home, "echo.py", "def run(ctx):\n    return ctx\n")
    given = ("--set", "n=3", "--set", "who=Ada L.", "--set", "deep=[1, null]", "--set", "task=no", "--set", "at=@x")
    result = home.json("run", file, "--ctx", '{"n": 1, "kept": true}', *given, "--task", "yes")["result"]
    assert result == {"n": 3, "kept": True, "who": "Ada L.", "deep": [1, None], "task": "yes", "at": "@x"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["cot", "--set", "n"], "expected KEY=VALUE"),
        (["cot", "--set", "=3"], "expected KEY=VALUE"),
        (["cot", "--ctx", "[1]", "--set", "n=3"], "has to be a JSON object"),
        (["cot", "--full"], "--full needs --dry-run"),
        (["cot", "--dry-run", "--id", "x"], "a dry run makes no session"),
        (["-", "--language", "python", "--trusted"], "from a file"),
        (["--resume", "x", "--set", "n=3"], "only --model, --base-url, --serve and --wait are allowed"),
        (["--resume", "x", "--dry-run"], "only --model, --base-url, --serve and --wait are allowed"),
        (["--resume", "x", "--language", "lua"], "only --model, --base-url, --serve and --wait are allowed"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_sentence(home: Home, args: list[str], told: str) -> None:
    result = home.call("run", *args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not home.db.exists()


def test_a_wrong_parameter_is_refused_with_what_was_wrong_and_nothing_is_stored(home: Home) -> None:
    result = home.call("run", "cot", "--task", "x", "--set", "steps=many")
    assert result.exit_code == 2
    assert "'steps' must be int, got" in result.stderr
    assert not list(home.folder.glob("*.db"))


# --- faults ----------------------------------------------------------------------------------------


def test_faults_are_told_with_place_line_and_caret_and_nothing_is_started(home: Home) -> None:
    file = write(home, "faulty.py", FAULTY)
    result = home.call("run", file)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "holdfast: strategy 'faulty' was not started: it has 2 faults"
    assert lines[1].startswith(f"{file}:1:1: error: sandboxed Python has no module 'os'")
    assert lines[2:4] == ["   1 | import os", "     | ^"]
    assert lines[4].startswith(f"{file}:4:18: error: llm(…) waits for its answer by itself")
    assert lines[4].endswith("[plain-call-awaited]")
    assert lines[5:] == ['   4 |     return await llm("Who?")', "     |                  ^"]
    assert home.json("sessions")["sessions"] == []


def test_faults_are_json_where_json_is_asked_for(home: Home) -> None:
    result = home.call("run", write(home, "faulty.py", FAULTY), "--json")
    assert result.exit_code == 2
    told = json.loads(result.stderr)
    assert (told["kind"], told["file"]) == ("invalid_source", "faulty.py")
    assert [(each["line"], each["column"], each["rule"]) for each in told["findings"]] == [
        (1, 1, "no-module"),
        (4, 18, "plain-call-awaited"),
    ]


def test_faults_of_a_strategy_that_was_found_by_name_are_told_with_its_file(home: Home) -> None:
    file = write(home, "strategies/faulty.py", FAULTY)
    assert f"{file}:1:1: error" in home.call("run", "faulty", "--project", str(home.folder)).stderr


def test_a_session_that_fails_shows_the_traceback_of_the_strategy_and_not_ours(home: Home) -> None:
    sid = home.json("run", write(home, "brittle.py", BRITTLE))["session_id"]
    result = home.call("answer", sid, "twelve")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()[1:]
    assert lines[0].startswith("ValueError: invalid literal for int()")
    assert lines[1:] == [
        "Traceback (most recent call last):",
        '  File "brittle.py", line 5, in run',
        '    return inner(llm("A number?"))',
        '  File "brittle.py", line 2, in inner',
        "    return int(text)",
    ]
