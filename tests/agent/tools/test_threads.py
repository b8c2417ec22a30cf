"""Threads of tools: used again when they are idle, never waited for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from holdfast.agent.tools import threads
from holdfast.agent.tools.threads import in_thread
from holdfast.testing.patience import HANG_S, soon, until


async def test_an_idle_thread_is_used_again() -> None:
    threads._idle.clear()  # of other tests
    first = await soon(in_thread(threading.get_ident))
    await until(lambda: threads._idle)
    assert await soon(in_thread(threading.get_ident)) == first


async def test_a_thread_that_has_nothing_to_do_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.05)
    threads._idle.clear()
    thread = await soon(in_thread(threading.current_thread))
    await until(lambda: not thread.is_alive())
    assert threads._idle == []
    assert await soon(in_thread(lambda: "still works")) == "still works"


async def test_calls_at_once_have_threads_of_their_own() -> None:
    together = threading.Barrier(50, timeout=HANG_S)
    await soon(asyncio.gather(*(in_thread(together.wait) for _ in range(50))))


async def test_a_thread_outlives_its_loop_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    release, over = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(5)
        over.set()

    def elsewhere() -> None:
        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(in_thread(hang), 0.02)

        asyncio.run(give_up())

    await soon(in_thread(elsewhere))
    release.set()
    await until(over.is_set)
    await asyncio.sleep(0.02)
    assert capfd.readouterr().err == ""


def test_a_process_ends_while_a_function_hangs() -> None:
    code = """
import asyncio, time
from holdfast.agent.tools.threads import in_thread
async def main():
    try:
        await asyncio.wait_for(in_thread(lambda: time.sleep(600)), 0.05)
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "given up\n"


def test_a_fork_does_not_wait_for_threads_that_it_does_not_have() -> None:
    code = """
import asyncio, os, time
from holdfast.agent.tools.threads import _idle, in_thread
async def work():
    await asyncio.wait_for(in_thread(lambda: None), 60)
asyncio.run(work())
while not _idle:
    time.sleep(0.001)
if os.fork() == 0:
    asyncio.run(work())
    print("done", flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "done\n"
