"""The engine and its Lua workers: what a worker and its steps cost, and messages of any size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.core.events import CompletedEvent, PausedEvent
from holdfast.core.queries import LlmQuery
from holdfast.engine.holdfast import open_holdfast

STEPS = 200

ASKS = f"""
for number = 1, {STEPS} do alc.llm("question " .. number) end
return "done"
"""

LARGE = 4 * 1024 * 1024
"""Characters of a text: far more than a pipe holds."""

REPEATS = """
local heard = alc.llm("Say something long.")
local again = alc.llm(heard .. heard)
return #again
"""


def _times_asleep(pid: int) -> int:
    """How often the main thread of a process has gone to sleep."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} does not say how often it has slept")


async def test_a_worker_is_woken_once_for_each_step() -> None:
    async with open_holdfast("memory:") as holdfast:
        kind = LuaKind(workers=1)
        holdfast.add_kind(kind)
        event = await holdfast.start(lua_code(ASKS))
        assert isinstance(event, PausedEvent)
        (worker,) = kind.pool.pids
        before = _times_asleep(worker)
        for _ in range(STEPS - 1):
            event = await holdfast.feed(event.session_id, "yes")
        assert _times_asleep(worker) - before < STEPS * 1.2


async def test_questions_and_answers_that_no_pipe_can_hold_arrive_whole() -> None:
    async with open_holdfast("memory:") as holdfast:
        holdfast.add_kind(LuaKind(workers=1))
        event = await holdfast.start(lua_code(REPEATS))
        event = await holdfast.feed(event.session_id, "a" * LARGE)
        assert isinstance(event, PausedEvent)
        (query,) = event.queries
        assert isinstance(query, LlmQuery)
        assert query.prompt == "a" * LARGE * 2
        event = await holdfast.feed(event.session_id, "b" * LARGE)
        assert isinstance(event, CompletedEvent)
        assert event.result == LARGE


def test_a_worker_starts_without_an_event_loop() -> None:
    """Loading one would take a fifth of the time that a worker takes to start, and megabytes in each of them."""
    code = "import sys, holdfast.alc.lua.worker; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
