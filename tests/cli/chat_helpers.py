"""What the tests of `chat` and `run --model` share: a scripted model behind a real server, and what a screen shows."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.testing.model_server import ModelServer
from holdfast.testing.patience import until_so
from holdfast.testing.provider import ScriptStep
from tests.cli.helpers import Home, Terminal

TOOLS = '''
import time
from holdfast.agent.tools.catalog import DeclaredTool

def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def broken(path: str) -> str:
    """Read a file."""
    raise OSError(f"{path}: the disk is gone")

def slow() -> str:
    """Take long."""
    time.sleep(60)
    return "awake"

approve = DeclaredTool("approve", "Ask a person.", {"type": "object"})
both = [add, broken]
'''


@contextmanager
def serving(*steps: ScriptStep, loop: bool = False, api_key: str | None = None) -> Iterator[ModelServer]:
    """A scripted model behind a server, in a thread of its own."""
    server = ModelServer(steps, loop=loop, api_key=api_key)
    events = asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), events).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), events).result()
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()


def until_asked(server: ModelServer) -> None:
    """Wait until the model was asked something."""
    until_so(lambda: server.requests)


def said_to(server: ModelServer, number: int = -1) -> list[str]:
    """The texts of the messages that the model was given with a request."""
    return [message.text for message in server.requests[number].messages]


def picture(terminal: Terminal) -> str:
    """What stands on the screen, and above it, after all that was printed: the last of what was written over."""
    rows, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[^\x1b]", terminal.raw):
        if piece == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif piece == "\r":
            column = 0
        elif piece == "\x1b[J" or piece == "\x1b[K":
            rows[row] = rows[row][:column]
            rows = rows[: row + 1] if piece == "\x1b[J" else rows
        elif piece.endswith("A") and piece.startswith("\x1b["):
            row -= int(piece[2:-1] or 1)
        elif not piece.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + 1 :]
            column += 1
    return "\n".join(line.rstrip() for line in rows)


def with_tools(home: Home) -> Home:
    """A home with a file of tools."""
    (home.folder / "tools.py").write_text(TOOLS)
    return home


def only_session(home: Home) -> str:
    """The id of the only session there is."""
    [row] = home.json("sessions")["sessions"]
    return str(row["session_id"])
