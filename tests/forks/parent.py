"""The parent: imports what children need, then forks one for each request, until the tests that started it have ended.

A child is forked twice, and the one between ends at once: so it becomes a child of the tests, which have declared
themselves the reaper of orphans for that moment. They wait for it and kill it as any other process of theirs.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

PRELOADED = [
    "asyncpg",
    "httpx2",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.server",
    "pydantic_ai.direct",
    "rich.live",
    "starlette.applications",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
]
"""Beside all of Holdfast: what it imports where it is first needed."""

SOURCES = "holdfast.strategies.library."
"""Modules that are read, never imported."""

LENGTH_BYTES = 8
MOST_FDS = 64


class Request(NamedTuple):
    """What a child is to be: as the arguments of `subprocess.Popen`, its open files by their number in the child."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    fds: list[int]
    new_session: bool
    takes_terminal: bool


def main() -> None:
    tests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this by closing the socket
    for name in (*PRELOADED, *_modules()):
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"a process with {threads} threads can't be forked: something starts one when imported"
    gc.collect()
    gc.freeze()  # so that collections in children do not copy every page
    tests.sendall(b"R")
    while (found := _receive(tests)) is not None:
        request, fds = found
        between = os.fork()
        if between == 0:
            between = os.getpid()
            child = os.fork()
            if child == 0:
                tests.close()
                while os.getppid() == between:
                    time.sleep(0.0005)
                _live(request, fds)
            tests.sendall(child.to_bytes(LENGTH_BYTES))
            os._exit(0)
        os.waitpid(between, 0)
        tests.sendall(b"D")
        for fd in fds:
            os.close(fd)


def _modules() -> Iterator[str]:
    import holdfast

    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.startswith(SOURCES) and not module.name.endswith(("__main__", "_child", ".child")):
            yield module.name


def _receive(tests: socket.socket) -> tuple[Request, list[int]] | None:
    header, fds, _, _ = socket.recv_fds(tests, LENGTH_BYTES, MOST_FDS)
    if not header:
        return None
    body = bytearray()
    left = int.from_bytes(header)
    while len(body) < left:
        body += tests.recv(left - len(body))
    return Request(*pickle.loads(body)), list(fds)


def _live(request: Request, fds: list[int]) -> NoReturn:
    """Run, and end as the interpreter does, but without taking apart what was imported."""
    code: Any = 0
    try:
        _become(request, fds)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        raise  # ends by the signal
    except BaseException as error:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120  # as the interpreter ends when what was printed can't be written
    os._exit((code or 0) & 0xFF)


def _become(request: Request, fds: list[int]) -> None:
    if request.new_session:
        os.setsid()
    _place(fds, request.fds)
    if request.takes_terminal:
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.stdin = sys.__stdin__ = _text(0, "r", "strict")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text(1, "w", "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, "w", "backslashreplace")  # type: ignore[misc]
    _use_path(request.env.get("PYTHONPATH", ""))
    importlib.invalidate_caches()
    _run(request.argv)


def _use_path(path: str) -> None:
    """Look for modules where the variable says, first of all but the first place, which is for what is run."""
    said = path.split(os.pathsep) if path else []
    sys.path[1:] = [*said, *(each for each in sys.path[1:] if each not in said)]


def _place(fds: list[int], numbers: list[int]) -> None:
    """Give each received file the number it is to have, and close all others."""
    above = max([*numbers, *fds]) + 1
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds]
    for fd, number in zip(aside, numbers, strict=True):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in numbers:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(name))


def _text(fd: int, mode: str, errors: str) -> io.TextIOWrapper:
    raw = open(fd, mode + "b", closefd=False)  # noqa: SIM115 - open as long as the process lives
    lines = fd == 2 or raw.isatty()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=lines)
    stream.mode = mode  # type: ignore[misc]  # as the interpreter does
    return stream


def _run(argv: list[str]) -> None:
    """Run what stands behind `python` on a command line."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    match argv:
        case ["-m", name, *arguments]:
            sys.argv = ["-m", *arguments]
            sys.path[0] = os.getcwd()
            sys.modules.pop(name, None)  # it is run under another name
            run_module: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
            run_module(name)
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            sys.path[0] = ""
            exec(compile(code, "<string>", "exec"), main.__dict__)
        case [script, *arguments]:
            sys.argv = [script, *arguments]
            sys.path[0] = str(Path(script).resolve().parent)
            main.__file__ = script
            exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)


if __name__ == "__main__":
    main()
