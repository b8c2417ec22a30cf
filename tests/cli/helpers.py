"""What the tests of the command line share: strategies in a file, and three ways to run the command."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from holdfast.cli.group import cli
from holdfast.programs import registry
from holdfast.testing.patience import HANG_S
from tests.forks.popen import take_terminal

STRATEGIES = """
import asyncio
import holdfast

@holdfast.strategy
async def greet(ctx):
    name = await ctx.llm("What is your name?", max_tokens=7)
    return f"Hello {name}{ctx.get('mark', '')}"

@holdfast.strategy
async def panel(ctx):
    return await ctx.llm_batch(["first?", "second?", "third?"])

@holdfast.strategy
async def choose(ctx):
    return await ctx.ask("Tea or coffee?", choices=["tea", "coffee"])

@holdfast.strategy
async def brittle(ctx):
    await ctx.llm("Ready?")
    raise ValueError("it broke")

@holdfast.strategy
async def tolerant(ctx):
    try:
        await ctx.llm("Ready?")
    except holdfast.QueryFailedError as error:
        return f"{error.code}: {error}"

@holdfast.strategy
async def nap(ctx):
    await ctx.sleep(0.2)
    return "rested"

@holdfast.strategy
async def measure(ctx):
    return await ctx.tool("thermometer", room="attic")

@holdfast.strategy
async def delegate(ctx):
    return await ctx.child(greet, {"mark": "!"})

@holdfast.strategy
async def owned(ctx):
    name, slow = await asyncio.gather(ctx.ask("Who is there?"), ctx.tool("slow"))
    return f"{name} and {slow}"
"""


class Home:
    """A folder with a store and a file of strategies, and the command run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "sessions.db"
        self.url = f"sqlite:///{self.db}"
        self.file = folder / "strategies.py"
        self.file.write_text(STRATEGIES)
        (folder / "holdfast.toml").write_text('serve = ["strategies.py"]\n')

    def call(self, *args: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
        """Run the command in this process, with no registered strategies but its own, as in a process of its own."""
        before = registry.registered()
        registry._registered.clear()
        try:
            own = {**self._own, "HOLDFAST_PROJECT_ROOT": str(self.folder)}  # processes of their own work in the folder
            return CliRunner().invoke(cli, list(args), input=stdin, env={**own, **(env or {})})
        finally:
            registry._registered.clear()
            registry._registered.update(before)

    def serve_nothing(self) -> None:
        """Let the folder be no project, and no command have native strategies of its own accord."""
        (self.folder / "holdfast.toml").unlink()

    def ok(self, *args: str, stdin: str | None = None) -> str:
        """What a command prints that has to succeed."""
        result = self.call(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *args: str) -> Any:
        """What a command prints with --json."""
        return json.loads(self.ok(*args, "--json"))

    def start(self, name: str, *args: str) -> str:
        """Start a strategy of the file; the session's id."""
        event = self.json("run", f"{self.file}:{name}", *args)
        return str(event["session_id"])

    def process(
        self, *args: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        return subprocess.run(
            _command(args),
            input=stdin,
            env=self._env(env),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            cwd=self.folder,
        )

    def background(self, *args: str) -> subprocess.Popen[str]:
        """Run the command in a process that goes on while the test does."""
        return subprocess.Popen(
            _command(args), env=self._env(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @contextmanager
    def terminal(self, *args: str, env: dict[str, str] | None = None, columns: int = 120) -> Iterator[Terminal]:
        """Run the command on a terminal of its own."""
        terminal = Terminal(_command(args), {**self._env(env), "TERM": "xterm"}, self.folder, columns)
        try:
            yield terminal
        finally:
            terminal.close()

    def _env(self, extra: dict[str, str] | None) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
        return {**kept, **self._own, **(extra or {})}

    @property
    def _own(self) -> dict[str, str]:
        return {
            "HOLDFAST_STORE": self.url,
            "HOLDFAST_HOME": str(self.folder / "own"),
        }


def _command(args: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli", *args]


class Terminal:
    """A process on a real pseudo-terminal."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path, columns: int = 120) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("=HHHH", 40, columns, 0, 0))  # 40 rows

        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={
                name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")
            },  # it asks the terminal
            cwd=cwd,
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509 - between fork and exec there is no other way to do this
        )
        os.close(slave)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._seen = 0

    def expect(self, text: str, seconds: float = HANG_S) -> None:
        """Wait until a text is printed after what was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < deadline, f"{text!r} was not printed:\n{self.shown}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    data = os.read(self._master, 65536)
                except OSError:
                    data = b""
                assert data, f"the command ended without {text!r}:\n{self.shown}"
                self.raw += self._decoder.decode(data)  # a read may end within a character
        self._seen += self.shown[self._seen :].index(text) + len(text)

    @property
    def shown(self) -> str:
        """What was printed, without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def press(self, key: str, until: str) -> None:
        """Press a key until it is heard, as a person does: Python's line editor misses a signal now and then."""
        for _ in range(5):
            self.type(key)
            try:
                self.expect(until, seconds=4)
                return
            except AssertionError:
                if self._process.poll() is not None:
                    raise
        self.expect(until)

    def exit_code(self) -> int:
        return self._process.wait(timeout=HANG_S)

    def close(self) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._master)
