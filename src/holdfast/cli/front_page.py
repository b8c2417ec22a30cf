"""What `holdfast --help` prints: the commands, a line each, and the options of them all.

Nothing but text is imported here. Help is what a newcomer asks for first, and most of what a command takes to start
is the import of the parser of command lines.
"""

from __future__ import annotations

import os

SUMMARY = "Durable sessions for LLM programs: a program asks, anyone answers, nothing is lost."

STORE_HELP = (
    "sqlite:///path or postgresql://…  [env: HOLDFAST_STORE; default: that of holdfast.toml, else a file in your data"
    " directory]"
)
JSON_HELP = "Print JSON."

OPTIONS = {
    "--version": "Show the version and exit.",
    "--store URL": STORE_HELP,
    "--json": JSON_HELP,
    "-h, --help": "Show this message and exit.",
}
"""The options that may stand before a command. A test compares them with those that are parsed."""

COMMANDS = {
    "run": "Start a strategy, or resume a session.",
    "chat": "Talk with a model in a durable session.",
    "answer": "Answer what a session asks.",
    "assign": "Say who answers the model questions of a session.",
    "cancel": "End a session, or stop one of its turns.",
    "enqueue": "Send a message to an agent, for a worker.",
    "queue": "Show what was sent to an agent, and the results.",
    "worker": "Work through what was sent to agents.",
    "workers": "List the processes at work; let one drain.",
    "limits": "Limit what all processes on a store do together.",
    "dispatch": "See how a dispatcher brings work to workers, and move what is stuck.",
    "ps": "List background processes.",
    "kill": "End a background process.",
    "logs": "Show what has happened in a background process.",
    "emit": "Emit an event, which starts what its triggers start.",
    "schedule": "Start turns, strategies and events by the clock.",
    "fork": "Make a new session from the beginning of another.",
    "diff": "Compare two sessions.",
    "replay": "Check that the code here still does what sessions have recorded.",
    "sessions": "List sessions, newest first.",
    "show": "Show one session: its state, what it waits for, what it spent.",
    "watch": "Follow a session as it runs.",
    "top": "See the sessions at work.",
    "export": "Write a session to a file.",
    "import": "Add the session in a file to the store.",
    "adopt": "See what an imported session would run, and let it.",
    "keys": "The keys that exported sessions are signed with.",
    "copy-store": "Copy a whole store, from SQLite to PostgreSQL or back.",
    "delete": "Remove a session and everything that belongs to it.",
    "gc": "Expire idle sessions, delete old ones.",
    "doctor": "Check every session, and repair what can be repaired.",
    "eval": "Compare strategies and models on data.",
    "strategies": "List the strategies in Python; show what each does and asks.",
    "check": "Check strategies without running them.",
    "init": "Make a project: its model, its store, a first strategy.",
    "new": "Write a new strategy with a test.",
    "pkg": "Lua packages: find, install, link, check and test them.",
    "cards": "Cards: the records of runs; find, compare and export them.",
    "hub": "The hub: search packages, index and document a collection.",
    "migrate": "Take over an algocline directory: packages, cards, state, logs.",
    "scenario": "Scenarios of evaluations in Lua: list, show and install them.",
    "serve": "Serve sessions and agents over HTTP.",
    "token": "Tokens for the HTTP server: who may do what.",
    "mcp": "Serve strategies to an MCP host: an editor, an agent CLI.",
    "demo": "See a session survive the death of its process.",
    "completion": "Print the script for shell completion.",
}
"""The line of each command, kept here so that help imports no command."""

_MARGIN = 2
"""Columns before an option or a command, between it and its line, and left free on the right."""


def front_page(columns: int) -> str:
    """The help of the whole, without its last line end, on so many columns."""
    about = "".join(f"{' ' * _MARGIN}{line}\n" for line in _lines(SUMMARY, columns - _MARGIN))
    parts = [f"{title}:\n{_listed(rows, columns)}" for title, rows in (("Options", OPTIONS), ("Commands", COMMANDS))]
    return "\n".join(["Usage: holdfast [OPTIONS] COMMAND [ARGS]...\n", about, *parts]).removesuffix("\n")


def help_columns() -> int:
    """The columns that help is printed on: those of the terminal, but no more than 80, which read well."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (ValueError, OSError):
        columns = 0
    return max(min(columns or 80, 80) - _MARGIN, 50)


def _listed(rows: dict[str, str], columns: int) -> str:
    """Names and their lines side by side."""
    widest = max(map(len, rows)) + _MARGIN
    listed = ""
    for name, line in rows.items():
        first, *more = _lines(line, columns - widest - _MARGIN)
        listed += f"{' ' * _MARGIN}{name.ljust(widest)}{first}\n"
        listed += "".join(f"{' ' * (widest + _MARGIN)}{each}\n" for each in more)
    return listed


def _lines(text: str, columns: int) -> list[str]:
    """A text in lines of at most so many columns, without `textwrap`, whose import takes as long as all of this."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > columns:
            lines.append(line.rstrip())
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
