"""Runs a script again and again: each time it is killed when it gets to another line, and then run to its end.

`python -m tests.cut_off SCRIPT` prints the lines after which the script failed, or "all lines". Each run is a fork of
this process, so that everything is imported once.
"""

from __future__ import annotations

import dis
import os
import runpy
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import holdfast

KILLED = 9


def lines_inside(code: CodeType) -> set[int]:
    """The lines of the functions in some code."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    own = {line for function in inner for _, line in dis.findlinestarts(function) if line}
    return own.union(*map(lines_inside, inner))


def run(script: Path, folder: Path, killed_at: int | None = None) -> int:
    """The exit code of the script, run in a folder; it is killed when it gets to a line."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(script):
            return None
        if event == "line" and frame.f_lineno == killed_at:
            os._exit(KILLED)
        return trace

    code = 1
    try:
        os.chdir(folder)
        if killed_at is not None:
            sys.settrace(trace)
        runpy.run_path(str(script), run_name="__main__")
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.settrace(None)
        sys.stdout.flush()
        os._exit(code)


def main(script: Path) -> int:
    holdfast.open, holdfast.Runtime  # noqa: B018 - they are imported when they are first used
    failed = []
    lines = sorted(lines_inside(compile(script.read_text(), str(script), "exec")))
    reached = 0
    for line in lines:
        with tempfile.TemporaryDirectory(dir=script.parent) as folder:
            reached += run(script, Path(folder), killed_at=line) == KILLED
            if run(script, Path(folder)) != 0:
                failed.append(line)
    print(
        f"cut off at {reached} of {len(lines)} lines; fails after lines {failed}"
        if failed or not reached
        else "all lines"
    )
    return 1 if failed or not reached else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
