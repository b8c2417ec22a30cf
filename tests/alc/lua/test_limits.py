"""The limits of a step: computing time counts, waiting for a busy machine does not, and what was stopped can go on."""

from __future__ import annotations

import pytest

from holdfast.alc.lua.limits import PATIENCE_S
from holdfast.alc.lua.pool import StepJob, WatchedStep
from holdfast.alc.lua.source import lua_code
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import CompletedEvent
from holdfast.programs.language import StepLimits
from tests.alc.lua.sessions import asked, engine, failed

DEADLINE_S = 1.0


class ScriptedClock:
    """A process that does as a test says."""

    def __init__(self) -> None:
        self.used = 3.0
        self.is_ready = True

    def processor_s(self) -> float:
        return self.used

    def wants_processor(self) -> bool:
        return self.is_ready


def looks(seconds: float) -> range:
    return range(round(seconds / PATIENCE_S))


def test_a_step_that_waits_for_the_processor_is_not_past_its_deadline() -> None:
    clock = ScriptedClock()
    step = WatchedStep(StepJob(1, 1, False, DEADLINE_S), clock)
    for _ in looks(60):
        step.look()
    assert not step.is_past(DEADLINE_S)


def test_a_step_that_computes_is_past_its_deadline_by_its_processor_time() -> None:
    clock = ScriptedClock()
    step = WatchedStep(StepJob(1, 1, False, DEADLINE_S), clock)
    for _ in looks(60):
        clock.used += DEADLINE_S / 300
        step.look()
    assert not step.is_past(DEADLINE_S)
    clock.used += DEADLINE_S
    step.look()
    assert step.is_past(DEADLINE_S)


def test_a_step_that_waits_for_something_else_is_past_its_deadline_when_the_time_is_over() -> None:
    clock = ScriptedClock()
    clock.is_ready = False
    step = WatchedStep(StepJob(1, 1, False, DEADLINE_S), clock)
    for _ in looks(2 * DEADLINE_S):
        step.look()
    assert step.is_past(DEADLINE_S)


async def test_a_trusted_step_that_sleeps_is_stopped() -> None:
    async with engine(deadline_s=0.2) as hf:
        event = failed(await hf.start(lua_code("return io.popen('sleep 60'):read('a')", trust="trusted")))
        assert event.error_kind == "deadline"


COUNTS = """
local said = alc.llm("How far?")
local n = 0
while n < tonumber(said) do n = n + 1 end
return { n, alc.llm("Go on?") }
"""


async def test_a_session_stopped_by_its_deadline_continues_with_a_longer_one() -> None:
    async with engine() as hf:
        event = await hf.start(lua_code(COUNTS, deadline_s=0.05), id="short")
        stopped = failed(await hf.feed(event.session_id, "20000000"))
        assert stopped.error_kind == "deadline"
        assert "`holdfast fork SESSION --deadline SECONDS`" in stopped.error
        longer = await hf.fork("short", id="longer", limits=StepLimits(deadline_s=60))
        assert asked(longer) == ["Go on?"]
        ended = await hf.feed("longer", "yes")
        assert isinstance(ended, CompletedEvent)
        assert ended.result == [20000000, "yes"]


async def test_a_session_stopped_for_its_memory_continues_with_more() -> None:
    async with engine() as hf:
        code = "local s = alc.llm('What?'):rep(12 << 20) return #s"
        event = await hf.start(lua_code(code, memory_mib=8), id="small")
        stopped = failed(await hf.feed(event.session_id, "x"))
        assert stopped.error_kind == "memory"
        ended = await hf.fork("small", limits=StepLimits(memory_mib=64))
        assert isinstance(ended, CompletedEvent)
        assert ended.result == 12 << 20


async def test_limits_of_a_fork_are_checked() -> None:
    async with engine() as hf:
        await hf.start(lua_code("return alc.llm('x')"), id="first")
        with pytest.raises(InvalidValueError, match="at most 3600"):
            await hf.fork("first", limits=StepLimits(deadline_s=1e9))
