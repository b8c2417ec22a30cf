"""Asking a person at the terminal whether a tool may be called."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import dim, plain

if TYPE_CHECKING:
    from holdfast.agent.machine.queries import ApprovalCall
    from holdfast.core.values import Json

QUESTION = "Run it? [y]es, [n]o WHY, [a]lways, [e]dit > "

_HELP = (
    "y runs it; n does not, and n WHY tells the model why; a runs it and all calls of this tool in this session,\n"
    "a NAME=PATTERN only calls whose arguments match; e lets you edit its arguments."
)


def ask_decision(call: ApprovalCall, read: Callable[[str], str]) -> Json:
    """Ask a person about a call that was shown to them, and return the decision."""
    while True:
        word, _, rest = read(QUESTION).strip().partition(" ")
        match word.casefold():
            case "y" | "yes" | "approve" if not rest:
                return "approve"
            case "n" | "no" | "deny":
                return {"decision": "deny", "reason": rest.strip()} if rest.strip() else "deny"
            case "a" | "always":
                if (match := _parse_patterns(rest)) is not None:
                    return {"decision": "always", "match": match} if match else "always"
            case "e" | "edit" if not rest:
                if (edited := _edit_arguments(call, read)) is not None:
                    return {"decision": "approve", "arguments": edited}
                continue
        click.echo(dim(_HELP), err=not sys.stdout.isatty())


def _parse_patterns(text: str) -> dict[str, str] | None:
    """The patterns in `name=pattern …`, or None if the text is something else."""
    with contextlib.suppress(ValueError):
        pairs = [word.partition("=") for word in shlex.split(text)]
        if all(name and equals for name, equals, _ in pairs):
            return {name: pattern for name, _, pattern in pairs}
    return None


def _edit_arguments(call: ApprovalCall, read: Callable[[str], str]) -> dict[str, Any] | None:
    """The arguments as a person has edited them, or None if they changed nothing."""
    from holdfast.core.distinct_keys import distinct

    text = json.dumps(call.arguments, ensure_ascii=False)
    while True:
        with _prefilled(text):
            text = read("… ").strip()
        if not text:
            return None
        try:
            edited = json.loads(text, object_pairs_hook=distinct)
            if isinstance(edited, dict):
                return edited
            why = "it is not an object"
        except ValueError as error:
            why = str(error)
        click.echo(dim(f"That is not a JSON object of arguments: {plain(why)}. An empty line leaves them as they are."))


@contextlib.contextmanager
def _prefilled(text: str) -> Iterator[None]:
    """Put a text on the line that is read next, if lines can be edited; otherwise print it above."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline

            readline.set_startup_hook(lambda: readline.insert_text(text))
            try:
                yield
            finally:
                readline.set_startup_hook(None)
            return
    click.echo(plain(text), err=not sys.stdout.isatty())
    yield


@contextlib.contextmanager
def attention() -> Iterator[None]:
    """Drop what was typed before the question was shown, and keep the answer out of the history of messages."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_auto_history(False)
    try:
        yield
    finally:
        readline.set_auto_history(True)
