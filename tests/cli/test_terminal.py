"""The interactive mode, under a real terminal."""

from __future__ import annotations

import json

from tests.cli.helpers import Home


def test_run_asks_each_question_in_turn(home: Home) -> None:
    with home.terminal("run", f"{home.file}:panel") as terminal:
        for question, answer in (("first?", "one"), ("second?", "two"), ("third?", "three")):
            terminal.expect(question)
            terminal.expect("> ")
            terminal.type(answer + "\n")
        terminal.expect("completed")
        terminal.expect('"three"')
        assert terminal.exit_code() == 0
    assert home.json("sessions", "--state", "completed")["sessions"][0]["strategy"] == "strategies:panel"


def test_choices_are_numbered_and_checked(home: Home) -> None:
    with home.terminal("run", f"{home.file}:choose") as terminal:
        terminal.expect("2. coffee")
        terminal.expect("> ")
        terminal.type("milk\n")
        terminal.expect("Please type a number from 1 to 2")
        terminal.type("2\n")
        terminal.expect("completed")
        terminal.expect("coffee")
        assert terminal.exit_code() == 0


def test_an_answer_whose_program_is_not_here_is_kept_and_the_command_that_goes_on_is_shown(home: Home) -> None:
    sid = home.start("greet")
    (home.folder / "holdfast.toml").write_text("")
    with home.terminal("run", "--resume", sid) as terminal:
        terminal.expect("> ")
        terminal.type("Ada\n")
        terminal.expect("the answer is kept in the mailbox")
        terminal.expect(f"holdfast run --resume {sid} --serve strategies:greet")
        assert terminal.exit_code() == 0
    assert "Hello Ada" in home.process("run", "--resume", sid, "--serve", "strategies:greet").stdout


def test_an_empty_answer_is_asked_for_again_and_several_lines_make_one(home: Home) -> None:
    with home.terminal("run", f"{home.file}:greet") as terminal:
        terminal.expect("> ")
        terminal.type("\n")
        terminal.expect("Please type an answer")
        terminal.type('"""\nAda\nLovelace\n"""\n')
        terminal.expect("Hello Ada\nLovelace")
        assert terminal.exit_code() == 0


def test_a_tools_answer_may_be_json(home: Home) -> None:
    with home.terminal("run", f"{home.file}:measure") as terminal:
        terminal.expect("thermometer")
        terminal.expect("> ")
        terminal.type('{"celsius": 31}\n')
        terminal.expect("completed")
        assert terminal.exit_code() == 0
    sid = home.json("sessions")["sessions"][0]["session_id"]
    assert home.json("show", sid)["outcome"]["result"] == {"celsius": 31}


def test_leaving_with_ctrl_c_loses_nothing_and_says_how_to_go_on(home: Home) -> None:
    with home.terminal("run", f"{home.file}:panel", "--id", "left") as terminal:
        terminal.expect("first?")
        terminal.expect("> ")
        terminal.type("one\n")
        terminal.expect("second?")
        terminal.expect("> ")
        terminal.type("half an ans")
        terminal.expect("half an ans")  # the line is being read; a key pressed before that can be missed
        terminal.press("\x03", until="Continue with")
        terminal.expect("holdfast run --resume left")
        terminal.expect("holdfast answer left --query q-1 TEXT")
        assert terminal.exit_code() == 130
        assert "Traceback" not in terminal.shown
    assert [query["query_id"] for query in home.json("show", "left")["pending"]] == ["q-1", "q-2"]
    with home.terminal("run", "--resume", "left") as terminal:
        terminal.expect("second?")
        terminal.type("two\n")
        terminal.expect("third?")
        terminal.type("three\n")
        terminal.expect("completed")
        assert terminal.exit_code() == 0


def test_a_person_is_asked_for_a_task_that_is_missing(home: Home) -> None:
    with home.terminal("run", "cot", "--id", "asked") as terminal:
        terminal.expect("Task: ")
        terminal.type("Is 221 prime?\n")
        terminal.expect("Is 221 prime?")
        terminal.expect("> ")
        terminal.press("\x03", until="Continue with")
    assert home.json("show", "asked", "--journal")["journal"][0]["record"]["ctx"] == {"task": "Is 221 prime?"}


def test_leaving_with_ctrl_d_is_no_error(home: Home) -> None:
    with home.terminal("answer", home.start("greet")) as terminal:
        terminal.expect("> ")
        terminal.type("\x04")
        terminal.expect("nothing is lost")
        assert terminal.exit_code() == 0


def test_the_questions_of_children_are_asked_too(home: Home) -> None:
    with home.terminal("run", f"{home.file}:delegate") as terminal:
        terminal.expect("What is your name?")
        terminal.expect("> ")
        terminal.type("Ada\n")
        terminal.expect("Hello Ada!")
        assert terminal.exit_code() == 0


def test_a_file_to_serve_that_is_gone_is_said_before_anything_is_asked(home: Home) -> None:
    sid = home.start("greet")
    home.file.unlink()
    with home.terminal("run", "--resume", sid) as terminal:
        terminal.expect("serve: 'strategies.py'")
        assert terminal.exit_code() == 2


def test_timers_are_waited_for_and_can_be_left(home: Home) -> None:
    home.file.write_text(home.file.read_text().replace("ctx.sleep(0.2)", "ctx.sleep(60)"))
    with home.terminal("run", f"{home.file}:nap", "--id", "sleeper") as terminal:
        terminal.expect("Waiting for timer")
        terminal.type("\x03")
        terminal.expect("holdfast run --resume sleeper")
        assert terminal.exit_code() == 130
        assert "Task was destroyed" not in terminal.shown


def test_an_answer_that_came_from_elsewhere_meanwhile_is_told(home: Home) -> None:
    with home.terminal("run", f"{home.file}:panel", "--id", "shared") as terminal:
        terminal.expect("first?")
        terminal.expect("> ")
        home.ok("answer", "shared", "mine", "--query", "q-0")
        terminal.type("yours\n")
        terminal.expect("the recorded answer stands")
        terminal.expect("second?")
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
    answered = home.json("show", "shared", "--journal")["journal"][2]["record"]["answer"]
    assert answered == {"is": "value", "value": "mine"}


def test_colours_are_for_terminals_and_no_color_is_honoured(home: Home) -> None:
    sid = home.start("greet")
    assert "\x1b[" not in home.process("sessions").stdout
    for command in (("show", sid), ("sessions",)):
        with home.terminal(*command) as terminal:
            terminal.expect("greet")
            assert terminal.exit_code() == 0
            assert "\x1b[" in terminal.raw
        with home.terminal(*command, env={"NO_COLOR": "1"}) as terminal:
            terminal.expect("greet")
            assert terminal.exit_code() == 0
            assert "\x1b[" not in terminal.raw


def test_json_is_never_interactive(home: Home) -> None:
    with home.terminal("run", f"{home.file}:greet", "--json") as terminal:
        terminal.expect("}\n")
        assert json.loads(terminal.shown)["status"] == "needs_response"
        assert terminal.exit_code() == 0
