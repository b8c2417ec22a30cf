"""`chat` without a terminal: piped, as events, with one message; and what it says when it cannot begin."""

from __future__ import annotations

import json

import pytest

from holdfast.testing.provider import ScriptStep, fault, reasoning, reply, stream, tool_call
from tests.cli.chat_helpers import only_session, said_to, serving, with_tools
from tests.cli.helpers import Home


def test_every_line_of_a_pipe_is_a_turn_and_only_answers_go_to_standard_output(home: Home) -> None:
    with_tools(home)
    with serving("First.", ["Well:", tool_call("add", a=1, b=2)], "It is 3.") as server:
        done = home.process(
            "chat", "--model", "m", "--base-url", server.url, "--tool", "tools:add", stdin="One\n\n/help me\n"
        )
    assert done.returncode == 0
    assert done.stdout == "First.\nWell:\nIt is 3.\n"
    assert f"session {only_session(home)} (new, openai-compatible:m)" in done.stderr
    assert '⚙ add {"a":1,"b":2}\n⚙ add → 3\n' in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr
    assert said_to(server, 1) == ["One", "First.", "/help me"]


def test_text_that_is_taken_back_is_marked_where_it_cannot_be_removed(home: Home) -> None:
    with serving(fault("overloaded", "busy", after=["Half an answer\n"]), "All.") as server:
        done = home.process("chat", "--model", f"{server.url}#m", "-m", "Hi")
    assert done.stdout == "Half an answer\n[the answer above is retracted]\nAll.\n"
    assert "busy; retrying in" in done.stderr


def test_the_first_turn_that_comes_to_nothing_is_the_last(home: Home) -> None:
    with serving("Yes.", fault("invalid_request", "no such model"), "never") as server:
        done = home.process("chat", "--model", f"{server.url}#m", stdin="One\nTwo\nThree\n")
    assert (done.returncode, done.stdout) == (1, "Yes.\n")
    assert "No answer (provider_error)" in done.stderr
    assert "What to do: check that the service has this model" in done.stderr
    assert len(server.requests) == 2


def test_one_message_may_come_from_standard_input_with_all_its_lines(home: Home) -> None:
    with serving("Read.") as server:
        done = home.process("chat", "--model", f"{server.url}#m", "-m", "-", stdin="One\nTwo\n")
    assert (done.returncode, done.stdout) == (0, "Read.\n")
    assert said_to(server) == ["One\nTwo"]


def test_events_are_json_one_a_line(home: Home) -> None:
    with_tools(home)
    script: list[ScriptStep] = [
        [reasoning("Hm."), tool_call("add", a=1, b=2)],
        fault("overloaded", after=["It"]),
        reply(stream("3", ".")),
    ]
    with serving(*script) as server:
        done = home.process("chat", "--model", f"{server.url}#m", "--tool", "tools:add", "--json", stdin="1 + 2?\n")
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["type"] for event in events] == [
        "session",
        "input",
        "model_started",
        "reasoning",
        "tool_started",
        "tool_finished",
        "model_started",
        "text",
        "retracted",
        "retrying",
        "text",
        "text",
        "finished",
    ]
    assert events[0]["session_id"] == only_session(home)
    assert {event["turn"] for event in events[1:]} == {events[1]["turn"]}
    assert (events[-1]["outcome"], events[-1]["text"]) == ({"type": "message"}, "3.")


def test_a_session_of_a_pipe_can_be_gone_on_with(home: Home) -> None:
    with serving("One.", "Two.") as server:
        home.process("chat", "--model", f"{server.url}#m", "--system", "@words", "--id", "talk", "-m", "1")
        assert not server.requests  # there is no such file
        (home.folder / "words").write_text("Be brief.\n")
        for text, session in (("1", ["--id", "talk", "--system", "@words"]), ("2", ["talk"])):
            done = home.process("chat", *session, "-m", text, env={"HOLDFAST_MODEL": f"{server.url}#m"})
            assert done.returncode == 0, done.stderr
    assert said_to(server) == ["1", "One.", "2"]
    assert server.requests[-1].system == "Be brief."


def test_what_else_waits_in_the_store_is_left_alone(home: Home) -> None:
    waiting = home.start("greet")
    with serving(reply("Hi.", delay_s=3), "never") as server:  # longer than it takes to look for what was left undone
        assert home.process("chat", "--model", f"{server.url}#m", "-m", "Hello").returncode == 0
    assert len(server.requests) == 1
    assert [query["query_id"] for query in home.json("show", waiting)["pending"]] == ["q-0"]


