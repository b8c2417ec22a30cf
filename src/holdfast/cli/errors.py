"""How a command ends: the exit codes, which error has which, and how errors are told."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import click

from holdfast.core.errors import ExitCode, HoldfastError

_NEXT = {
    "session_not_found": "`holdfast sessions` lists them",
    "session_deleted": "`holdfast sessions` lists the others",
    "corrupt_session": "`holdfast doctor` says what can be done",
    "invalid_journal": "`holdfast doctor` says what can be done",
    "no_pending_query": "`holdfast show` says how it stands",
    "invalid_transition": "`holdfast show` says how it ended",
    "query_id_required": "choose one with --query",
    "not_an_agent": "`holdfast run --resume` goes on with it",
}
"""What to do next, for kinds of error whose sentence does not say it."""


@dataclass(eq=False)
class InputError(HoldfastError):
    """Something on the command line that cannot be used."""

    why: str
    kind = "input"

    def __str__(self) -> str:
        return self.why


@dataclass(eq=False)
class AmbiguousIdError(HoldfastError):
    """The beginning of more than one session id."""

    given: str
    candidates: list[str]
    kind = "ambiguous_id"

    def __str__(self) -> str:
        shown = ", ".join(self.candidates[:10]) + (", …" if len(self.candidates) > 10 else "")
        return f"'{self.given}' is the beginning of {len(self.candidates)} session ids; give more of one of {shown}"


def failed(error: Exception, *, as_json: bool) -> int:
    """Tell an error on stderr; the exit code it leads to."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return ExitCode.BAD_INPUT
        case click.Abort():
            _tell({"kind": "interrupted", "error": "interrupted; what was answered is kept"}, as_json)
            return ExitCode.INTERRUPTED
        case click.UsageError():
            hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
            _tell({"kind": "usage", "error": error.format_message().rstrip(".") + hint}, as_json)
            return ExitCode.BAD_INPUT
        case click.ClickException():
            _tell({"kind": "usage", "error": error.format_message()}, as_json)
            return ExitCode.BAD_INPUT
        case HoldfastError():
            told = error.to_json()
            if error.kind in _NEXT:
                told["error"] = f"{told['error']}; {_NEXT[error.kind]}"
            _tell(told, as_json)
            return error.exit_code
        case BrokenPipeError():
            # Nobody reads any more; without this, the interpreter complains when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.PIPE_CLOSED
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            _tell({"kind": "os", "error": f"{where}{error.strerror or error}"}, as_json)
            return ExitCode.BAD_INPUT
        case _:
            if os.environ.get("HOLDFAST_DEBUG"):
                raise error
            why = f"a bug in Holdfast: {type(error).__name__}: {error}; HOLDFAST_DEBUG=1 shows where"
            _tell({"kind": "bug", "error": why}, as_json)
            return ExitCode.BUG


def _tell(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"status": "error", **told}, ensure_ascii=False, default=_as_json), err=True)
    else:
        from holdfast.cli.output import plain

        colour = False if os.environ.get("NO_COLOR") else None
        click.echo(f"{click.style('holdfast:', fg='red')} {plain(told['error'])}", err=True, color=colour)


def _as_json(value: object) -> Any:
    import msgspec

    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else str(value)
