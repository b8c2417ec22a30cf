"""OS processes that tools start: each in a process group of its own, its output passed on, ended with its children.

If the caller gives up, because the turn was stopped or its time is up, the group is asked to end (SIGTERM), and killed
after `KILL_AFTER_S`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

KILL_AFTER_S = 2.0
"""Seconds that a process has to clean up after it was asked to end."""

OUTPUT_BYTES = 4 * 1024 * 1024
"""Bytes of output that are passed on. The rest is read, so that the process is not blocked, and dropped."""

_PIECE_BYTES = 64 * 1024


class SubprocessResult(msgspec.Struct, frozen=True):
    """The result of an OS process."""

    code: int
    """Its exit code, or the negative number of the signal that ended it."""
    output: str
    """Standard output and standard error, in the order in which they came, up to a limit."""
    lost: int = 0
    """Bytes beyond that limit."""

    @property
    def is_success(self) -> bool:
        return self.code == 0


async def run_process(
    argv: Sequence[str],
    write: Callable[[str], None],
    *,
    stdin: str = "",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> SubprocessResult:
    """Run a process to its end; `write` is called with its output."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        feeding = asyncio.create_task(_feed(process, stdin))
        try:
            output, lost = await _read(process, write)
            code = await process.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        return SubprocessResult(code, output, lost)
    finally:
        await _end(process)


async def _feed(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text.encode())
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: asyncio.subprocess.Process, write: Callable[[str], None]) -> tuple[str, int]:
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    output: list[str] = []
    room, lost = OUTPUT_BYTES, 0
    while piece := await process.stdout.read(_PIECE_BYTES):
        text = decoder.decode(piece[:room])
        room, lost = max(0, room - len(piece)), lost + max(0, len(piece) - room)
        output.append(text)
        write(text)
    return "".join(output), lost


async def _end(process: asyncio.subprocess.Process) -> None:
    """End what is left of a process group. If this is cancelled in turn, the group is killed at once."""
    try:
        if not _signal(process.pid, signal.SIGTERM):
            return
        async with asyncio.timeout(KILL_AFTER_S):
            while _signal(process.pid, 0):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await process.wait()
                        await asyncio.sleep(0.01)  # its children may need a moment more
    except TimeoutError:
        pass
    finally:
        _signal(process.pid, signal.SIGKILL)
        await reap(process)


async def reap(process: asyncio.subprocess.Process) -> None:
    """Wait until a killed process is gone, also when cancelled meanwhile: nobody else would, and its end is near."""
    cancelled: asyncio.CancelledError | None = None
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; False if it is empty."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
