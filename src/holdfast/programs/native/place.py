"""Where a strategy waits: the line of its source that a person should look at. It is found out when somebody asks."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

_MACHINERY = (Path(__file__).parent, Path(__file__).parent / "ctx", Path(asyncio.__file__).parent)


def place_of(task: asyncio.Task[Any]) -> str:
    """The innermost place of a task that waits which is neither ours nor asyncio's, as `file:line`; or empty."""
    place = ""
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not _is_machinery(frame.f_code.co_filename):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None)
    return place


def task_awaiting(future: asyncio.Future[Any]) -> asyncio.Task[Any] | None:
    """The task that waits for a future, by itself or through `gather`; None if that cannot be seen."""
    for callback, _ in getattr(future, "_callbacks", None) or []:
        awaiting = getattr(callback, "__self__", None)
        if isinstance(awaiting, asyncio.Task):
            return awaiting
        gathered = closure_of(callback).get("outer")
        if isinstance(gathered, asyncio.Future) and (found := task_awaiting(gathered)) is not None:
            return found
    return None


def closure_of(function: object) -> dict[str, Any]:
    """The variables that a function has kept from where it was made."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if not code or not cells:
        return {}
    return {name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=True)}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


@cache
def _is_machinery(filename: str) -> bool:
    return Path(filename).parent in _MACHINERY
