"""Approval on the command line: asked at the prompt of a chat, shown by the commands that look, answered by any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import Result

from holdfast.agent.machine.approval import Approval, ruling
from holdfast.cli.chat.setup import approval_rules
from holdfast.testing.model_server import ModelServer
from holdfast.testing.provider import ScriptStep, tool_call
from tests.cli.chat_helpers import picture, serving
from tests.cli.helpers import Home, Terminal

TOOLS = '''
import time
from pathlib import Path

def remove(path: str, force: bool = False) -> str:
    """Remove a file."""
    with (Path(__file__).parent / "removed").open("a") as log:
        log.write(path + "\\n")
    return f"removed {path}"

def look(path: str) -> str:
    """Look at a file."""
    return f"looked at {path}"

def linger() -> str:
    """Take a while."""
    time.sleep(1.5)
    return "lingered"

both = [remove, look, linger]
'''


def removed(home: Home) -> list[str]:
    """What the tool has done."""
    log = home.folder / "removed"
    return log.read_text().split() if log.exists() else []


@contextmanager
def chatting(home: Home, server: ModelServer, *args: str) -> Iterator[Terminal]:
    """A chat with tools, of which one is to be approved."""
    (home.folder / "tools.py").write_text(TOOLS)
    rules = args or ("--confirm", "remove")
    with home.terminal(
        "chat", "--model", f"{server.url}#m", "--tool", "tools:both", "--id", "talk", *rules
    ) as terminal:
        terminal.expect("\n> ")
        terminal.type("Go\n")
        yield terminal


def removes(*paths: str) -> list[ScriptStep]:
    return [step for path in paths for step in (tool_call("remove", path=path), f"Done with {path}.")]


# --- at the prompt ---------------------------------------------------------------------------------------


def test_a_call_is_asked_about_with_its_arguments_and_run_after_a_yes(home: Home) -> None:
    text = "a line\nand \x1b[31manother"
    with (
        serving(tool_call("remove", path=text, force=True), "Done.") as server,
        chatting(home, server) as terminal,
    ):
        terminal.expect("? remove\n    path:\n    │ a line\n    │ and �[31manother\n    force: true\n")
        terminal.expect("Run it? [y]es, [n]o WHY, [a]lways, [e]dit > ")
        assert removed(home) == []
        terminal.type("y\n")
        terminal.expect("→ removed a line")
        terminal.expect("Done.")
        terminal.expect("\n> ")
    assert len(removed(home)) > 0
    assert "⚙ remove" in picture(terminal)


@pytest.mark.parametrize(("typed", "told"), [("n", "did not approve it"), ("no it is needed", "it is needed")])
def test_a_no_is_told_to_the_model(home: Home, typed: str, told: str) -> None:
    with serving(*removes("/x")) as server, chatting(home, server) as terminal:
        terminal.expect("Run it?")
        terminal.type(f"{typed}\n")
        terminal.expect(f"✗ not approved: {'the person asked ' if typed == 'n' else ''}{told}")
        terminal.expect("Done with /x.")
    assert removed(home) == []
    assert told in json.dumps(server.requests[-1].messages[-1].content[0].content)  # type: ignore[union-attr]


def test_always_is_not_asked_again(home: Home) -> None:
    calls: list[ScriptStep] = [[tool_call("remove", path="/a"), tool_call("remove", path="/b")], "Two.", *removes("/c")]
    with serving(*calls) as server, chatting(home, server) as terminal:
        terminal.expect("Run it?")
        terminal.type("a path=/etc/*\n")
        terminal.expect("does not match the call itself")
        terminal.expect("Run it?")
        terminal.type("a path=/*\n")
        terminal.expect("Two.")
        terminal.expect("\n> ")
        terminal.type("More\n")
        terminal.expect("Done with /c.")
    assert sorted(removed(home)) == ["/a", "/b", "/c"]
    assert terminal.shown.count("? remove") == 1


def test_arguments_can_be_edited_where_they_stand(home: Home) -> None:
    with serving(*removes("/x")) as server, chatting(home, server) as terminal:
        terminal.expect("Run it?")
        terminal.type("e\n")
        terminal.expect('… {"path": "/x"}')
        terminal.type("\x01\x0b[1]\n")  # the beginning of the line, and away with all after it
        terminal.expect("That is not a JSON object of arguments: it is not an object")
        terminal.expect("… [1]")
        terminal.type('\x01\x0b{"path": "/y"}\n')
        terminal.expect("→ removed /y")
        terminal.expect("Done with /x.")
    assert removed(home) == ["/y"]


def test_what_is_no_answer_is_asked_again(home: Home) -> None:
    with serving(*removes("/x")) as server, chatting(home, server) as terminal:
        for nonsense in ("", "maybe", "yes please", "a path", "e now"):
            terminal.expect("Run it?")
            terminal.type(f"{nonsense}\n")
            terminal.expect("y runs it; n does not")
        terminal.expect("Run it?")
        assert removed(home) == []
        terminal.type("Y\n")
        terminal.expect("Done with /x.")
    assert removed(home) == ["/x"]


def test_what_was_typed_before_it_was_asked_approves_nothing(home: Home) -> None:
    calls: list[ScriptStep] = [tool_call("linger"), tool_call("remove", path="/x"), "Done."]
    with serving(*calls) as server, chatting(home, server) as terminal:
        terminal.expect("⚙ linger")
        terminal.type("y\ny\n")
        terminal.expect("Run it?")
        assert removed(home) == []
        terminal.type("n\n")
        terminal.expect("Done.")
    assert removed(home) == []


def test_other_calls_go_on_while_a_person_thinks_and_are_shown_afterwards(home: Home) -> None:
    calls: list[ScriptStep] = [
        [tool_call("linger"), tool_call("remove", path="/x"), tool_call("look", path="/y")],
        "Done.",
    ]
    with serving(*calls) as server, chatting(home, server) as terminal:
        terminal.expect("Run it?")
        asked = len(terminal.raw)
        answered = ["lingered", "looked at /y"]
        while not all(text in json.dumps(home.json("show", "talk", "--journal")["journal"]) for text in answered):
            pass
        terminal.type("y\n")
        terminal.expect("Done.")
    shown = picture(terminal)
    assert "lingered" not in terminal.raw[:asked]
    assert [shown.count(f"→ {text}") for text in ("lingered", "looked at /y", "removed /x")] == [1, 1, 1]


def test_ctrl_c_stops_the_turn_instead_and_ctrl_d_leaves_it_waiting(home: Home) -> None:
    with serving(tool_call("remove", path="/x"), tool_call("remove", path="/y"), "Done.") as server:
        with chatting(home, server) as terminal:
            terminal.expect("Run it?")
            terminal.press("\x03", until="Stopped.")
            terminal.expect("\n> ")
            terminal.type("Again\n")
            terminal.expect("Run it?")
            terminal.type("\x04")
            terminal.expect("Everything is kept.")
            assert terminal.exit_code() == 0
        assert removed(home) == []
        assert home.json("sessions")["sessions"][0]["approvals"][0]["arguments"] == {"path": "/y"}
        with home.terminal("chat", "talk", "--base-url", server.url, "--tool", "tools:both") as terminal:
            terminal.expect("The last turn had not ended; it is resumed.")
            terminal.expect("Run it?")
            terminal.type("y\n")
            terminal.expect("Done.")
    assert removed(home) == ["/y"]


def test_somebody_elsewhere_may_be_quicker(home: Home) -> None:
    with serving(*removes("/x")) as server, chatting(home, server) as terminal:
        terminal.expect("Run it?")
        home.ok("answer", "talk", "approve")
        terminal.type("n\n")
        terminal.expect("Somebody else has decided in the meantime.")
        terminal.expect("Done with /x.")
    assert removed(home) == ["/x"]


# --- rules -----------------------------------------------------------------------------------------------


def test_denied_tools_are_not_run_and_the_rules_stay_with_the_session(home: Home) -> None:
    with serving(*removes("/x", "/y")) as server:
        with chatting(home, server, "--deny", "rem*", "--allow", "*") as terminal:
            terminal.expect("✗ not approved: the rules of this session do not allow it")
            terminal.expect("Done with /x.")
        done = talked(home, server, "talk", "-m", "Again")
    assert (done.exit_code, done.stdout) == (0, "Done with /y.\n")
    assert "not approved" in done.stderr
    assert removed(home) == []


@pytest.mark.parametrize(
    ("tool", "verdict"),
    [("git_log", "allow"), ("git_push", "confirm"), ("git_force", "deny"), ("read", "confirm"), ("readme", "confirm")],
)
def test_the_pattern_that_says_most_counts(tool: str, verdict: str) -> None:
    rules = approval_rules(allow=["git_*"], confirm=["*", "git_push"], deny=["*force*"])
    assert ruling([Approval(rules=rules)], tool, {}).verdict == verdict


# --- without a terminal ----------------------------------------------------------------------------------


def talked(home: Home, server: ModelServer, *args: str, stdin: str = "") -> Result:
    """A chat in this process, which has no terminal."""
    tools = f"{home.folder / 'tools.py'}:both"
    return home.call("chat", *args, "--base-url", server.url, "--tool", tools, stdin=stdin)


def waiting(home: Home, server: ModelServer, *args: str) -> Result:
    """Have a chat wait for an approval; what it says."""
    (home.folder / "tools.py").write_text(TOOLS)
    done = talked(home, server, "--model", "m", "--id", "talk", "--confirm", "remove", *args, stdin="Go\n")
    assert done.exit_code == 1, done.output
    return done


def test_a_pipe_is_told_what_waits_and_how_to_answer(home: Home) -> None:
    with serving(*removes("/x")) as server:
        told = waiting(home, server).stderr
        assert 'the turn waits for approval: q-2   human  run remove {"path":"/x"}?; answer with' in told
        for command in ("approve", "always", "--fail WHY"):
            assert f"`holdfast answer talk --query q-2 {command}`" in told
        home.ok("answer", "talk", "--query", "q-2", "approve")
        done = talked(home, server, "talk")
        assert (done.exit_code, done.stdout) == (0, "Done with /x.\n")
    assert removed(home) == ["/x"]


def test_programs_are_told_of_the_call(home: Home) -> None:
    with serving(*removes("/x")) as server:
        events = [json.loads(line) for line in waiting(home, server, "--json").stdout.splitlines()]
    [event] = [event for event in events if event["type"] == "waiting"]
    assert event["queries"][0]["approves"] == {"id": "call_1", "tool": "remove", "arguments": {"path": "/x"}}


def test_commands_that_look_show_the_call(home: Home) -> None:
    with serving(*removes("/some/where")) as server:
        waiting(home, server)
    shown = home.ok("show", "talk")
    assert '? remove\n        path: "/some/where"\n' in shown
    assert "Answer with: holdfast answer talk --query q-2 approve" in shown
    assert "holdfast answer talk --query q-2 --fail WHY" in shown
    assert 'run remove {"path":"/some/where"}?' in home.ok("show", "talk", "--journal")
    assert 'approval: run remove {"path":"/some/where"}?' in home.ok("sessions")
    [row] = home.json("sessions", "--waiting-for", "human")["sessions"]
    call = {"id": "call_1", "tool": "remove", "arguments": {"path": "/some/where"}}
    assert row["approvals"] == [call]
    assert home.json("show", "talk")["pending"][0]["approves"] == call
    assert '? remove\n    path: "/some/where"\n' in home.ok("run", "--resume", "talk")


@pytest.mark.parametrize(
    ("given", "ran", "told"),
    [
        (["approve"], ["/x"], "removed /x"),
        (["--fail", "not today"], [], "not approved: not today"),
        (['{"decision": "approve", "arguments": {"path": "/y"}}'], ["/y"], "removed /y"),
        (["--responses", '{"q-2": {"decision": "deny", "reason": "never"}}'], [], "not approved: never"),
    ],
)
def test_an_answer_from_the_shell_decides(home: Home, given: list[str], ran: list[str], told: str) -> None:
    with serving(*removes("/x")) as server:
        waiting(home, server)
        home.ok("answer", "talk", *given)
        talked(home, server, "talk")
    assert removed(home) == ran
    assert told in json.dumps(server.requests[-1].messages[-1].content[0].content)  # type: ignore[union-attr]


def test_an_answer_that_decides_nothing_is_refused_with_what_may_be_answered(home: Home) -> None:
    with serving(*removes("/x")) as server:
        waiting(home, server)
    before = home.json("show", "talk")
    refused = home.call("answer", "talk", "sure")
    assert refused.exit_code != 0
    assert "q-2 asks whether to run the tool 'remove'" in refused.stderr
    assert "answer 'approve', 'deny' or 'always'" in refused.stderr
    assert home.json("show", "talk")["position"] == before["position"]


def test_who_answers_on_a_terminal_is_asked_about_the_call(home: Home) -> None:
    with serving(*removes("/x")) as server:
        waiting(home, server)
        with home.terminal("answer", "talk") as terminal:
            terminal.expect('? remove\n    path: "/x"\n')
            terminal.expect("Run it?")
            terminal.type("n not now\n")
            terminal.expect("holdfast chat talk")
        assert home.json("show", "talk")["pending"][0].get("kind") != "human"
