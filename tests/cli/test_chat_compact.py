"""`chat` with conversations that are summed up: by hand, and where the model would not take them."""

from __future__ import annotations

from holdfast.agent.summary_prompt import SUMMARY_SYSTEM
from holdfast.testing.provider import fault, stream
from tests.cli.chat_helpers import only_session, said_to, serving
from tests.cli.helpers import Home, Terminal

NOTES = "## Goal\nTo greet each other."


def prompt(terminal: Terminal, text: str) -> None:
    """Wait until the chat asks, and type."""
    terminal.expect("\n> ")
    terminal.type(text + "\n")


def test_what_was_said_is_summed_up_on_demand_and_stays_readable(home: Home) -> None:
    with serving("Hi there.", NOTES, "Bye.") as server, home.terminal("chat", "--model", f"{server.url}#m") as terminal:
        prompt(terminal, "/compact")
        terminal.expect("nothing to summarize")
        prompt(terminal, "Hello")
        terminal.expect("Hi there.")
        prompt(terminal, "/compact keep the names")
        terminal.expect("≡ summarised: ## Goal")
        prompt(terminal, "Goodbye")
        terminal.expect("Bye.")
        prompt(terminal, "/history")
        terminal.expect(
            "> Hello\n\nHi there.\n\n── summarised here, as:\n   ## Goal\n   To greet each other.\n\n> Goodbye\n"
        )
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0
    assert "Above all: keep the names" in said_to(server, 1)[0]
    assert "To greet each other." in said_to(server)[0]
    assert said_to(server)[-1] == "Goodbye"
    shown = home.ok("show", only_session(home), "--journal")
    assert "to summarise the conversation: keep the names" in shown
    assert "summarised (manual): ## Goal" in shown


def test_it_is_told_where_the_model_would_not_take_the_conversation(home: Home) -> None:
    too_long = fault("context_length", "too long", status=400)
    with serving("Hi there.", too_long, NOTES, "Bye.") as server:
        home.ok("chat", "--model", f"{server.url}#m", "--id", "s", "-m", "Hello")
        done = home.process("chat", "s", "--base-url", server.url, "-m", "Goodbye")
    assert (done.returncode, done.stdout) == (0, "Bye.\n"), done.stderr
    assert "≡ summarised: ## Goal" in done.stderr


def test_ctrl_c_stops_it_and_the_conversation_is_as_it_was(home: Home) -> None:
    with (
        serving("Hi there.", stream(*["note "] * 100, every_s=0.1), "Bye.") as server,
        home.terminal("chat", "--model", f"{server.url}#m") as terminal,
    ):
        prompt(terminal, "Hello")
        terminal.expect("Hi there.")
        prompt(terminal, "/compact")
        terminal.expect("summarising the conversation")
        terminal.press("\x03", until="Stopped.")
        prompt(terminal, "Goodbye")
        terminal.expect("Bye.")
        assert "note note" not in terminal.shown
    assert said_to(server) == ["Hello", "Hi there.", "Goodbye"]
    assert server.requests[1].system == SUMMARY_SYSTEM
