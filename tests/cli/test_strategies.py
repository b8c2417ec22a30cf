"""`strategies` and `strategies show`: the list, what is told about one, and the diagram of its pauses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.programs.sandbox.library import BUNDLED, list_strategies
from tests.cli.helpers import Home

ROUNDS = '''\
"""Drafts in rounds.

Second paragraph.
"""

META = {
    "name": "rounds",
    "category": "writing",
    "description": "Draft, then improve in rounds.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to write."},
        "rounds": {"type": "int", "default": 3, "min": 1, "max": 9, "description": "How many rounds."},
        "tone": {"type": "str", "choices": ["warm", "cold"], "default": "warm", "description": "How it sounds."},
    },
    "calls": "2 + 3 * rounds",
    "result": "a text",
    "paper": {"title": "On Rounds", "authors": "Doe et al.", "year": 2024, "url": "https://example.org/rounds"},
    "script": [{"when": "Draft", "answer": "A draft."}, {"when": "Finish", "answer": "Done."}],
}


def run(ctx):
    p = parameters(META, ctx)
    llm(f"Draft: {p['task']}", role="draft")
    for number in range(p["rounds"]):
        llm_batch([f"Judge {side} in round {number}" for side in ("style", "facts")], role="judge")
        llm(f"Improve in round {number}", role="improve")
    ctx["result"] = llm("Finish.", role="finish")
    return ctx
'''


@pytest.fixture
def project(home: Home) -> Path:
    folder = home.folder / "strategies"
    folder.mkdir()
    (folder / "rounds.py").write_text(ROUNDS)
    return home.folder


def listed(home: Home, project: Path, *args: str) -> dict[str, dict[str, object]]:
    told = home.json("strategies", "--project", str(project), *args)
    return {each["name"]: each for each in told["strategies"]}


# --- the list --------------------------------------------------------------------------------------


def test_the_list_has_every_bundled_strategy_and_those_of_the_project(home: Home, project: Path) -> None:
    found = listed(home, project)
    assert found.keys() == {path.stem for path in BUNDLED.glob("*.py") if not path.stem.startswith("_")} | {"rounds"}
    assert found["rounds"]["origin"] == "project"
    assert found["rounds"]["calls"] == {"formula": "2 + 3 * rounds", "by_default": 11}
    assert found["cot"]["origin"] == "bundled"
    assert [name for name, each in found.items() if "error" in each] == []


def test_the_table_has_a_line_for_each_with_its_cost(home: Home, project: Path) -> None:
    lines = home.ok("strategies", "--project", str(project)).splitlines()
    assert lines[0].split() == ["NAME", "CATEGORY", "CALLS", "FROM", "WHAT", "IT", "DOES"]
    (line,) = [line for line in lines if line.startswith("rounds")]
    assert [part.strip() for part in line.split("  ") if part.strip()] == [
        "rounds",
        "writing",
        "11 = 2 + 3 * rounds",
        "project",
        "Draft, then improve in rounds.",
    ]
    assert "holdfast pkg list" in lines[-1]


def test_a_category_can_be_chosen(home: Home, project: Path) -> None:
    found = listed(home, project, "--category", "writing")
    assert "rounds" in found
    assert {each["category"] for each in found.values()} == {"writing"}
    assert "No strategies in the category 'magic'" in home.ok("strategies", "--category", "magic")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('META = {"name": "bad"}\n', "description"),
        ('META = {"name": "bad", "description": "x", "calls": "many"}\n', "'many' is not a number"),
        ('META = {"name": "bad", "description": "x", "calls": "1 +"}\n', "calls"),
    ],
)
def test_a_strategy_with_a_bad_meta_is_listed_with_the_fault(home: Home, project: Path, code: str, told: str) -> None:
    (project / "strategies" / "bad.py").write_text(code)
    assert told in str(listed(home, project)["bad"]["error"])
    (line,) = [each for each in home.ok("strategies", "--project", str(project)).splitlines() if each.startswith("bad")]
    assert "fault: " in line
    assert told in line
    assert told in home.ok("strategies", "show", "bad", "--project", str(project))


def test_a_file_that_is_no_text_is_listed_with_the_fault(home: Home, project: Path) -> None:
    (project / "strategies" / "bytes.py").write_bytes(b"\xff\xfe")
    assert listed(home, project)["bytes"]["error"] == "it is not text in UTF-8"


def test_a_strategy_that_a_lua_package_hides_is_marked(home: Home, project: Path) -> None:
    package = home.folder / "own" / "packages" / "rounds"
    package.mkdir(parents=True)
    (package / "init.lua").write_text("return { run = function(ctx) return ctx end }")
    assert listed(home, project)["rounds"]["hidden_by"] == str(package)
    assert "hidden by the Lua package of the same name" in home.ok("strategies", "--project", str(project))


def test_on_a_terminal_the_list_fits_and_is_under_headings(home: Home, project: Path) -> None:
    with home.terminal("strategies") as terminal:
        terminal.expect("holdfast pkg list")
        assert terminal.exit_code() == 0
        lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 120
    assert "writing" in [line.strip() for line in lines]
    assert any(line.startswith("  rounds ") for line in lines)


# --- one of them -----------------------------------------------------------------------------------


def test_show_tells_doc_parameters_facts_and_the_pauses_as_lines_in_a_pipe(home: Home, project: Path) -> None:
    shown = home.ok("strategies", "show", "rounds", "--project", str(project))
    assert shown.splitlines() == [
        f"rounds  writing · project · {project}/strategies/rounds.py",
        "Draft, then improve in rounds.",
        "",
        "Drafts in rounds.",
        "",
        "Second paragraph.",
        "",
        "Parameters",
        "  task    str, required  What to write.",
        "  rounds  int = 3        How many rounds. 1 to 9.",
        "  tone    str = warm     How it sounds. One of warm, cold.",
        "",
        "Facts",
        "  calls   at most 11 = 2 + 3 * rounds",
        "  result  a text",
        "  paper   Doe et al. (2024): On Rounds. https://example.org/rounds",
        "",
        "Pauses  a rehearsal with the script in its META: 11 calls in 8 pauses",
        "1. draft: Draft: ‹task›",
        "   -> A draft.",
        "3 times:",
        "  2. judge ×2: Judge style in round 0 (and 1 like it)",
        "     -> An answer.",
        "  3. improve: Improve in round 0",
        "     -> An answer.",
        "8. finish: Finish.",
        "   -> Done.",
        "result: Done.",
    ]


def test_show_draws_boxes_on_a_terminal(home: Home, project: Path) -> None:
    home.serve_nothing()
    with home.terminal("strategies", "show", "rounds") as terminal:
        terminal.expect("■ result Done.")
        assert terminal.exit_code() == 0
        lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.strip(" ╭╮─┌┐│") for line in lines if "╭" in line or "┌" in line] == [
        "1 draft",
        "↻ 3 times",
        "2 judge ×2",
        "3 improve",
        "8 finish",
    ]


def test_questions_of_one_pause_are_drawn_side_by_side(home: Home) -> None:
    file = home.folder / "wide.py"
    roles = ", ".join(f'{{"prompt": "As {who}?", "role": "{who}"}}' for who in ("engineer", "tester", "manager"))
    file.write_text(f"def run(ctx):\n    return llm_batch([{roles}])\n")
    with home.terminal("strategies", "show", str(file)) as terminal:
        terminal.expect("■ result")
        (heads,) = [line for line in terminal.shown.splitlines() if "╭" in line]
    assert [word for word in heads.split() if word.isalpha()] == ["engineer", "tester", "manager"]


def test_show_as_json_has_the_diagram(home: Home, project: Path) -> None:
    told = home.json("strategies", "show", "rounds", "--project", str(project))
    assert told["paper"]["year"] == 2024
    assert told["doc"].startswith("Drafts in rounds.")
    first, loop, last = told["rehearsal"]["diagram"]
    assert (first["is"], first["pause"], last["pause"]) == ("pause", 1, 8)
    assert (loop["is"], loop["times"], [step["pause"] for step in loop["steps"]]) == ("loop", 3, [2, 3])
    assert [(box["label"], box["times"], box["is_same"]) for box in loop["steps"][0]["boxes"]] == [("judge", 2, False)]
    assert told["rehearsal"]["totals"]["llm_calls"] == 11


def test_show_takes_a_file_and_one_that_says_nothing_about_itself(home: Home) -> None:
    file = home.folder / "bare.py"
    file.write_text('llm("Who?")\n')
    shown = home.ok("strategies", "show", str(file))
    assert "It has no META" in shown
    assert "1. llm: Who?" in shown


def test_a_rehearsal_that_fails_is_shown_as_far_as_it_came(home: Home) -> None:
    file = home.folder / "number.py"
    file.write_text('def run(ctx):\n    return int(llm("A number?"))\n')
    shown = home.ok("strategies", "show", str(file))
    assert "1. llm: A number?" in shown
    assert "failed: ValueError" in shown


def test_a_name_that_is_not_there_is_told_with_one_that_is_near(home: Home) -> None:
    result = home.call("strategies", "show", "cott")
    assert result.exit_code == 3
    assert "did you mean 'cot'?" in result.stderr


@pytest.mark.parametrize("name", [each.name for each in list_strategies() if each.origin == "bundled"])
def test_every_bundled_strategy_can_be_shown(home: Home, name: str) -> None:
    told = home.json("strategies", "show", name)
    assert "error" not in told["rehearsal"]
    totals = told["rehearsal"]["totals"]
    assert 1 <= totals["llm_calls"] <= totals["most_llm_calls"]


def test_names_of_strategies_are_completed(home: Home, project: Path) -> None:
    def suggested(words: str) -> list[str]:
        env = {"_HOLDFAST_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        return home.process(env=env).stdout.splitlines()

    for words in ("holdfast run ro", "holdfast check ro", "holdfast strategies show ro"):
        assert "rounds" in suggested(words)
    assert json.loads(home.process("strategies", "--json").stdout)["strategies"]
