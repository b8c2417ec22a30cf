"""`subprocess.Popen` for tests: a command that begins with this Python is forked from the preloaded parent.

Everything else of a process is as ever: it has its own files, folder, environment and session, is a child of this
process, and is waited for and killed as such. What can't be done by forking (another interpreter or its options, other
settings of Python in the environment, functions to call before, code that looks at what is loaded) is done as ever too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.forks.parent import LENGTH_BYTES, Request
from tests.paths import REPO

PID_FILE = "HOLDFAST_TESTS_PID_FILE"
"""A variable for the environment of a process whose starter hides it: its id is written to the file of this name."""

_OPTIONS = [
    "close_fds",
    "pass_fds",
    "cwd",
    "env",
    "startupinfo",
    "creationflags",
    "shell",
    "p2cread",
    "p2cwrite",
    "c2pread",
    "c2pwrite",
    "errread",
    "errwrite",
    "restore_signals",
    "gid",
    "gids",
    "uid",
    "umask",
    "start_new_session",
    "process_group",
]
"""What `Popen._execute_child` is called with after the command and the function to call before it."""

_PR_SET_CHILD_SUBREAPER = 36
_Popen = subprocess.Popen


def take_terminal() -> None:
    """To be called before a process on a terminal begins: so that Ctrl-C becomes a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class ForkedPopen(_Popen[Any]):
    """A process, forked if it can be."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        options: dict[str, Any] = dict(zip(_OPTIONS, rest, strict=True))
        argv = [os.fsdecode(arg) for arg in ([args] if isinstance(args, (str, bytes, os.PathLike)) else args)]
        env = dict(os.environ) if options["env"] is None else _texts(options["env"])
        if executable is None and preexec_fn in (None, take_terminal) and _can_fork(argv, env, options):
            self._fork(argv, env, preexec_fn is take_terminal, options)
        else:
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            _commands.pop(self.pid, None)
        if PID_FILE in env:
            with open(env[PID_FILE], "w") as file:
                file.write(str(self.pid))

    def _fork(self, argv: list[str], env: dict[str, str], takes_terminal: bool, options: dict[str, Any]) -> None:
        ours = [options["p2cread"], options["c2pwrite"], options["errwrite"]]
        here = [number if fd == -1 else fd for number, fd in enumerate(ours)] + list(options["pass_fds"])
        there = [0, 1, 2, *options["pass_fds"]]
        cwd = os.fspath(options["cwd"] or os.getcwd())
        request = Request(argv[1:], env, cwd, there, options["start_new_session"], takes_terminal)
        self.pid = _PARENT.child(request, here)
        _commands[self.pid] = argv
        self._child_created = True
        files = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(options[name] for name in files))  # type: ignore[attr-defined]


class _Parent:
    """The preloaded parent, as seen from here. It is started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def child(self, request: Request, fds: list[int]) -> int:
        """Have a child forked that has these files; its process id."""
        body = pickle.dumps(tuple(request))
        with self._lock, _adopting_orphans():
            parent = self._socket or self._start()
            socket.send_fds(parent, [len(body).to_bytes(LENGTH_BYTES)], fds)
            parent.sendall(body)
            pid = parent.recv(LENGTH_BYTES, socket.MSG_WAITALL)
            assert parent.recv(1) == b"D", "the parent of forked processes has ended"
        return int.from_bytes(pid)

    def _start(self) -> socket.socket:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.forks.parent", str(theirs.fileno())]
            self._process = _Popen(command, cwd=REPO, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        assert self._socket.recv(1) == b"R", "the parent of forked processes did not start"
        return self._socket

    def end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
        self._socket = self._process = None


_PARENT = _Parent()

_commands: dict[int, list[str]] = {}
"""What processes were forked for: the system knows them by the command of the parent."""


def command_of(pid: int) -> list[str]:
    """The command that a process was started with, or none if there is no such process any more."""
    try:
        shown = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return []
    return _commands.get(pid) or shown.split("\0")


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Within this, processes are forked where that can be done."""
    subprocess.Popen = ForkedPopen  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = _Popen  # type: ignore[misc]
        _PARENT.end()


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """Within this, every process is started from its program file, as users start it."""
    before, subprocess.Popen = subprocess.Popen, _Popen  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def _texts(env: Any) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}


def _can_fork(argv: list[str], env: dict[str, str], options: dict[str, Any]) -> bool:
    if argv[0] != sys.executable or len(argv) < 2 or (argv[1].startswith("-") and argv[1] not in ("-m", "-c")):
        return False
    if argv[1] == "-m" and argv[2].partition(".")[0] not in ("holdfast", "tests"):
        return False
    if argv[1] == "-c" and "sys.modules" in argv[2]:
        return False  # it looks at what is loaded
    if any(env.get(name) != os.environ.get(name) for name in {*env, *os.environ} if _changes_python(name)):
        return False
    if env.get("PYTHONPATH") not in (os.environ.get("PYTHONPATH"), os.pathsep.join(sys.path)):
        return False
    defaults = {"gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1, "shell": False}
    defaults |= {"close_fds": True}
    cwd = options["cwd"]
    return all(options[name] == value for name, value in defaults.items()) and (cwd is None or os.path.isdir(cwd))


def _changes_python(name: str) -> bool:
    """Whether a variable is a setting of Python that a forked process can't take up."""
    return name.startswith("PYTHON") and name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Only while a child is forked: at other times orphans of the tests' processes go to the system as ever."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
