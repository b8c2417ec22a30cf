"""`chat` at a terminal: a real one, and a model behind a real server."""

from __future__ import annotations

import pytest

from holdfast.core.queries import Usage
from holdfast.testing.provider import fault, reasoning, reply, stream, tool_call
from tests.cli.chat_helpers import only_session, picture, said_to, serving, with_tools
from tests.cli.helpers import Home, Terminal


def prompt(terminal: Terminal, text: str) -> None:
    """Wait until the chat asks, and type."""
    terminal.expect("\n> ")
    terminal.type(text + "\n")


# --- what is shown -----------------------------------------------------------------------------------


def test_text_is_shown_as_it_comes(home: Home) -> None:
    with (
        serving(stream("alpha ", "omega", every_s=1.5)) as server,
        home.terminal("chat", "--model", "m", "--base-url", server.url) as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("alpha")
        assert "omega" not in terminal.shown
        terminal.expect("omega")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    assert said_to(server) == ["Hello"]


def test_markdown_is_drawn_and_tags_and_commands_to_the_terminal_are_text(home: Home) -> None:
    text = (
        "# A title\n\nSome **bold** words,\nand <b>tags</b>.\n\n- one\n- two\n\n```python\nx = 1\n```\n\x1b]0;evil\x07"
    )
    with serving(stream(*text)) as server, home.terminal("chat", "--model", f"{server.url}#m") as terminal:
        prompt(terminal, "Hello")
        terminal.expect("evil")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    shown = picture(terminal)
    assert "A title\n\nSome bold words,\nand <b>tags</b>.\n\n • one\n • two\n\n x = 1\n" in shown
    assert "\x1b[1mbold" in terminal.raw
    assert "\x1b]0;" not in terminal.raw


def test_a_text_longer_than_the_screen_is_shown_once(home: Home) -> None:
    lines = [f"- line {number}\n" for number in range(100)]
    with serving(stream(*lines)) as server, home.terminal("chat", "--model", f"{server.url}#m") as terminal:
        prompt(terminal, "Hello")
        terminal.expect("line 99")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    shown = picture(terminal)
    assert [shown.count(f"line {number}\n") for number in (0, 50, 99)] == [1, 1, 1]


def test_reasoning_is_dimmed(home: Home) -> None:
    with (
        serving([reasoning("Let me see."), "It is so."]) as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Is it?")
        terminal.expect("It is so.")
        assert "\x1b[2;3mLet me see." in terminal.raw
        assert "\x1b[2;3mIt is so." not in terminal.raw


def test_tools_are_shown_with_arguments_results_and_errors(home: Home) -> None:
    with_tools(home)
    calls = [tool_call("add", a=2, b=40), tool_call("broken", path="/x"), tool_call("nope")]
    with (
        serving(["Let me see.", *calls], "It is 42.") as server,
        home.terminal("chat", "--model", f"{server.url}#m", "--tool", "tools:both") as terminal,
    ):
        prompt(terminal, "2 + 40?")
        terminal.expect("It is 42.")
        prompt(terminal, "/tools")
        terminal.expect("Add two numbers.")
    shown = picture(terminal)
    assert 'Let me see.\n\n⚙ add {"a":2,"b":40}\n  → 42\n⚙ broken {"path":"/x"}\n' in shown
    assert "\n  ✗ OSError: /x: the disk is gone\n" in shown
    assert "\x1b[31m✗ OSError" in terminal.raw
    assert "⚙ nope\n  ✗ there is no tool 'nope'" in shown
    assert shown.index("no tool 'nope'") < shown.index("It is 42.")


def test_text_that_is_taken_back_vanishes_and_the_retry_is_told(home: Home) -> None:
    said = ["Half an answer\n\n", *["x "] * 1_500]  # long enough to be drawn before it is taken back
    with (
        serving(fault("overloaded", "too busy", after=said), "All of it.") as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("Half an")
        terminal.expect("All of it.")
        prompt(terminal, "/history")
        terminal.expect("All of it.")
    shown = picture(terminal)
    assert "Half an" not in shown
    assert "x x" not in shown
    assert "too busy; its unfinished answer is retracted; retrying" in shown
    assert shown.index("too busy") < shown.index("All of it.")


def test_every_turn_ends_with_its_usage(home: Home) -> None:
    used = Usage(prompt_tokens=1500, completion_tokens=20, cache_read_tokens=1000, reasoning_tokens=5, cost=0.0125)
    with (
        serving(reply("Hi.", usage=used), reply("Ho.", usage=used)) as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("1,500 tokens in (1,000 cached) · 20 out (5 reasoning) · cost 0.0125 · ")
        prompt(terminal, "Again")
        terminal.expect("Ho.")
        prompt(terminal, "/usage")
        terminal.expect("m  2 calls · 3,000 tokens in · 40 out")


def test_no_color_is_honoured(home: Home) -> None:
    with (
        serving([reasoning("Hm."), "# Hi\n\n**there**", tool_call("nope")], "Done.") as server,
        home.terminal("chat", "--model", f"{server.url}#m", env={"NO_COLOR": "1"}) as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("Done.")
        prompt(terminal, "/tools")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    assert "m" not in [code[-1] for code in terminal.raw.split("\x1b[")[1:] if code[-1:].isalpha()]
    assert "\x1b[1m" not in terminal.raw
    assert "\x1b[2m" not in terminal.raw
    assert "\x1b[31m" not in terminal.raw


# --- what is typed -----------------------------------------------------------------------------------


def test_several_lines_make_one_message(home: Home) -> None:
    with serving("ok", loop=True) as server, home.terminal("chat", "--model", f"{server.url}#m") as terminal:
        prompt(terminal, "one\\\ntwo")
        terminal.expect("ok")
        prompt(terminal, '"""\nthree\n\n/help\n"""')
        terminal.expect("ok")
        prompt(terminal, '"""four\nfive"""')
        terminal.expect("ok")
        prompt(terminal, "")
        prompt(terminal, " /help")
        terminal.expect("ok")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    assert said_to(server) == ["one\ntwo", "ok", "three\n\n/help", "ok", "four\nfive", "ok", "/help"]


def test_what_is_typed_while_the_model_speaks_is_the_next_message(home: Home) -> None:
    with (
        serving(stream("alpha ", "omega", every_s=1.0), "second") as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("alpha")
        terminal.type("and then?\n")
        terminal.expect("omega")
        terminal.expect("second")
    assert said_to(server) == ["Hello", "alpha omega", "and then?"]


def test_commands_tell_and_unknown_ones_are_not_sent(home: Home) -> None:
    with serving("ok", loop=True) as server, home.terminal("chat", "--model", f"{server.url}#m") as terminal:
        prompt(terminal, "/help")
        terminal.expect("/model [NAME]")
        prompt(terminal, "/usage")
        terminal.expect("No usage has been reported yet.")
        prompt(terminal, "/history")
        terminal.expect("Nothing has been said yet.")
        prompt(terminal, "/tools")
        terminal.expect("add some with --tool")
        prompt(terminal, "/foo bar")
        terminal.expect("There is no /foo; /help lists the commands")
        prompt(terminal, "/etc/passwd is what?")
        terminal.expect("ok")
    assert [said_to(server, number) for number in range(len(server.requests))] == [["/etc/passwd is what?"]]


def test_another_model_can_be_chosen_on_the_way(home: Home) -> None:
    with (
        serving("ok", loop=True) as first,
        serving("yes", loop=True) as second,
        home.terminal("chat", "--model", f"{first.url}#small") as terminal,
    ):
        prompt(terminal, "/model")
        terminal.expect("The model is openai-compatible:small")
        prompt(terminal, "one")
        terminal.expect("ok")
        prompt(terminal, "/model large")
        terminal.expect("openai-compatible:large answers from the next turn on")
        prompt(terminal, "two")
        terminal.expect("ok")
        prompt(terminal, "/model nowhere:x")
        terminal.expect("The model stays openai-compatible:large")
        prompt(terminal, f"/model {second.url}#other")
        prompt(terminal, "three")
        terminal.expect("yes")
    assert [request.model for request in first.requests] == ["small", "large"]
    assert [(request.model, len(request.messages)) for request in second.requests] == [("other", 5)]


# --- stopping, leaving, going on ---------------------------------------------------------------------


def test_ctrl_c_stops_the_turn_and_keeps_the_session(home: Home) -> None:
    with (
        serving(stream(*["word "] * 100, every_s=0.1), "short") as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Talk")
        terminal.expect("word word")
        terminal.press("\x03", until="Stopped.")
        prompt(terminal, "Briefly")
        terminal.expect("short")
        terminal.expect("> ")
        terminal.type("\x04")
        terminal.expect("Continue with\n  holdfast chat s-")
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.shown
    assert said_to(server) == ["Talk", "Briefly"]
    assert home.json("show", only_session(home))["pending"][0]["kind"] == "input"


def test_ctrl_c_stops_a_turn_whose_tool_runs(home: Home) -> None:
    with_tools(home)
    with (
        serving(tool_call("slow"), "never") as server,
        home.terminal("chat", "--model", f"{server.url}#m", "--tool", "tools.py:slow") as terminal,
    ):
        prompt(terminal, "Sleep")
        terminal.expect("⚙ slow")
        terminal.press("\x03", until="Stopped.")
        terminal.expect("> ")
    assert len(server.requests) == 1


def test_ctrl_c_at_the_prompt_leaves_and_says_how_to_go_on(home: Home) -> None:
    with serving() as server, home.terminal("chat", "--model", "m", "--base-url", server.url) as terminal:
        terminal.expect("> ")
        terminal.type("half a mess")
        terminal.expect("half a mess")
        terminal.press("\x03", until="Continue with")
        terminal.expect(f"--base-url {server.url}")
        assert terminal.exit_code() == 130


def test_a_session_is_gone_on_with_in_a_new_process_by_the_beginning_of_its_id(home: Home) -> None:
    with_tools(home)
    with (
        serving(tool_call("add", a=2, b=40), "It is 42.", "As I said, 42.") as server,
        home.terminal("chat", "--model", f"{server.url}#m", "--system", "Be brief.", "--tool", "tools:add") as terminal,
    ):
        prompt(terminal, "2 + 40?")
        terminal.expect("It is 42.")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
        with home.terminal("chat", only_session(home)[2:8], "--base-url", server.url) as again:
            again.expect("4 messages")
            again.expect('> 2 + 40?\n\n⚙ add {"a":2,"b":40}\n  → 42\n\nIt is 42.\n')
            again.expect("missing now: add")
            prompt(again, "Once more?")
            again.expect("As I said, 42.")
    assert said_to(server) == ["2 + 40?", "", "", "It is 42.", "Once more?"]
    assert (server.requests[-1].system, server.requests[-1].model) == ("Be brief.", "m")


def test_a_turn_that_waits_for_somebody_outside_says_so_and_how_to_answer(home: Home) -> None:
    with_tools(home)
    with (
        serving(tool_call("approve", what="pay"), "Paid.") as server,
        home.terminal("chat", "--model", f"{server.url}#m", "--tool", "tools:approve", "--id", "shop") as terminal,
    ):
        prompt(terminal, "Pay")
        terminal.expect('approve {"what":"pay"}')
        terminal.expect("holdfast answer shop --query q-2 TEXT")
        home.ok("answer", "shop", "--query", "q-2", "yes, do")
        terminal.expect("→ yes, do")
        terminal.expect("Paid.")


def test_a_turn_that_was_left_is_gone_on_with_and_its_tool_is_not_taken_for_unknown(home: Home) -> None:
    with_tools(home)
    with serving(tool_call("approve", what="pay"), "Paid.") as server:
        left = home.process(
            "chat", "--model", f"{server.url}#m", "--tool", "tools:approve", "--id", "shop", "-m", "Pay"
        )
        assert left.returncode == 1
        assert "holdfast answer shop --query q-2 TEXT" in left.stderr
        with home.terminal("chat", "shop", "--base-url", server.url) as terminal:
            terminal.expect("The last turn had not ended; it is resumed.")
            terminal.expect("holdfast answer shop --query q-2 TEXT")
            home.ok("answer", "shop", "yes")
            terminal.expect("Paid.")
            prompt(terminal, "/quit")
            assert terminal.exit_code() == 0


@pytest.mark.parametrize("model", ["other", "ollama:other"])
def test_a_session_can_go_on_with_another_model(home: Home, model: str) -> None:
    with serving("ok", loop=True) as server:
        environment = {"OPENAI_BASE_URL": server.url, "OLLAMA_BASE_URL": server.url}
        home.process("chat", "--model", "openai:first", "--id", "talk", "-m", "One", env=environment)
        if ":" in model:
            del environment["OPENAI_BASE_URL"]  # the first service can no longer be asked at all
        with home.terminal("chat", "talk", "--model", model, env=environment) as terminal:
            prompt(terminal, "Two")
            terminal.expect("ok")
            prompt(terminal, "/quit")
            assert terminal.exit_code() == 0
    assert [request.model for request in server.requests] == ["first", "other"]
    assert said_to(server) == ["One", "ok", "Two"]


def test_a_model_that_fails_is_told_with_what_to_do_and_the_chat_goes_on(home: Home) -> None:
    with (
        serving(fault("auth", "Incorrect API key"), "Now then.") as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("answered 401")
        terminal.expect("What to do: set the key of the service")
        prompt(terminal, "Hello?")
        terminal.expect("Now then.")
