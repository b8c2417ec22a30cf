"""`--service` and `assign`: whose sessions a command continues, and whose questions a worker answers."""

from __future__ import annotations

import json

from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home
from tests.cli.test_worker import worker


def service_of(home: Home, session_id: str) -> str:
    exported = home.ok("export", session_id, "-").splitlines()
    started = next(line for line in map(json.loads, exported) if line.get("record", {}).get("type") == "started")
    return str(started["record"].get("service", "default"))


def test_a_session_belongs_to_the_service_of_the_option_the_variable_or_the_project(home: Home) -> None:
    assert service_of(home, home.start("greet")) == "default"
    assert service_of(home, home.start("greet", "--service", "billing", "--service", "other")) == "billing"
    started = home.call("run", "greet", "--json", env={"HOLDFAST_SERVICE": "support,billing"})
    assert service_of(home, json.loads(started.stdout)["session_id"]) == "support"
    project = home.folder / "holdfast.toml"
    project.write_text(project.read_text() + 'service = ["billing", "support"]\n')
    assert service_of(home, home.start("greet")) == "billing"
    project.write_text("service = 7\n")
    refused = home.call("run", f"{home.file}:greet")
    assert refused.exit_code == 2
    assert "service has to be a text or a list of texts" in refused.stderr


def test_an_answer_from_a_command_that_does_not_serve_the_session_is_kept_for_one_that_does(home: Home) -> None:
    sid = home.start("greet", "--service", "billing")
    kept = home.ok("answer", sid, "Ann", "--wait", "0")
    assert "the answer is kept in the mailbox" in kept
    assert "it belongs to service 'billing', which this process does not serve" in kept
    assert f"holdfast run --resume {sid} --service billing" in kept
    assert home.json("run", "--resume", sid, "--service", "billing")["status"] == "completed"


def test_an_answer_from_where_neither_service_nor_program_is_served_says_the_command_that_continues(home: Home) -> None:
    (home.folder / "holdfast.toml").write_text("")
    (home.folder / "app.py").write_text(
        "import holdfast\n\n@holdfast.strategy\nasync def triage(ctx):\n    return await ctx.llm(ctx.task)\n"
    )
    run = ("run", f"{home.folder}/app.py:triage", "--task", "Bug or wish?", "--service", "billing")
    sid = home.json(*run)["session_id"]
    assert home.json("show", sid)["service"] == "billing"
    kept = home.process("answer", sid, "bug").stdout
    assert f"Continue here with: holdfast run --resume {sid} --service billing --serve app:triage" in kept
    assert [row["session_id"] for row in home.json("top", "--once")["sessions"]] == [sid]
    done = home.process("--json", "run", "--resume", sid, "--service", "billing", "--serve", f"{home.folder}/app.py")
    assert '"result":"bug"' in done.stdout


def test_gc_leaves_sessions_of_other_services(home: Home) -> None:
    mine, other = home.start("greet"), home.start("greet", "--service", "billing")
    for sid in (mine, other):
        home.ok("cancel", sid)
    assert home.json("gc", "--keep-days", "0")["deleted"] == [mine]
    assert home.json("gc", "--keep-days", "0", "--service", "billing")["deleted"] == [other]


def test_a_worker_answers_only_what_it_may_and_logs_each_question(home: Home) -> None:
    host, other = home.start("greet"), home.start("greet", "--service", "billing")
    with serving("From the model.") as server, worker(home, server, "--serve", str(home.file)) as running:
        home.ok("assign", other, "--llm", "any")
        home.ok("assign", host, "--llm", "any")
        line = running.until(lambda line: line["type"] == "answering")
        assert line["session_id"] == host
        home.ok("watch", host)
        assert home.json("show", host)["state"] == "terminal"
        assert home.json("show", other)["state"] == "paused"
    assert not [line for line in running.said if line.get("session_id") == other]


def test_a_worker_leaves_the_questions_of_a_host_to_it(home: Home) -> None:
    host = home.start("greet")
    with serving("From the model.") as server, worker(home, server, "--serve", str(home.file)) as running:
        assigned = home.start("greet")
        home.ok("assign", assigned, "--llm", "m")  # as the worker calls its model
        assert running.until(lambda line: line["type"] == "answering")["session_id"] == assigned
        home.ok("watch", assigned)
    assert home.json("show", host)["state"] == "paused"
    assert "its llm queries are answered by: m" in home.ok("show", assigned, "--journal")
