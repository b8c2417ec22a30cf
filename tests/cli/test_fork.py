"""`fork` and `diff`: a session gone back in, and two of them side by side."""

from __future__ import annotations

import pytest

from tests.cli.chat_helpers import only_session, said_to, serving
from tests.cli.helpers import Home


def answered(home: Home, *answers: str) -> str:
    """A session of `panel` after some answers; its id."""
    sid = home.start("panel")
    for number, answer in enumerate(answers):
        home.ok("answer", sid, "--query", f"q-{number}", answer)
    return sid


# --- fork ------------------------------------------------------------------------------------------


def test_before_a_query_it_is_asked_anew_and_answered_in_the_same_command(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    event = home.json("fork", sid, "--before", "q-0", "--input", "Grace", "--id", "again")
    assert (event["status"], event["session_id"], event["result"]) == ("completed", "again", "Hello Grace")
    assert home.json("show", sid)["outcome"]["result"] == "Hello Ada"


def test_the_input_can_come_from_standard_input(home: Home) -> None:
    sid = home.start("greet")
    assert "Hello Grace" in home.ok("fork", sid, "--input", "-", stdin="Grace\n")


def test_an_input_for_one_of_several_questions_is_refused_with_the_fork_named(home: Home) -> None:
    result = home.call("fork", answered(home), "--id", "f", "--input", "x")
    assert result.exit_code == 2
    assert "Forked as f." in result.stderr
    assert "--query" in result.stderr


def test_the_places_are_listed_and_nothing_is_forked(home: Home) -> None:
    sid = home.start("greet")
    lines = [line.split() for line in home.ok("fork", sid, "--points").splitlines()]
    assert lines[0] == ["at", "place", "id", "what"]
    assert lines[1][:2] == ["1", "start"]
    assert lines[2] == ["1", "pause", "q-0", "What", "is", "your", "name?"]
    assert home.json("fork", sid, "--points")[1] == {
        "position": 1,
        "kind": "pause",
        "id": "q-0",
        "text": "What is your name?",
    }
    assert len(home.json("sessions")["sessions"]) == 1


def test_a_place_that_is_not_there_is_refused_with_those_that_are(home: Home) -> None:
    sid = home.start("greet")
    result = home.call("fork", sid, "--before", "q-7")
    assert result.exit_code == 2
    assert "near it are q-0" in result.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--at", "1", "--before", "q-0"), "--at and --before exclude each other"),
        (("--points", "--at", "1"), "--points forks nothing"),
        (("--model", "m"), "need --input"),
        (("--input", " "), "--input is empty"),
    ],
)
def test_options_that_do_not_go_together_are_refused(home: Home, options: tuple[str, ...], why: str) -> None:
    result = home.call("fork", home.start("greet"), *options)
    assert result.exit_code == 2
    assert why in result.stderr
    assert len(home.json("sessions")["sessions"]) == 1


def chat(home: Home, url: str, *texts: str) -> str:
    """A chat; its id."""
    for number, text in enumerate(texts):
        again = (only_session(home),) if number else ()
        assert home.process("chat", *again, "--model", f"{url}#m", "-m", text).returncode == 0
    return only_session(home)


def test_a_turn_of_a_chat_is_said_in_other_words_and_the_model_answers(home: Home) -> None:
    with serving("Hi.", "Because.", "For that reason.") as server:
        sid = chat(home, server.url, "hello", "why?")
        turn = [each["id"] for each in home.json("fork", sid, "--points") if each["kind"] == "turn"][1]
        args = ("--turn", turn, "--input", "what for?", "--id", "f", "--base-url", server.url)
        done = home.process("fork", sid, *args)
        assert (done.returncode, done.stdout) == (0, "For that reason.\n"), done.stderr
        assert said_to(server) == ["hello", "Hi.", "what for?"]
    shown = home.ok("diff", sid, "f")
    assert "The first difference: the input is another." in shown
    assert "what for?" in shown


def test_without_a_model_the_turn_begins_and_waits(home: Home) -> None:
    with serving("Hi.") as server:
        sid = chat(home, server.url, "hello")
    result = home.call("fork", sid, "--id", "f", "--input", "why?", env={"HOLDFAST_MODEL": ""})
    assert result.exit_code == 0, result.output
    assert "no model can answer here" in result.stderr
    assert "it waits for a process that serves provider `openai-compatible`" in result.stdout
    assert "Continue with: holdfast chat f" in result.stdout
    assert "holdfast chat f" in result.stdout


def test_a_chat_forked_in_the_middle_of_a_turn_takes_no_input(home: Home) -> None:
    with serving("Hi.") as server:
        sid = chat(home, server.url, "hello")
    places = home.json("fork", sid, "--points")
    query = next(each["id"] for each in places if each["kind"] == "pause" and "the model" in each["text"])
    result = home.call("fork", sid, "--id", "f", "--before", query, "--input", "why?")
    assert result.exit_code == 2
    assert f"waits for {query} first" in result.stderr


# --- diff ------------------------------------------------------------------------------------------


def test_two_branches_are_shown_side_by_side(home: Home) -> None:
    sid = answered(home, "one", "two", "three")
    home.ok("fork", sid, "--at", "4", "--id", "f")
    home.ok("answer", "f", "other")
    shown = home.ok("diff", sid, "f")
    assert "They agree up to position 4." in shown
    assert "The first difference: the answer to q-2 is another." in shown
    row = next(line for line in shown.splitlines() if "three" in line and "other" in line)
    assert row.index("three") < row.index("other")
    assert f"Both begin as {sid}, up to position 4." in shown


def test_on_a_narrow_terminal_they_stand_one_above_the_other(home: Home) -> None:
    one, two = home.start("greet"), home.start("greet")
    home.ok("answer", one, "Ada")
    home.ok("answer", two, "Grace")
    with home.terminal("diff", one, two, env={"NO_COLOR": "1"}, columns=70) as terminal:
        terminal.expect(" A    3  answered q-0  Ada")
        terminal.expect(" B    3  answered q-0  Grace")
        assert terminal.exit_code() == 0


def test_sessions_that_say_the_same_have_no_difference(home: Home) -> None:
    sid = home.start("greet")
    home.ok("fork", sid, "--id", "f")
    assert "There is no difference." in home.ok("diff", sid, "f")


def test_a_comparison_as_json_has_every_row(home: Home) -> None:
    one, two = home.start("greet"), home.start("greet")
    home.ok("answer", one, "Ada")
    found = home.json("diff", one, two)
    assert found["difference"] == f"only {one} has it: the answer to q-0"
    assert [row["left"]["kind"] for row in found["rows"]] == ["answered", "ended"]
    assert found["left"]["session_id"] == one


def test_what_a_program_said_does_not_command_the_terminal(home: Home) -> None:
    one, two = home.start("greet"), home.start("greet")
    home.ok("answer", one, "\x1b[2J evil")
    assert "\x1b" not in home.ok("diff", one, two)


def test_long_texts_are_cut_unless_all_is_wanted(home: Home) -> None:
    one, two = home.start("greet"), home.start("greet")
    home.ok("answer", one, "word " * 400 + "end")
    assert home.ok("diff", one, two).count("word") < 300
    assert home.ok("diff", one, two, "--full").count("word") >= 400


def test_a_session_that_is_not_there_says_so(home: Home) -> None:
    assert home.call("diff", home.start("greet"), "none").exit_code == 3
