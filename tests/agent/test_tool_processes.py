"""Processes that tools start: their output, their end, and that of their children."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from holdfast import ToolContext
from holdfast.agent.live_events import LiveEvent, ToolOutputEvent
from holdfast.agent.tools import Tool
from holdfast.agent.tools.subprocesses import KILL_AFTER_S, OUTPUT_BYTES, SubprocessResult, reap
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import Home

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"])  # what is ignored here is ignored there
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
print("ready", flush=True)
time.sleep(60)
"""
"""A process with a child that both will not end when they are asked to."""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_process_says_what_it_has_to_say_and_how_it_ended() -> None:
    script = "import sys; print(sys.stdin.read() + '!'); print('wrong', file=sys.stderr, flush=True); sys.exit(3)"
    ended = await soon(ToolContext().run(sys.executable, "-u", "-c", script, stdin="Hi"))
    assert ended == SubprocessResult(3, "Hi!\nwrong\n")
    assert not ended.is_success


async def test_a_process_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    script = "import os; print(os.getcwd(), os.environ['WORD'])"
    ended = await soon(ToolContext().run(sys.executable, "-c", script, cwd=tmp_path, env={"WORD": "x"}))
    assert ended.output == f"{tmp_path} x\n"


async def test_of_endless_output_only_the_beginning_is_kept() -> None:
    script = f"import sys; sys.stdout.write('x' * {OUTPUT_BYTES + 10})"
    ended = await soon(ToolContext().run(sys.executable, "-c", script))
    assert (len(ended.output), ended.lost, ended.is_success) == (OUTPUT_BYTES, 10, True)


async def test_a_program_that_is_not_there_is_an_error_of_the_tool() -> None:
    with pytest.raises(FileNotFoundError):
        await ToolContext().run("/nowhere/nothing")


async def test_what_a_process_leaves_behind_ends_with_it() -> None:
    ended = await soon(ToolContext().run("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"))
    left = int(ended.output)
    await until(lambda: not lives(left))


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_a_process_that_will_not_end_is_killed_with_its_children(tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"

    async def shell(ctx: ToolContext) -> str:
        """Run something."""
        return (await ctx.run(sys.executable, "-c", STUBBORN, str(pids))).output

    heard: list[str] = []

    async def sink(event: LiveEvent) -> None:
        if isinstance(event, ToolOutputEvent):
            heard.append(event.text)

    tool = Tool.of(shell, timeout_s=60 if how == "cancelled" else 1.5)
    async with Home("memory:").runtime(tool_call("shell"), "ok", tools=[tool]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("go").stream_to(sink))
        await until(lambda: "".join(heard) == "ready\n")
        both = [int(pid) for pid in pids.read_text().split()]
        assert all(map(lives, both))
        if how == "cancelled":
            began = time.monotonic()
            await soon(session.cancel(reason="enough"))
            assert time.monotonic() - began < KILL_AFTER_S  # the turn is over at once; the process has its time
        await soon(work)
        await until(lambda: not any(map(lives, both)))
        assert os.getpid() not in both


def test_a_process_is_reaped_although_every_task_of_its_loop_is_cancelled() -> None:
    async def leave() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "0.5")
        reaping.append(asyncio.create_task(reap(process)))
        await asyncio.sleep(0)
        return process.pid  # the loop ends now, and cancels what is left

    reaping: list[asyncio.Task[None]] = []
    pid = asyncio.run(leave())
    assert reaping[0].cancelled()
    assert not Path(f"/proc/{pid}").exists()
