"""`run`, `answer`, `cancel`, `fork`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import Home
from tests.tables import each_row

# --- run -------------------------------------------------------------------------------------------


def test_run_prints_the_first_question_and_the_session_waits(home: Home) -> None:
    event = home.json("run", f"{home.file}:greet", "--id", "mine")
    assert event == {
        "status": "needs_response",
        "session_id": "mine",
        "query_id": "q-0",
        "prompt": "What is your name?",
        "system": None,
        "max_tokens": 7,
    }
    assert home.json("show", "mine")["phase"] == "paused"


def test_run_takes_task_ctx_and_budget(home: Home) -> None:
    ctx = home.folder / "ctx.json"
    ctx.write_text('{"mark": "?"}')
    args = ("--task", "greet me", "--ctx", f"@{ctx}", "--budget", "max_llm_calls=3", "--budget", '{"max_tokens": 500}')
    sid = home.start("greet", *args)
    first = home.json("show", sid, "--journal")["journal"][0]["record"]
    assert first["ctx"] == {"mark": "?", "task": "greet me"}
    assert first["budget"] == {"max_llm_calls": 3, "max_tokens": 500}


def test_a_strategy_without_a_model_says_how_to_let_one_answer(home: Home) -> None:
    assert "--model SERVICE:MODEL" in home.ok("run", "cot", "--task", "Is 221 prime?")


def test_a_name_that_was_run_before_is_enough(home: Home) -> None:
    home.ok("run", "cot", "--task", "Is 221 prime?", "--id", "before")
    assert home.json("run", "cot", "--task", "Is 223 prime?")["status"] == "needs_response"


@each_row("name", ["greet", "strategies:greet"])
def test_the_name_of_a_strategy_that_is_served_is_enough(home: Home, name: str) -> None:
    assert home.json("run", name)["prompt"] == "What is your name?"


def test_run_waits_for_timers(home: Home) -> None:
    event = home.json("run", f"{home.file}:nap")
    assert (event["status"], event["result"]) == ("completed", "rested")


def test_run_does_not_wait_longer_than_told(home: Home) -> None:
    event = home.json("run", f"{home.file}:nap", "--wait", "0")
    assert (event["status"], event["waits_for"]) == ("running", ["timer"])
    assert home.json("run", "--resume", event["session_id"])["result"] == "rested"


def test_a_strategy_that_fails_gives_exit_code_1_and_says_why(home: Home) -> None:
    sid = home.start("brittle")
    result = home.call("answer", sid, "yes")
    assert result.exit_code == 1
    assert "it broke" in result.stdout


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["run"], 2, "Give a program to start"),
        (["run", "nobody"], 3, "no strategy has that name"),
        (["run", "self_consistancy"], 3, "no strategy has that name; did you mean 'self_consistency'?"),
        (["run", "cot"], 2, "cot: ctx has no 'task'"),
        (["run", "self_refine", "--task", "x", "--set", "round=3"], 2, "no such parameter; did you mean 'rounds'?"),
        (["run", "self_refine", "--task", "x", "--set", "rounds=0"], 2, "'rounds' must be at least 1"),
        (["sesions"], 2, "No such command 'sesions' (did you mean 'sessions'?)"),
        (["run", "missing.py:x"], 3, "no such file"),
        (["run", "FILE:nothing"], 3, "has no 'nothing'"),
        (["run", "FILE:greet", "--ctx", "{"], 2, "--ctx is not JSON"),
        (["run", "FILE:greet", "--ctx", "@nowhere.json"], 2, "No such file"),
        (["run", "FILE:greet", "--ctx", "[1]", "--task", "x"], 2, "has to be a JSON object"),
        (["run", "FILE:greet", "--ctx", "NaN"], 2, "not a JSON number"),
        (["run", "FILE:greet", "--budget", "max_llm_call=3"], 2, "there is no limit 'max_llm_call'"),
        (["run", "FILE:greet", "--budget", "max_llm_calls=many"], 2, "expected KEY=NUMBER"),
        (["run", "FILE:greet", "--budget", "[1]"], 2, "expected KEY=NUMBER"),
        (["run", "FILE:greet", "--budget", '{"max_llm_calls": "3"}'], 2, "invalid budget"),
        (["run", "FILE:greet", "--id", "../evil"], 2, "invalid session id"),
        (["run", "FILE:greet", "--resume", "x"], 2, "Give a program to start, or --resume"),
        (["run", "--resume", "x", "--task", "y"], 2, "only --model, --base-url, --serve and --wait are allowed"),
        (["run", "--resume", "x", "--deadline", "5"], 2, "only --model, --base-url, --serve and --wait are allowed"),
        (["run", "--resume", "x"], 3, "session 'x' not found"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(home: Home, args: list[str], code: int, told: str) -> None:
    home.start("greet", "--id", "other")
    result = home.call(*(arg.replace("FILE", str(home.file)) for arg in args))
    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert len(home.json("sessions")["sessions"]) == 1


def test_an_id_that_is_taken_is_a_conflict(home: Home) -> None:
    home.start("greet", "--id", "mine")
    result = home.call("run", f"{home.file}:greet", "--id", "mine", "--ctx", '{"other": 1}')
    assert result.exit_code == 4
    assert "already exists, and its ctx differs" in result.stderr


def test_a_run_that_is_tried_again_with_its_id_prints_the_same_event(home: Home) -> None:
    first = home.json("run", f"{home.file}:greet", "--id", "mine")
    again = home.json("run", f"{home.file}:greet", "--id", "mine")
    assert again == {**first, "replayed": True}
    assert len(home.json("sessions")["sessions"]) == 1


# --- answer ----------------------------------------------------------------------------------------


def test_answer_feeds_the_only_question(home: Home) -> None:
    sid = home.start("greet")
    event = home.json("answer", sid, "Ada")
    assert (event["status"], event["result"]) == ("completed", "Hello Ada")


def test_a_question_of_a_child_is_answered_as_one_of_its_parent(home: Home) -> None:
    event = home.json("run", f"{home.file}:delegate", "--id", "s-parent")
    assert (event["status"], event["query_id"]) == ("needs_response", "q-0.q-0")
    assert "--query q-0.q-0" in home.ok("show", "s-parent")
    assert home.json("answer", "s-parent", "--query", "q-0.q-0", "Ada")["result"] == "Hello Ada!"


def test_answer_reads_standard_input_without_its_last_newline(home: Home) -> None:
    sid = home.start("greet")
    assert json.loads(home.ok("answer", sid, "-", "--json", stdin="Ada\nLovelace\n"))["result"] == "Hello Ada\nLovelace"


def test_answer_takes_one_query_of_several(home: Home) -> None:
    sid = home.start("panel")
    event = home.json("answer", sid, "two", "--query", "q-1")
    assert event == {"status": "accepted", "session_id": sid, "remaining": 2, "remaining_ids": ["q-0", "q-2"]}


def test_answer_takes_algoclines_array_with_usage(home: Home) -> None:
    sid = home.start("panel")
    answers = [{"query_id": f"q-{n}", "response": f"a{n}", "usage": {"completion_tokens": 9}} for n in range(3)]
    event = home.json("answer", sid, "--responses", json.dumps(answers))
    assert event["result"] == ["a0", "a1", "a2"]
    assert event["stats"]["auto"]["response_tokens"]["tokens"] == 27


def test_answer_takes_an_object_from_query_to_answer_from_a_file(home: Home) -> None:
    sid = home.start("panel")
    file = home.folder / "answers.json"
    file.write_text('{"q-0": "a", "q-1": {"any": "json"}, "q-2": 3}')
    assert home.json("answer", sid, "--responses", f"@{file}")["result"] == ["a", {"any": "json"}, 3]


def test_an_answer_can_be_a_failure(home: Home) -> None:
    sid = home.start("tolerant")
    assert home.json("answer", sid, "--fail", "no model today")["result"] == "failed: no model today"
    sid = home.start("tolerant")
    given = '[{"query_id": "q-0", "error": {"message": "too long", "code": "refused"}}]'
    assert home.json("answer", sid, "--responses", given)["result"] == "refused: too long"


def test_the_same_answer_twice_gets_the_same_reply(home: Home) -> None:
    sid = home.start("greet")
    first = home.json("answer", sid, "Ada", "--query", "q-0")
    second = home.json("answer", sid, "Ada", "--query", "q-0")
    assert second["replayed"] is True
    assert second["result"] == first["result"]


def test_another_answer_is_a_conflict_that_names_both(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    result = home.call("answer", sid, "Grace", "--query", "q-0")
    assert result.exit_code == 4
    assert "Ada" in result.stderr
    assert "Grace" in result.stderr


def test_answering_after_the_end_is_a_conflict(home: Home) -> None:
    sid = home.start("panel")
    home.ok("cancel", sid)
    assert home.call("answer", sid, "x").exit_code == 4
    stale = home.call("answer", sid, "x", "--query", "q-0")
    assert stale.exit_code == 4
    assert "stale" in stale.stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["x"], 2, "choose one with --query"),
        (["x", "--query", "q-9"], 3, "unknown query_id: q-9"),
        (["x", "--query", "nine"], 2, "is not a query id"),
        ([], 2, "Give TEXT"),
        (["x", "--fail", "y"], 2, "Give only one of TEXT"),
        (["--responses", "{}"], 2, "at least one answer"),
        (["--responses", "[]"], 2, "at least one answer"),
        (["--responses", "7"], 2, "expected an array"),
        (["--responses", '{"nine": 1}'], 2, "is not a query id"),
        (["--responses", '[{"query_id": "q-0", "response": 1}, {"query_id": "q-0", "response": 1}]'], 2, "twice"),
        (["--responses", '[{"query_id": "q-0"}]'], 2, "needs either response or error"),
        (["--responses", '[{"query_id": "q-0", "respons": 1}]'], 2, "unknown key 'respons'"),
        (["--responses", '[{"query_id": "q-0", "response": 1, "usage": {"cost": "a"}}]'], 2, "q-0"),
        (["--responses", '[{"query_id": "q-0", "response": 1}]', "--query", "q-0"], 2, "leave out --query"),
    ],
)
def test_a_wrong_answer_changes_nothing_and_says_why(home: Home, args: list[str], code: int, told: str) -> None:
    sid = home.start("panel")
    before = home.json("show", sid)["position"]
    result = home.call("answer", sid, *args)
    assert result.exit_code == code
    assert told in result.stderr
    assert home.json("show", sid)["position"] == before


def test_the_answer_is_kept_where_the_strategy_cannot_be_found(home: Home) -> None:
    sid = home.start("greet")
    (home.folder / "holdfast.toml").write_text("")
    kept = home.process("answer", sid, "Ada")
    assert kept.returncode == 0
    assert "the answer is kept in the mailbox" in kept.stdout
    program = "strategies:greet"
    assert f"program '{program}' is not registered in this process" in kept.stdout
    command = f"holdfast run --resume {sid} --serve {program}"
    assert command in kept.stdout
    assert home.json("answer", sid, "Ada") == {
        "status": "running",
        "session_id": sid,
        "why": f"program '{program}' is not registered in this process; a process that serves it takes the answer",
        "sent": True,
        "program": program,
        "replayed": True,
        "next": command,
    }
    assert home.call("answer", sid, "Bob").exit_code == 4  # there is another answer already
    done = home.process(*command.split()[1:], "--json")
    assert json.loads(done.stdout)["result"] == "Hello Ada"


def test_an_answer_can_bring_its_program_along(home: Home) -> None:
    sid = home.start("greet")
    (home.folder / "holdfast.toml").write_text("")
    assert home.json("answer", sid, "Ada", "--serve", str(home.file))["result"] == "Hello Ada"


@each_row(
    ("config", "said"),
    [
        ('serve = "strategies.py"', "serve has to be a list of texts"),
        ("serve = [1]", "serve has to be a list of texts"),
        ("serve = [", "is not TOML"),
        ('serve = ["nowhere.py"]', "serve: 'nowhere.py': "),
        ('serve = ["no_such_module:x"]', "serve: 'no_such_module:x': no_such_module cannot be imported"),
    ],
)
def test_a_fault_in_the_configuration_names_the_file_and_the_key(home: Home, config: str, said: str) -> None:
    (home.folder / "holdfast.toml").write_text("")
    sid = home.start("greet")
    (home.folder / "holdfast.toml").write_text(config)
    refused = home.call("answer", sid, "Ada")
    assert refused.exit_code == 2
    assert f"{home.folder / 'holdfast.toml'}" in refused.stderr
    assert said in refused.stderr
    assert home.ok("show", sid)


def test_changed_code_is_told_with_both_sides_and_nothing_is_changed(home: Home) -> None:
    sid = home.start("panel")
    home.ok("answer", sid, "x", "--query", "q-0")
    home.file.write_text(home.file.read_text().replace("second?", "zweitens?"))
    given = '{"q-1": "y", "q-2": "z"}'
    result = home.process("answer", sid, "--responses", given)
    assert result.returncode == 4
    assert "second?" in result.stderr
    assert "zweitens?" in result.stderr
    assert home.json("show", sid)["pending_queries"] == 2


# --- cancel, fork ----------------------------------------------------------------------------------


def test_cancel_ends_a_session_and_keeps_the_reason(home: Home) -> None:
    sid = home.start("greet")
    event = home.json("cancel", sid, "--reason", "not needed")
    assert (event["status"], event["reason"]) == ("cancelled", "not needed")
    assert home.json("show", sid)["outcome"]["reason"] == "not needed"


def test_cancelling_what_has_ended_is_a_conflict(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    assert home.call("cancel", sid).exit_code == 4


def test_a_fork_goes_on_by_itself(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    event = home.json("fork", sid, "--at", "2", "--id", "again")
    assert (event["status"], event["session_id"]) == ("needs_response", "again")
    assert home.json("answer", "again", "Grace")["result"] == "Hello Grace"
    assert home.json("show", sid)["outcome"]["result"] == "Hello Ada"


def test_a_fork_past_the_end_says_where_it_can_be(home: Home) -> None:
    sid = home.start("greet")
    result = home.call("fork", sid, "--at", "9")
    assert result.exit_code == 2
    assert "from 1 to 2" in result.stderr


# --- the examples ----------------------------------------------------------------------------------


def test_the_examples_run_to_their_results(home: Home) -> None:
    examples = Path(__file__).parents[2] / "examples"
    sid = home.json("run", f"{examples}/triage.py:triage", "--task", "The invoice is wrong")["session_id"]
    serve = ("--serve", f"{examples}/triage.py")
    home.ok("answer", sid, "Billing.", *serve)
    home.ok("answer", sid, "--responses", '{"q-1": "short", "q-2": "warm"}', *serve)
    assert home.json("answer", sid, "2", *serve)["result"] == {"kind": "billing", "reply": "warm"}
    args = ("--trusted", "--task", "Tabs?", "--ctx", '{"rounds": 1}')
    sid = home.json("run", f"{examples}/debate.py", *args)["session_id"]
    serve = ("--serve", f"{examples}/debate.py:debate")
    home.ok("answer", sid, "--responses", '{"q-0": "yes", "q-1": "no"}', *serve)
    assert home.json("answer", sid, "The second.", *serve)["result"]["arguments"] == ["For: yes", "Against: no"]


@pytest.mark.parametrize(
    "answers", ['{"q-0": "deny", "q-0": "approve"}', '{"q-0": {"decision": "deny", "decision": "approve"}}']
)
def test_json_that_says_two_things_is_refused(home: Home, answers: str) -> None:
    sid = home.start("greet")
    result = home.call("answer", sid, "--responses", answers)
    assert result.exit_code == 2
    assert "stands in one object more than once" in result.stderr
    assert home.json("show", sid)["phase"] == "paused"
