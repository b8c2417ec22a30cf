"""`eval`: plans, figures, gates and files, by the command; and limits of money of `run`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.agent.providers.provider import ModelRequest
from holdfast.cli import sessions
from holdfast.core.queries import Usage
from holdfast.strategies.evaluation import programs
from holdfast.testing.provider import ScriptStep, reply
from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home


def right_on_even(request: ModelRequest) -> ScriptStep:
    """The model knows the answers to questions with an even number; as a judge, it likes everything."""
    text = request.messages[-1].text
    if text.startswith("You assess"):
        return "Yes"
    number = int(text.split()[-1])
    return reply(str(number) if number % 2 == 0 else "?", usage=Usage(prompt_tokens=100, completion_tokens=10))


@pytest.fixture
def data(home: Home) -> Path:
    rows = [{"id": f"c{number}", "input": f"Say {number}", "expected": number} for number in range(6)]
    (home.folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home.folder / "q.jsonl"


def run(home: Home, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = home.process("eval", *words)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def test_an_evaluation_from_its_plan_to_its_files(home: Home, data: Path) -> None:
    plan = 'strategies = ["model"]\nmodels = ["m1", "m2"]\ndata = "q.jsonl"\nrepeat = 2\n'
    (home.folder / "plan.toml").write_text(f"{plan}[prices.m1]\nprompt = 1\ncompletion = 2\n")
    with serving(right_on_even, loop=True) as server:
        at = ("--base-url", server.url)
        dry = run(home, "run", "plan.toml", "--dry-run")
        assert "calls at most" in dry.stdout
        assert server.requests == []
        shown = run(home, "run", "plan.toml", "--id", "e-1", *at)
        assert "model@m1" in shown.stdout
        assert "0.500" in shown.stdout
        assert len(server.requests) == 24
        assert "24 of 24 trials" in shown.stderr
        again = json.loads(run(home, "run", "plan.toml", "--id", "e-1", "--json", *at).stdout)
        assert (again["state"], again["arms"][0]["cost"]) == ("done", pytest.approx(12 * 120 / 1e6))
        assert again["arms"][1]["cost"] is None
        run(home, "add", "e-1", "--repeat", "3", "--model", "m3", *at)
        assert len(server.requests) == 24 + 12 + 18
        graded = run(home, "grade", "e-1", "--grader", "llm_yes_no", "--judge", "judge", *at)
        assert "1.000" in graded.stdout
        assert {request.model for request in server.requests[54:]} == {"judge"}
    found = home.json("eval", "list")
    assert [(each["id"], each["state"], each["cases"]) for each in found] == [("e-1", "done", 6)]
    assert home.json("eval", "show", "e-1", "--grading", "0")["arms"][0]["pass_rate"] == 0.5
    compared = home.json("eval", "compare", "e-1:model@m1", "e-1:model@m2")
    assert (compared["common"], compared["paired"]["difference"]["mean"]) == (6, 0.0)
    assert "cases, tried 1 × each" in home.ok("eval", "power", "--delta", "0.03", "--from", "e-1")
    home.ok("eval", "report", "e-1", "-o", str(home.folder / "r.html"))
    assert (home.folder / "r.html").read_text().startswith("<!doctype html>")
    assert len(home.ok("eval", "export", "e-1").splitlines()) == 54
    assert home.ok("eval", "export", "e-1", "--format", "csv").startswith("session,arm,")
    logs = home.ok("eval", "export", "e-1", "--format", "inspect", "-o", str(home.folder / "logs"))
    assert len(logs.splitlines()) == 3
    assert len(home.ok("eval", "export", "e-1", "--format", "card").split()) == 3
    (home.folder / "labels.csv").write_text("case,passed\nc0,yes\nc1,no\n")
    assert "kappa" in home.ok("eval", "grade", "e-1", "--labels", str(home.folder / "labels.csv"))


def test_a_terminal_shows_how_far_it_is(home: Home, data: Path) -> None:
    with serving(right_on_even, loop=True) as server:
        words = ("eval", "run", "--strategy", "model", "--model", "m1", "--data", str(data), "--base-url", server.url)
        with home.terminal(*words) as terminal:
            terminal.expect("of 6 trials")
            terminal.expect("model@m1")
            assert terminal.exit_code() == 0
        assert "█" in terminal.shown


def test_the_bound_of_the_interval_decides(home: Home, data: Path) -> None:
    with serving(right_on_even, loop=True) as server:
        words = ("run", "--strategy", "model", "--model", "m1", "--data", str(data), "--base-url", server.url)
        below = run(home, *words, "--id", "e-1", "--min-score", "0.4", code=1)
        assert "begins at 0.188, below 0.4" in below.stderr
        run(home, *words, "--id", "e-1", "--min-score", "0.1")
        run(home, *words, "--id", "e-2", "--no-worse-than", "e-1:model@m1", "--margin", "0.02")
        with_two = run(
            home,
            "run",
            "--strategy",
            "model",
            "--model",
            "m1,m2",
            *words[5:],
            "--id",
            "e-3",
            "--no-worse-than",
            "m9",
            code=3,
        )
        assert "m9" in with_two.stderr


def test_trials_are_folded_into_their_evaluation(home: Home, data: Path) -> None:
    home.ok("run", f"{home.file}:greet", "--id", "s-other")
    with serving(right_on_even, loop=True) as server:
        words = ("--strategy", "model", "--model", "m1", "--data", str(data), "--base-url", server.url)
        run(home, "run", *words, "--id", "e-1")
    listed = home.json("sessions")["sessions"]
    assert [(each["session_id"], each.get("below")) for each in listed] == [("e-1", 6), ("s-other", None)]
    assert "holdfast.evaluation (+6)" in home.ok("sessions")
    below = home.json("sessions", "--parent", "e-1")["sessions"]
    assert {each["session_id"] for each in below} == {f"e-1.t-model@m1-{case}-0" for case in range(6)}
    assert len(home.json("sessions", "--state", "completed")["sessions"]) == 6


def test_the_list_of_sessions_knows_evaluations_by_their_own_words() -> None:
    assert (sessions._EVALUATION, sessions._PART) == (programs.EVALUATION, programs.PART)


def test_trials_of_another_evaluation_are_reused(home: Home, data: Path) -> None:
    with serving(right_on_even, loop=True) as server:
        words = ("--strategy", "model", "--model", "m1", "--data", str(data), "--base-url", server.url)
        run(home, "run", *words, "--id", "e-1")
        shown = json.loads(run(home, "run", *words, "--id", "e-2", "--reuse", "e-1", "--repeat", "2", "--json").stdout)
        assert len(server.requests) == 12
    assert (shown["arms"][0]["trials"], shown["arms"][0]["reused"]) == (12, 6)


def test_what_failed_is_retried_and_what_was_begun_can_be_cancelled(home: Home, data: Path) -> None:
    with serving(right_on_even, loop=True) as server:
        words = ("--strategy", "model", "--model", "m1", "--data", str(data), "--base-url", server.url)
        run(home, "run", *words, "--id", "e-1")
        run(home, "retry", "e-1", "--failed", "--base-url", server.url)
        assert len(server.requests) == 9
        failures = home.json("eval", "show", "e-1", "--failures")
        assert failures[0]["session"] == "e-1.t-model@m1-1-0+2"
        run(home, "cancel", "e-1", "--reason", "enough")
        assert home.json("eval", "list")[0]["state"] == "cancelled"
        late = run(home, "resume", "e-1", "--base-url", server.url, code=2)
        assert "has ended" in late.stderr


def test_errors_say_what_to_do(home: Home, data: Path) -> None:
    home.ok("run", f"{home.file}:greet")
    assert "Give a PLAN.toml, or --strategy" in run(home, "run", code=2).stderr
    assert "no evaluation" in run(home, "show", "nothing", code=3).stderr
    missing = run(
        home, "run", "--strategy", "model", "--model", "m", "--data", "none.jsonl", "--base-url", "http://x", code=2
    )
    assert "No such file" in missing.stderr


def test_run_keeps_to_a_limit_of_money(home: Home) -> None:
    (home.folder / "ask.py").write_text('[llm("Say 2", max_tokens=100) for _ in range(50)]\n')
    with serving(right_on_even, loop=True) as server:
        words = ("run", "ask.py", "--model", "m", "--base-url", server.url, "--budget", "max_cost=0.01", "--json")
        unknown = home.process(*words)
        assert unknown.returncode == 2
        assert "max_cost needs prices" in unknown.stderr
        done = home.process(*words, "--price", "m=1,50")
        event = json.loads(done.stdout)
        assert event["status"] == "error"
        assert "max_cost (0.01) would be passed" in event["error"]
        assert 0 < event["stats"]["auto"]["cost"] <= 0.01
        assert len(server.requests) < 50
