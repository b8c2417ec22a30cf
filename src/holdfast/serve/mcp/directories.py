"""The directories that a call names, checked before use, and errors of files in plain words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from holdfast.core.values import repaired
from holdfast.serve.mcp.tools import McpToolError, in_thread

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN_CHARS = 200
"""Characters of a path that an error quotes."""


def directory(given: str, what: str) -> Path:
    """A directory that a call names."""
    path = os.path.abspath(os.path.expanduser(given))
    if not given or not os.path.isdir(path):
        raise McpToolError(f"`{what}`: there is no directory '{shown(given)}'")
    return Path(path)


def file_below(given: str, directories: Sequence[Path], what: str) -> Path:
    """A file that a call names, with all links followed, if it is below one of these directories.

    What a server reads it records, and shows in the journal: so a call may name only what its operator has chosen.
    """
    try:
        path = Path(os.path.realpath(os.path.expanduser(given)))
    except ValueError as error:  # a NUL byte, or text that no file name holds
        raise McpToolError(f"`{what}`: {error}") from None
    if any(path.is_relative_to(os.path.realpath(each)) for each in directories):
        return path
    where = ", ".join(f"'{shown(str(each))}'" for each in directories) or "none"
    raise McpToolError(
        f"`{what}`: '{shown(given)}' is in no directory that files may be read from here ({where}); send the text,"
        " or let the operator name its directory with --code-dir"
    )


def shown(text: str) -> str:
    """What somebody has given, as an error quotes it."""
    text = repaired(text)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


async def on_files(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on files in a thread. What the system refuses is an error of the call, and not of the server."""

    def work() -> T:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            place = f"{shown(str(error.filename))}: " if error.filename is not None else ""
            raise McpToolError(f"{place}{error.strerror or error}") from None
        except ValueError as error:  # a path that cannot be one: a NUL byte, text that no file name holds
            raise McpToolError(shown(str(error))) from None

    done: T = await in_thread(work)
    return done
