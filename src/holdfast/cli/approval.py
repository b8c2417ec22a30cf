"""Calls of tools that somebody has to approve: how they are shown, how a person is asked, and how else to answer."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery
from holdfast.cli.output import dim, heading, one_line, plain, pretty
from holdfast.core.queries import Query

if TYPE_CHECKING:
    from holdfast.agent.machine.approval import Rule
    from holdfast.core.values import Json

QUESTION = "Run it? [y]es, [n]o WHY, [a]lways, [e]dit > "

_HELP = (
    "y runs it; n does not, and n WHY tells the model why; a runs it and all calls of this tool in this session,\n"
    "a NAME=PATTERN only those whose arguments match; e lets you change its arguments."
)

_SHORT = 60
"""Characters of a value that stands on the line of its name."""


def approved_call(query: Query) -> ApprovalCall | None:
    """The call that a query asks to approve, if it does."""
    return query.approves if isinstance(query, ApprovalQuery) else None


def call_line(call: ApprovalCall, columns: int) -> str:
    """The question about a call, on one line."""
    return one_line(f"run {call.tool} {one_line(call.arguments, columns)}?", columns)


def call_lines(call: ApprovalCall) -> list[str]:
    """A call with all of its arguments: who approves it must have seen them."""
    reason = [f"  {dim(plain(call.reason))}"] if call.reason else []
    lines = [f"{click.style('?', fg='yellow')} {heading(plain(call.tool))}", *reason]
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else pretty(value)
        is_short = len(text) <= _SHORT and "\n" not in text
        head = f"    {click.style(plain(name), fg='cyan')}:"
        if is_short:
            lines.append(f"{head} {plain(json.dumps(value, ensure_ascii=False)) if isinstance(value, str) else text}")
        else:
            lines += [head, *(f"    {dim('│')} {line}" for line in plain(text).split("\n"))]
    return lines if call.arguments else [*lines, f"    {dim('without arguments')}"]


def commands_for(session_id: str, query_id: str) -> list[str]:
    """The commands that answer for a person who is elsewhere."""
    base = f"holdfast answer {session_id} --query {query_id}"
    return [f"{base} approve", f"{base} always", f"{base} --fail WHY"]


def ask(call: ApprovalCall, read: Callable[[str], str]) -> Json:
    """Ask a person at the terminal about a call that was shown; what they decide."""
    while True:
        word, _, rest = read(QUESTION).strip().partition(" ")
        match word.casefold():
            case "y" | "yes" | "approve" if not rest:
                return "approve"
            case "n" | "no" | "deny":
                return {"decision": "deny", "reason": rest.strip()} if rest.strip() else "deny"
            case "a" | "always":
                if (match := _patterns(rest)) is not None:
                    return {"decision": "always", "match": match} if match else "always"
            case "e" | "edit" if not rest:
                if (edited := _edited(call, read)) is not None:
                    return {"decision": "approve", "arguments": edited}
                continue
        click.echo(dim(_HELP), err=not sys.stdout.isatty())


def _patterns(text: str) -> dict[str, str] | None:
    """`name=pattern …`; None if that is not what it is."""
    with contextlib.suppress(ValueError):
        pairs = [word.partition("=") for word in shlex.split(text)]
        if all(name and equals for name, equals, _ in pairs):
            return {name: pattern for name, _, pattern in pairs}
    return None


def _edited(call: ApprovalCall, read: Callable[[str], str]) -> dict[str, Any] | None:
    """Other arguments, as a person types them; None if they leave it."""
    text = json.dumps(call.arguments, ensure_ascii=False)
    while True:
        with _typed_already(text):
            text = read("… ").strip()
        if not text:
            return None
        try:
            edited = json.loads(text)
            if isinstance(edited, dict):
                return edited
            why = "it is no object"
        except ValueError as error:
            why = str(error)
        click.echo(dim(f"That is no JSON object of arguments: {plain(why)}. An empty line leaves them as they are."))


@contextlib.contextmanager
def _typed_already(text: str) -> Iterator[None]:
    """Let a text stand on the line to be typed, where lines can be edited; else show it above."""
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
    """Ask something that must not be answered by what was typed before it was asked, nor be remembered as a message."""
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


# --- rules on the command line -------------------------------------------------------------------------


def rules_of(allow: Sequence[str], confirm: Sequence[str], deny: Sequence[str]) -> list[Rule]:
    """Rules from patterns of names: what is denied is; else the pattern that says most of a name counts."""
    from holdfast.agent.machine.approval import Rule

    rules = [*map(Rule.deny, deny), *map(Rule.confirm, confirm), *map(Rule.allow, allow)]
    return sorted(rules, key=lambda rule: -sum(character not in "*?" for character in rule.tool))
