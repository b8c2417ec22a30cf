"""`/name` in a chat: functions of the host, typed, listed by /help; and the same sent to a session's queue."""

from __future__ import annotations

import json

from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home
from tests.cli.test_chat_compact import prompt

COMMANDS = '''
def tag(name: str, times: int = 1) -> list[str]:
    """Tag the session."""
    return [name] * times

def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()
'''


def test_commands_of_the_host_are_listed_and_called(home: Home) -> None:
    (home.folder / "own.py").write_text(COMMANDS)
    place = str(home.folder / "own.py")
    options = ["--command", f"{place}:tag", "--command", f"{place}:shout"]
    with serving("Hi.") as server, home.terminal("chat", "--model", f"{server.url}#m", *options) as terminal:
        prompt(terminal, "/help")
        terminal.expect("/tag")
        terminal.expect("Tag the session.")
        prompt(terminal, "/tag name=blue times=2")
        terminal.expect('["blue","blue"]')
        prompt(terminal, "/shout well, that's it")
        terminal.expect("WELL, THAT'S IT")
        prompt(terminal, "/tag blue")
        terminal.expect("'/tag' takes name=… times=…")
        prompt(terminal, '/tag {"name": "x", "times": "y"}')
        terminal.expect("times")
        prompt(terminal, "/fly")
        terminal.expect("There is no /fly")
        prompt(terminal, "/quit")
        assert terminal.exit_code() == 0


def test_a_command_is_sent_to_the_queue_of_a_session(home: Home) -> None:
    with serving("Hi.") as server:
        home.ok("chat", "--model", f"{server.url}#m", "--id", "s", "-m", "Hello")
    home.ok("enqueue", "s", "tag", "--command", "--arguments", '{"name": "blue"}', "--id", "c-1")
    (sent,) = [json.loads(line) for line in home.ok("queue", "s", "--json").splitlines()]
    assert sent["command"] == {"name": "tag", "arguments": {"name": "blue"}}
    assert home.call("enqueue", "s", "text", "--arguments", "{}").exit_code == 2
