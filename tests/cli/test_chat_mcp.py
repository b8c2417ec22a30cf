"""`chat --mcp`: the tools of MCP servers in a conversation."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from holdfast.testing.provider import tool_call
from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home

CRUDE = Path(__file__).parents[1] / "agent" / "mcp" / "servers" / "crude.py"


def test_a_chat_has_the_tools_of_its_servers_and_is_told_how_to_go_on_with_them(home: Home) -> None:
    old = f"old={shlex.join([sys.executable, str(CRUDE), 'old'])}"
    with serving(tool_call("old_look"), "There are four.") as server:
        done = home.process("chat", "--model", f"{server.url}#m", "--mcp", old, "-m", "Look.")
    assert (done.returncode, done.stdout) == (0, "There are four.\n")
    assert "⚙ old_look → there are 4" in done.stderr
    assert [spec.name for spec in server.requests[0].tools] == ["old_listed", "old_look", "old_shout"]


def test_a_server_that_cannot_be_used_ends_the_chat_before_it_begins(home: Home) -> None:
    bad = f"bad={shlex.join([sys.executable, str(CRUDE), 'broken', 'x'])}"
    with serving("never") as server:
        done = home.process("chat", "--model", f"{server.url}#m", "--mcp", bad, "-m", "Look.")
        assert server.requests == []
    assert done.returncode != 0
    assert "MCP server 'bad' cannot be used now: its process ended with exit code 7" in done.stderr
    assert "Traceback (most recent call last):\n  File" not in done.stderr


def test_a_server_is_named_and_said_where_it_is(home: Home) -> None:
    for given in ("files", "=mcp-files", "a b=mcp-files", "files='mcp-files"):
        done = home.process("chat", "--model", "http://127.0.0.1:9/v1#m", "--mcp", given, "-m", "Look.")
        assert done.returncode != 0
        assert f"--mcp {given}: " in done.stderr
