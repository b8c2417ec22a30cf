"""`check`: what is found in strategies without running them, and how it is told."""

from __future__ import annotations

import json

import pytest

from tests.cli.helpers import Home

GOOD = """\
META = {"name": "good", "description": "Asks once.", "calls": "1"}

def run(ctx):
    return llm("Who?")
"""


def write(home: Home, name: str, code: str) -> str:
    (home.folder / name).write_text(code)
    return str(home.folder / name)


def with_parameter(fields: str) -> str:
    """A META with one parameter."""
    return f'{{"name": "own", "description": "x", "parameters": {{"n": {{{fields}, "description": "n"}}}}}}'


def rules(home: Home, name: str, code: str) -> list[tuple[int, str, str]]:
    """The findings in a file: line, level, rule."""
    result = home.call("check", write(home, name, code), "--json")
    told = json.loads(result.stdout)
    found = told["files"][0]["findings"]
    has_errors = any(each["level"] == "error" for each in found)
    assert (result.exit_code, told["ok"]) == ((1, False) if has_errors else (0, True))
    return [(each["line"], each["level"], each["rule"]) for each in found]


def test_sound_files_and_names_have_no_faults(home: Home) -> None:
    lua = write(home, "fine.lua", 'return alc.llm("Who?")')
    assert home.ok("check", write(home, "good.py", GOOD), "cot", lua) == "3 files, no faults\n"


def test_a_type_error_is_shown_with_its_line_and_a_caret(home: Home) -> None:
    file = write(home, "typed.py", 'def run(ctx):\n    return llm("Who?", max_tokens="many")\n')
    result = home.call("check", file)
    assert result.exit_code == 1
    first, *others = result.stdout.splitlines()
    assert first.startswith(f"{file}:2:24: error: Argument to function `llm` is incorrect")
    assert first.endswith("[invalid-argument-type]")
    assert others == [
        '   2 |     return llm("Who?", max_tokens="many")',
        "     |                        ^",
        "1 file, 1 fault",
    ]


def test_a_long_line_is_cut_around_the_place(home: Home) -> None:
    padding = " + ".join(['"padding"'] * 40)
    file = write(home, "long.py", f"def run(ctx):\n    return {padding} + llm(3)\n")
    _, shown, caret, _ = home.call("check", file).stdout.splitlines()
    assert len(shown) <= 160
    assert shown[caret.index("^")] == "3"


def test_what_the_sandbox_lacks_is_found_in_all_places_at_once(home: Home) -> None:
    code = "import socket\n\nclass Own(dict):\n    pass\n\ndef run(ctx):\n    del ctx['task']\n    return 1\n"
    assert rules(home, "lacking.py", code) == [
        (1, "error", "no-module"),
        (3, "error", "no-inheritance"),
        (7, "error", "no-del"),
    ]


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ('{"name": "own"}', "missing required field `description`"),
        ('{"name": "own", "description": "x", "cost": 3}', "unknown field `cost`"),
        ('{"name": "own", "description": "x", "calls": "n + 1"}', "'n' is not a number"),
        ('dict(name="own")', "must be written out"),
        (with_parameter('"type": "int", "default": "3"'), "a default is wrong: own: 'n' must be int"),
        (with_parameter('"type": "int", "default": 9, "max": 5'), "'n' must be at most 5, got 9"),
    ],
)
def test_a_bad_meta_is_an_error_at_its_line(home: Home, meta: str, told: str) -> None:
    file = write(home, "own.py", f"import json\n\nMETA = {meta}\n\ndef run(ctx):\n    return 1\n")
    result = home.call("check", file, "--json")
    (finding,) = json.loads(result.stdout)["files"][0]["findings"]
    assert result.exit_code == 1
    assert (finding["line"], finding["rule"]) == (3, "meta")
    assert told in finding["message"]


def test_doubts_are_warnings_and_no_faults(home: Home) -> None:
    assert rules(home, "bare.py", 'llm("Who?")\n') == [(1, "warning", "no-run")]
    assert rules(home, "other.py", GOOD) == [(1, "warning", "meta-name")]
    assert "1 file, no faults, 1 warning" in home.ok("check", str(home.folder / "bare.py"))


def test_text_that_is_no_python_is_told_once_and_without_guesses(home: Home) -> None:
    found = rules(home, "broken.py", "def run(ctx:\n    return 1\n")
    assert found
    assert {(level, rule) for _, level, rule in found} == {("error", "invalid-syntax")}


def test_a_native_strategy_is_told_how_it_can_be_run(home: Home) -> None:
    result = home.call("check", str(home.file))
    assert result.exit_code == 1
    assert "--trusted, or as FILE.py:name" in result.stdout


def test_the_syntax_of_lua_is_checked(home: Home) -> None:
    file = write(home, "broken.lua", "local x = 1\nreturn x +\n")
    result = home.call("check", file)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{file}:3:1: error: unexpected symbol near <eof> [syntax]\n")


def test_lua_is_not_run_by_a_check(home: Home) -> None:
    assert home.ok("check", write(home, "loop.lua", "while true do end")) == "1 file, no faults\n"


def test_standard_input_is_checked_in_either_language(home: Home) -> None:
    python = home.call("check", "-", stdin="llm(3)\n")
    assert python.exit_code == 1
    assert "<stdin>:1:5: error:" in python.stdout
    assert home.ok("check", "-", "--language", "lua", stdin="return 1 + 1") == "1 file, no faults\n"


def test_tests_beside_strategies_are_left_out(home: Home) -> None:
    good, test = write(home, "good.py", GOOD), write(home, "test_good.py", "import holdfast\n")
    assert home.ok("check", good, test) == "1 file, no faults\n"


def test_what_is_not_there_is_told(home: Home) -> None:
    assert home.call("check", "nobody").exit_code == 3
    missing = home.call("check", "missing.py")
    assert missing.exit_code == 3
    assert "No such file" in missing.stderr
