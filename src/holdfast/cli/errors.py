"""How a command ends with an error: the sentence on standard error, and the exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from holdfast.core.errors import ExitCode, HoldfastError

_NEXT_STEPS = {
    "session_not_found": "`holdfast sessions` lists sessions",
    "session_deleted": "`holdfast sessions` lists the others",
    "corrupt_session": "`holdfast doctor` says what can be done",
    "invalid_journal": "`holdfast doctor` says what can be done",
    "no_pending_query": "`holdfast show` prints its state",
    "invalid_transition": "`holdfast show` prints how it ended",
    "query_id_required": "choose one with --query",
    "agent_definition": "mend it, give a missing tool with --tool, or use no subagents with --no-agents",
    "unknown_event_type": "`holdfast emit --declare '{}'` declares it, with a JSON schema, and emits",
    "not_an_agent": "resume it with `holdfast run --resume`",
}
"""What to do next, for kinds of error whose own sentence does not say it."""


_EXTRAS = {
    "mcp": "mcp",
    "mcp_types": "mcp",
    "starlette": "serve",
    "uvicorn": "serve",
    "httpx2": "client",
    "cryptography": "sign",
}
"""The extra that brings a package which a command needs."""


class InputError(HoldfastError):
    """Something on the command line that cannot be used."""

    why: str
    kind = "input"

    def __str__(self) -> str:
        return self.why


class AmbiguousIdError(HoldfastError):
    """The beginning of more than one session id."""

    given: str
    candidates: list[str]
    kind = "ambiguous_id"

    def __str__(self) -> str:
        shown = ", ".join(self.candidates[:10]) + (", …" if len(self.candidates) > 10 else "")
        return f"{len(self.candidates)} session ids begin with '{self.given}'; type more of one of {shown}"


def usage_error(why: str) -> click.UsageError:
    """Options that do not go together, or are missing; the message also points at the command's help."""
    return click.UsageError(why, click.get_current_context())


def report_error(error: Exception, *, as_json: bool) -> int:
    """Print an error on standard error, and return the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return ExitCode.BAD_INPUT
        case click.Abort():
            _print({"kind": "interrupted", "error": "interrupted; all answers are kept"}, as_json)
            return ExitCode.INTERRUPTED
        case click.UsageError():
            hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
            _print({"kind": "usage", "error": error.format_message().rstrip(".") + hint}, as_json)
            return ExitCode.BAD_INPUT
        case click.ClickException():
            _print({"kind": "usage", "error": error.format_message()}, as_json)
            return ExitCode.BAD_INPUT
        case HoldfastError():
            fields = error.to_json()
            if error.kind in _NEXT_STEPS:
                fields["error"] = f"{fields['error']}; {_NEXT_STEPS[error.kind]}"
            _print(fields, as_json)
            return error.exit_code
        case BrokenPipeError():
            # Nobody reads the output any more; without this, the interpreter complains when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.PIPE_CLOSED
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            _print({"kind": "os", "error": f"{where}{error.strerror or error}"}, as_json)
            return ExitCode.BAD_INPUT
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] in _EXTRAS:
            package = name.partition(".")[0]
            why = f"this needs the package `{package}`: pip install 'holdfast[{_EXTRAS[package]}]'"
            _print({"kind": "missing_extra", "error": why}, as_json)
            return ExitCode.BAD_INPUT
        case _:
            if os.environ.get("HOLDFAST_DEBUG") and not as_json:
                raise error
            why = f"a bug in Holdfast: {type(error).__name__}: {error}; HOLDFAST_DEBUG=1 shows the traceback"
            _print({"kind": "bug", "error": why, **(_traceback(error) if as_json else {})}, as_json)
            return ExitCode.BUG


def log_as_json() -> None:
    """Write what is logged to standard error as JSON, a line each: programs read the output of `--json`."""
    import logging

    class JsonLines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            fields = {"status": "log", "level": record.levelname.lower(), "logger": record.name}
            error = record.exc_info[1] if record.exc_info else None
            return json_line({**fields, "message": record.getMessage(), **(_traceback(error) if error else {})})

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler
    logging.captureWarnings(True)


def _traceback(error: BaseException) -> dict[str, str]:
    import traceback

    return {"traceback": "".join(traceback.format_exception(error))}


def json_line(fields: dict[str, Any]) -> str:
    """Fields as one line of JSON, whatever is in them."""
    import json

    return json.dumps(fields, ensure_ascii=False, default=_to_json)


def _print(fields: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json_line({"status": "error", **fields}), err=True)
    else:
        from holdfast.cli.output import plain

        colour = False if os.environ.get("NO_COLOR") else None
        click.echo(f"{click.style('holdfast:', fg='red')} {plain(fields['error'])}", err=True, color=colour)


def _to_json(value: object) -> Any:
    import msgspec

    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else str(value)