def test_a_reader_who_goes_away_does_not_spoil_the_turn(home: Home) -> None:
    with serving(stream(*["word "] * 20_000), "Yes.") as server:
        chat = home.background("chat", "--model", f"{server.url}#m", "--id", "talk", "-m", "Talk")
        assert chat.stdout is not None
        chat.stdout.read(10)
        chat.stdout.close()
        assert chat.wait(30) == 141
        assert chat.stderr is not None
        chat.stderr.close()
        home.process("chat", "talk", "--base-url", server.url, "-m", "All?")
    assert said_to(server) == ["Talk", "word " * 20_000, "All?"]


# --- when it cannot begin ----------------------------------------------------------------------------


def test_without_a_model_it_says_how_to_name_one(home: Home) -> None:
    done = home.process("chat", "-m", "Hi", env={"HOLDFAST_MODEL": ""})
    assert done.returncode == 2
    assert "no model is named: give --model, or set HOLDFAST_MODEL; there is 'openai:MODEL'" in done.stderr


def test_a_service_without_its_key_is_told_with_the_variable(home: Home) -> None:
    done = home.process("chat", "--model", "groq:llama", "-m", "Hi", env={"GROQ_API_KEY": ""})
    assert done.returncode == 5
    assert "set GROQ_API_KEY" in done.stderr


def test_a_key_goes_to_another_url_only_for_the_service_that_it_is_of(home: Home) -> None:
    with serving("Hi.", api_key="k") as server:
        at = ["--base-url", server.url, "-m", "Hi"]
        environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": ""}
        assert home.process("chat", "--model", "openai:m", *at, env=environment).stdout == "Hi.\n"
        done = home.process("chat", "--model", "m", *at, env=environment)
    assert done.returncode == 1
    assert "Incorrect API key" in done.stderr


@pytest.mark.executes
def test_a_missing_extra_is_told_with_the_command_that_installs_it(home: Home) -> None:
    (home.folder / "httpx2.py").write_text("raise ModuleNotFoundError(\"No module named 'httpx2'\", name='httpx2')\n")
    done = home.process("chat", "--model", "http://127.0.0.1:9/v1#m", "-m", "Hi")
    assert done.returncode == 5
    assert "pip install 'holdfast[providers]'" in done.stderr


def test_sessions_that_cannot_be_talked_with_are_told_apart(home: Home) -> None:
    def refused(*args: str) -> tuple[int, str]:
        done = home.process("chat", *args, "-m", "Hi", "--model", "http://127.0.0.1:9/v1#m")
        return done.returncode, done.stderr

    strategy = home.start("greet")
    code, told = refused("nothere")
    assert (code, "session 'nothere' not found" in told) == (3, True)
    code, told = refused(strategy)
    assert (code, "resume it with `holdfast run --resume`" in told) == (2, True)
    with serving("Hi.") as server:
        home.process("chat", "--model", f"{server.url}#m", "--id", "talk", "-m", "Hi")
    code, told = refused("--id", "talk")
    assert (code, "session 'talk' already exists" in told) == (4, True)
    home.ok("cancel", "talk")
    code, told = refused("talk")
    assert (code, "takes no more turns" in told) == (4, True)


def test_a_server_that_was_named_by_its_url_has_to_be_named_again(home: Home) -> None:
    with serving("Hi.") as server:
        home.process("chat", "--model", f"{server.url}#m", "--id", "talk", "-m", "Hi")
        done = home.process("chat", "talk", "-m", "Hi", env={"HOLDFAST_MODEL": ""})
    assert done.returncode == 2
    assert "give --base-url URL" in done.stderr


def test_tools_that_cannot_be_had_are_told(home: Home) -> None:
    with_tools(home)

    def refused(tool: str) -> str:
        done = home.process("chat", "--model", "http://127.0.0.1:9/v1#m", "-m", "Hi", "--tool", tool)
        assert done.returncode == 2
        return done.stderr

    assert "say which name, as in tools:NAME (it has add, broken, slow)" in refused("tools")
    assert "tools has no 'nope'" in refused("tools:nope")
    assert "ModuleNotFoundError" in refused("elsewhere:add")
    assert "there is no such file" in refused("elsewhere.py:add")
    (home.folder / "odd.py").write_text("def untyped(x): ...")
    assert "parameter 'x' has no type" in refused("odd.py:untyped")


def test_the_session_of_a_chat_is_not_offered_to_answer(home: Home) -> None:
    with serving("Hi.") as server:
        home.process("chat", "--model", f"{server.url}#m", "--id", "talk", "-m", "Hi")
    assert "Continue with: holdfast chat talk" in home.ok("show", "talk")
    assert "Continue with: holdfast chat talk" in home.ok("run", "--resume", "talk")
    assert home.json("sessions", "--waiting-for", "input")["sessions"][0]["session_id"] == "talk"
