"""`run --dry-run`: what would be asked, in any language, and nothing is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.strategies import rehearsal
from tests.cli.helpers import Home

TEAM = """\
META = {
    "name": "team",
    "description": "Several opinions, one answer.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to answer."},
        "n": {"type": "int", "default": 3, "description": "How many opinions."},
    },
    "calls": "n + 1",
    "script": [{"when": "Your opinion", "answer": "Do it."}],
}

def run(ctx):
    p = parameters(META, ctx)
    opinions = llm_batch([f"Your opinion: {p['task']}"] * p["n"], role="opinion")
    ctx["result"] = llm("Sum up:\\n" + "\\n".join(opinions), role="sum", system="You are brief.")
    return ctx
"""

CARDER = """\
def run(ctx):
    made = card.create({"pkg": {"name": "x"}})
    return [llm("Next?"), made["path"]]
"""


def team(home: Home) -> str:
    path = home.folder / "team.py"
    path.write_text(TEAM)
    return str(path)


def test_a_dry_run_tells_each_pause_with_prompts_answers_and_totals(home: Home) -> None:
    shown = home.ok("run", team(home), "--task", "Shall we?", "--dry-run")
    assert shown.splitlines() == [
        "Dry run of team  sandboxed Python; nothing is stored, nobody is asked",
        "",
        "Pause 1  3 questions at once",
        "  q-0 … q-2 ×3 llm · opinion · about 6 tokens",
        "    Your opinion: Shall we?",
        "  → Do it.",
        "",
        "Pause 2",
        "  q-3 llm · sum · about 11 tokens",
        "    system: You are brief.",
        "    Sum up:",
        "    Do it.",
        "    Do it.",
        "    Do it.",
        "  → An answer.  (by default)",
        "",
        "completed",
        "{",
        '  "task": "Shall we?",',
        '  "result": "An answer."',
        "}",
        "",
        "4 model calls in 2 pauses, about 29 prompt tokens. META says at most 4 calls.",
    ]


def test_nothing_is_stored_and_no_store_is_made(home: Home) -> None:
    home.ok("run", team(home), "--task", "x", "--dry-run")
    assert home.call("run", "nobody", "--dry-run").exit_code == 3
    assert not home.db.exists()
    home.start("greet")
    home.ok("run", team(home), "--task", "x", "--dry-run")
    assert [row["strategy"] for row in home.json("sessions")["sessions"]] == ["strategies:greet"]


def test_cards_that_a_dry_run_makes_are_not_among_those_of_the_user(home: Home) -> None:
    file = home.folder / "carder.py"
    file.write_text(
        'def run(ctx):\n    made = card.create({"pkg": {"name": "x"}})\n    return [llm("Next?"), made["path"]]\n'
    )
    answer, path = home.json("run", str(file), "--dry-run")["result"]
    assert answer == "An answer."
    assert not Path(path).exists()
    assert not (home.folder / "own" / "cards").exists()
    sid = home.json("run", str(file))["session_id"]
    _, kept = home.json("answer", sid, "now")["result"]
    assert Path(kept).is_relative_to(home.folder / "own" / "cards")


def test_a_strategy_that_asks_for_ever_is_stopped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "MAX_CALLS", 10)
    file = home.folder / "endless.py"
    file.write_text('def run(ctx):\n    while True:\n        llm("Again?")\n')
    result = home.call("run", str(file), "--dry-run", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert "may be in a loop" in told["error"]
    assert told["totals"]["llm_calls"] == 10


def test_a_dry_run_as_json_has_queries_answers_and_who_said_them(home: Home) -> None:
    told = home.json("run", team(home), "--task", "Shall we?", "--set", "n=2", "--dry-run")
    assert (told["dry_run"], told["program"], told["kind"], told["assumed"]) == (True, "team", "python", {})
    first, second = told["pauses"]
    assert [(each["id"], each["answer"], each["answered_by"]) for each in first["queries"]] == [
        ("q-0", "Do it.", "script"),
        ("q-1", "Do it.", "script"),
    ]
    (last,) = second["queries"]
    assert (last["system"], last["options"], last["answered_by"]) == ("You are brief.", {"role": "sum"}, "default")
    assert told["totals"] == {
        "pauses": 2,
        "llm_calls": 3,
        "other_calls": 0,
        "prompt_tokens": sum(each["prompt_tokens"] for pause in told["pauses"] for each in pause["queries"]),
        "most_llm_calls": 3,
    }
    assert told["result"] == {"task": "Shall we?", "n": 2, "result": "An answer."}


def test_what_is_needed_and_not_given_is_stood_in_for(home: Home) -> None:
    shown = home.ok("run", team(home), "--dry-run")
    assert "task was not given; ‹task› is used instead" in shown
    assert "Your opinion: ‹task›" in shown


def test_long_prompts_are_shortened_unless_they_are_wanted_in_full(home: Home) -> None:
    task = "begin " + "words " * 400 + "end"
    short = home.ok("run", "cot", "--task", task, "--dry-run")
    assert task not in short
    assert "begin words" in short
    assert " … " in short
    assert "Reason step by step" in short
    assert task in home.ok("run", "cot", "--task", task, "--dry-run", "--full")


def test_a_native_strategy_is_rehearsed_too(home: Home) -> None:
    told = home.json("run", f"{home.file}:choose", "--dry-run")
    assert (told["kind"], told["result"], told["totals"]["other_calls"]) == ("native", "tea", 1)
    panel = home.ok("run", f"{home.file}:panel", "--dry-run")
    assert "Pause 1  3 questions at once" in panel
    assert "third?" in panel


def test_questions_of_children_are_shown_with_those_of_the_parent(home: Home) -> None:
    told = home.json("run", f"{home.file}:delegate", "--dry-run")
    assert [query["id"] for pause in told["pauses"] for query in pause["queries"]] == ["q-0.q-0"]
    assert told["result"] == "Hello An answer.!"


def test_lua_is_rehearsed_too(home: Home) -> None:
    file = home.folder / "twice.lua"
    file.write_text('local a = alc.llm("first: " .. ctx.task)\nreturn alc.llm("second: " .. a)')
    told = home.json("run", str(file), "--task", "x", "--dry-run")
    assert [pause["queries"][0]["prompt"] for pause in told["pauses"]] == ["first: x", "second: An answer."]
    assert (told["kind"], told["result"]) == ("lua", "An answer.")


def test_a_strategy_that_was_run_before_is_found_by_its_name(home: Home) -> None:
    home.start("greet")
    assert home.json("run", "greet", "--dry-run")["result"] == "Hello An answer."


def test_a_failure_is_told_with_what_was_asked_before_it(home: Home) -> None:
    file = home.folder / "number.py"
    file.write_text('def run(ctx):\n    return int(llm("A number?"))\n')
    result = home.call("run", str(file), "--dry-run")
    assert result.exit_code == 1
    assert "A number?" in result.stdout
    assert "ValueError: invalid literal for int()" in result.stdout
    assert 'META["script"]' in result.stdout


def test_the_budget_holds_in_a_dry_run(home: Home) -> None:
    result = home.call("run", team(home), "--task", "x", "--budget", "max_llm_calls=3", "--dry-run")
    assert result.exit_code == 1
    assert "max_llm_calls" in result.stdout


def test_a_source_with_faults_is_not_rehearsed(home: Home) -> None:
    file = home.folder / "faulty.py"
    file.write_text("import os\n")
    result = home.call("run", str(file), "--dry-run")
    assert result.exit_code == 2
    assert "has no module 'os'" in result.stderr
