"""Strategies that do harm end with a plain reason, soon after the deadline, and the others do not notice."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.outcomes import memory_text
from holdfast.alc.lua.process_clock import ProcessClock
from holdfast.alc.lua.source import lua_code
from holdfast.core.events import FailedEvent
from holdfast.core.queries import Value
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import HANG_S, until_so
from tests.alc.lua.sessions import asked, converse, engine, failed, install, is_alive, logged, own_workers, result
from tests.paths import REPO

DEADLINE_S = 0.3
ALLOWED_S = DEADLINE_S + 2
"""Seconds of computing after which the worst strategy has ended."""

BUSY_DEADLINE_S = 2 * HANG_S
"""Of strategies that are not to be ended by it while others are answered."""

POLITE = "local first = alc.llm('first') return { first, alc.llm('second after ' .. first), math.type(1) }"

NEVER_ENDS = {
    "in Lua": {
        "a loop": "while true do end",
        "a loop in pcall": "while true do pcall(function() while true do end end) end",
        "a recursive loop in pcall": "local function f() while true do pcall(f) end end f()",
        "a handler that loops": "xpcall(function() while true do end end, function() while true do end end)",
        "a loop while it is loaded": "load(function() return ' ' end)",
    },
    "in C": {
        "a pattern": "return (('a'):rep(30000):find('.-.-.-.-b'))",
        "a long move": "table.move({}, 1, 1 << 53, 2)",
        "a repetition of nothing": "return (''):rep(1 << 62)",
        "sorting without end": "table.sort(setmetatable({}, { __len = function() return 1 << 30 end }), print)",
    },
    "where it is called": {
        "__index": "return setmetatable({}, { __index = function() while true do end end }).x",
        "__close": "local x <close> = setmetatable({}, { __close = function() while true do end end }) return 1",
        "__close after a loop": (
            "local x <close> = setmetatable({}, { __close = function() while true do end end }) while true do end"
        ),
        "__tostring of its error": "error(setmetatable({}, { __tostring = function() while true do end end }))",
        "a comparison": "table.sort({ 3, 2, 1 }, function() while true do end end)",
    },
    "in coroutines": {
        "a loop in one": "coroutine.wrap(function() while true do end end)()",
        "many short ones": "while true do coroutine.wrap(function() for i = 1, 100000 do end end)() end",
        "each in the next": ("local function f() while true do pcall(coroutine.wrap(f)) end end coroutine.wrap(f)()"),
        "two that take turns": """
            local function f() while true do coroutine.yield() end end
            local a, b = coroutine.wrap(f), coroutine.wrap(f)
            while true do a() b() end
        """,
    },
    "out of memory": {
        "again and again": "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
        "with one text": "while true do pcall(string.rep, 'x', 1 << 30) end",
    },
}


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stuck is killed soon after the deadline: until then it takes the processor from others."""
    monkeypatch.setattr("holdfast.alc.lua.pool.GRACE_S", 0.2)


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("group", NEVER_ENDS)
async def test_a_strategy_that_never_ends_is_stopped_and_its_neighbours_go_on(group: str) -> None:
    async with engine(deadline_s=DEADLINE_S) as hf:
        fed, left, late = [await hf.start(lua_code(POLITE)) for _ in range(3)]
        hostile = {name: asyncio.create_task(_ended(hf, code)) for name, code in NEVER_ENDS[group].items()}
        await asyncio.sleep(DEADLINE_S / 4)
        async with asyncio.timeout(HANG_S):
            pauses, ended = await converse(hf, fed)
            assert pauses == [["first"], ["second after <first>"]]
            assert result(ended)[1] == "<second after <first>>"
        async with asyncio.timeout(HANG_S):
            new = await hf.start(lua_code(POLITE))
            assert asked(await hf.feed(new.session_id, "x")) == ["second after x"]
        for name, ending in hostile.items():
            event, _ = await ending
            assert event.error_kind == "deadline", name
            assert f"ran for more than {DEADLINE_S} s without asking anything" in event.error, name
        for paused in (left, late):
            assert result((await converse(hf, paused))[1])[1] == "<second after <first>>"


async def _ended(hf: Holdfast, code: str) -> tuple[FailedEvent, float]:
    """How a strategy failed, and how long it computed."""
    began = _computed_s()
    return failed(await hf.start(lua_code(code))), _computed_s() - began


def _computed_s() -> float:
    """Seconds of computing of all workers so far, also of those that were ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(ProcessClock(pid).processor_s() for pid in own_workers())


@pytest.mark.parametrize("code", [NEVER_ENDS["in Lua"]["a recursive loop in pcall"], NEVER_ENDS["in C"]["a pattern"]])
async def test_a_strategy_that_never_ends_is_stopped_two_seconds_after_the_deadline_at_the_latest(code: str) -> None:
    async with engine(deadline_s=DEADLINE_S) as hf:
        assert result(await hf.start(lua_code("return 1"))) == 1  # there is a worker
        event, seconds = await _ended(hf, code)
        assert event.error_kind == "deadline"
        assert seconds < ALLOWED_S


async def test_sessions_in_the_worker_of_a_strategy_that_never_ends_are_answered_while_it_runs() -> None:
    async with engine(deadline_s=BUSY_DEADLINE_S) as hf:
        first, second = [await hf.start(lua_code(POLITE)) for _ in range(2)]
        endless = asyncio.create_task(hf.start(lua_code(NEVER_ENDS["in C"]["a pattern"])))
        await asyncio.sleep(0.1)
        for paused in (first, second):
            async with asyncio.timeout(HANG_S):
                assert result((await converse(hf, paused))[1])[1] == "<second after <first>>"
        async with asyncio.timeout(HANG_S):
            assert asked(await hf.start(lua_code(POLITE))) == ["first"]
        assert not endless.done()
        endless.cancel()


@pytest.mark.usefixtures("short_grace")
async def test_endless_strategies_at_once_do_not_take_the_engine_with_them() -> None:
    async with engine(deadline_s=DEADLINE_S) as hf:
        paused = await hf.start(lua_code(POLITE))
        hostile = [asyncio.create_task(_ended(hf, "return (('a'):rep(30000):find('.-.-.-.-b'))")) for _ in range(6)]
        assert result((await converse(hf, paused))[1])[1] == "<second after <first>>"
        assert {(await ending)[0].error_kind for ending in hostile} == {"deadline"}
        assert result((await converse(hf, await hf.start(lua_code(POLITE))))[1])[1] == "<second after <first>>"


async def test_a_loop_after_an_answer_is_stopped_too_and_the_answer_is_kept() -> None:
    async with engine(deadline_s=DEADLINE_S) as hf:
        event = await hf.start(lua_code("alc.llm('go on?') while true do end"), id="s")
        assert failed(await hf.feed("s", "yes")).error_kind == "deadline"
        assert asked(event) == ["go on?"]
        assert (await hf.store.load("s")).metrics.rounds == 1


async def test_a_strategy_in_a_loop_can_be_cancelled_at_once() -> None:
    async with engine(deadline_s=BUSY_DEADLINE_S) as hf:
        endless = asyncio.create_task(hf.start(lua_code("while true do end"), id="s"))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(HANG_S):
            assert (await hf.cancel("s", "enough")).status == "cancelled"
            assert (await endless).status == "cancelled"


WANTS_MORE_THAN_THERE_IS = {
    "many texts": ("local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end", "16 MiB of memory"),
    "one text": ("return ('x'):rep(1 << 30)", "16 MiB of memory"),
    "doubling": ("local s = 'x' while true do s = s .. s end", "16 MiB of memory"),
    "many coroutines": ("local t = {} while true do t[#t + 1] = coroutine.create(print) end", "16 MiB of memory"),
    "long lines in the log": ("for i = 1, 3000 do print(('x'):rep(60000)) end", "16 MiB of memory"),
    "a large question": ("return alc.llm(('x'):rep(12 << 20))", "16 MiB of memory"),
    "a large result": ("return ('x'):rep(10 << 20)", "memory"),
    "a result that is shared": ("local t = {} for i = 1, 100 do t = { t, t } end return t", "memory"),
    "a large error": ("error(('x'):rep(10 << 20))", "16 MiB of memory"),
}


async def test_a_strategy_that_wants_too_much_memory_is_told_so_and_its_neighbours_keep_theirs() -> None:
    async with engine(deadline_s=5.0, memory_mib=16) as hf:
        neighbour = await hf.start(lua_code(POLITE))
        (worker,) = own_workers()
        for name, (code, told) in WANTS_MORE_THAN_THERE_IS.items():
            assert told in failed(await hf.start(lua_code(code))).error, name
        assert own_workers() == {worker}
        assert result((await converse(hf, neighbour))[1])[1] == "<second after <first>>"


FILLED = """
local t = {}
pcall(function() while true do t[#t + 1] = ("x"):rep(100000) .. #t end end)
pcall(function() while true do t[#t + 1] = ("x"):rep(100) .. #t end end)
for i = 1, 300 do t[#t] = nil end
"""


async def test_an_answer_that_does_not_fit_into_a_full_vm_ends_only_that_session() -> None:
    async with engine(deadline_s=5.0, memory_mib=16) as hf:
        neighbour = await hf.start(lua_code(POLITE))
        full = await hf.start(lua_code(FILLED + "return #alc.llm('more?')"))
        (worker,) = own_workers()
        event = failed(await hf.feed(full.session_id, "y" * 2_000_000))
        assert (event.error_kind, event.error) == ("memory", memory_text(16))
        assert own_workers() == {worker}
        assert result((await converse(hf, neighbour))[1])[1] == "<second after <first>>"


async def test_a_module_that_does_not_fit_into_a_full_vm_is_an_error_and_not_the_end_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"large": f"return {{ text = [[{'x' * 1_000_000}]] }}"})
    async with engine(deadline_s=5.0, memory_mib=16) as hf:
        code = """
            local ok, why = pcall(require, "large")
            t = nil
            collectgarbage()
            return { ok, why, #require("large").text }
        """
        told = result(await hf.start(lua_code(FILLED + code)))
        assert told == [False, "not enough memory", 1_000_000]
        (worker,) = own_workers()
        assert is_alive(worker)


async def test_a_session_whose_worker_dies_at_every_try_ends_after_a_few() -> None:
    killer = "alc.llm('ready?') local f = io.popen('kill -9 $PPID; sleep 5') return f"
    async with engine(deadline_s=5.0) as hf:
        event = await hf.start(lua_code(killer, trust="trusted"))
        event = failed(await hf.feed(event.session_id, "yes"))
        assert event.error_kind == "worker_died"
        assert event.error == "the Lua worker died 3 times while it ran this step of the strategy"


DEEP = {
    "plain": ("local function f() return 1 + f() end return f()", ("stack overflow", "MiB of memory")),
    "through __index": (
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(s, k) return s[k + 1] end return t[1]",
        ("C stack overflow",),
    ),
    "through gsub": ("local function f() return (('x'):gsub('x', f)) end return f()", ("C stack overflow",)),
    "through __tostring": (
        "return tostring(setmetatable({}, { __tostring = function(s) return ('%s'):format(s) end }))",
        ("C stack overflow",),
    ),
    "through coroutines": ("local function f() return coroutine.wrap(f)() end return f()", ("C stack overflow",)),
    "through sort": (
        "local function f() table.sort({ 2, 1 }, f) end return f()",
        ("C stack overflow",),
    ),
    "through load": (
        "return assert(load('return ' .. ('('):rep(1000) .. '1' .. (')'):rep(1000)))",
        ("C stack overflow",),
    ),
    "through require": ("package.preload.a = function() return require('a') end return require('a')", ("itself",)),
}


async def test_recursion_without_end_is_an_error_of_the_strategy() -> None:
    async with engine(deadline_s=5.0) as hf:
        for name, (code, told) in DEEP.items():
            event = await hf.start(lua_code(code))
            assert any(each in failed(event).error for each in told), (name, event)
        assert len(own_workers()) == 1


async def test_deep_recursion_that_is_caught_costs_the_strategy_nothing_else() -> None:
    async with engine(deadline_s=5.0) as hf:
        code = "local function f() return pcall(f) end local ok = f() return { ok, alc.llm('still here') }"
        assert result((await converse(hf, await hf.start(lua_code(code))))[1]) == [True, "<still here>"]


async def test_strategies_that_fork_themselves_without_end_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = """
        return { run = function(ctx)
            local entry = alc.fork({ "again" }, { n = (ctx.n or 0) + 1 })[1]
            return entry.ok and entry.result or entry.error
        end }
    """
    twice = "return { run = function(ctx) return alc.fork({ 'twice', 'twice' }, {}) end }"
    install(tmp_path, monkeypatch, {"again": again, "twice": twice})
    async with engine(deadline_s=DEADLINE_S) as hf:
        assert "C stack overflow" in result(await hf.start(lua_code("return alc.fork({ 'again' }, {})[1].result")))
        event, seconds = await _ended(hf, "return alc.fork({ 'twice' }, {})")
        assert event.error_kind in ("deadline", "memory")
        assert seconds < ALLOWED_S


RESULTS: dict[str, tuple[str, Any]] = {
    "cyclic": ("local t = {} t.t = t return t", "recursive"),
    "deep": ("local t = {} for i = 1, 5000 do t = { t } end return t", "nested deeper"),
    "a function": ("return { a = { print } }", "cannot serialize <function> at .a[1]"),
    "a coroutine": ("return coroutine.running()", "cannot serialize <thread>"),
    "keys that are numbers": ("return { [5] = 1 }", "key 5 is a number"),
    "keys that are tables": ("return { [{}] = 1 }", "key <table>"),
    "keys that are booleans": ("return { [true] = 1 }", "key true"),
    "a key that is no number": ("local t = {} t[0 / 0] = 1 return t", "index is NaN"),
}


async def test_a_result_that_json_has_no_form_for_is_a_plain_error() -> None:
    async with engine() as hf:
        for name, (code, told) in RESULTS.items():
            assert told in failed(await hf.start(lua_code(code))).error, name
        assert result(await hf.start(lua_code("return { 0 / 0, 1 / 0, -1 / 0, 1, 1.0 }"))) == [None, None, None, 1, 1.0]


async def test_a_value_with_metamethods_is_written_without_calling_them() -> None:
    code = """
        local trap = function() error("called") end
        local all = { __index = trap, __pairs = trap, __len = trap, __tostring = trap, __eq = trap, __name = "x" }
        return setmetatable({ a = 1 }, all)
    """
    async with engine() as hf:
        assert result(await hf.start(lua_code(code))) == {"a": 1}


async def test_more_lines_than_anybody_reads_are_counted_and_dropped() -> None:
    async with engine() as hf:
        event = await hf.start(
            lua_code("for i = 1, 100000 do print(i) end alc.llm('x') print('later') return 1"), id="s"
        )
        lines = await logged(hf.store, "s")
        assert (lines[0].message, lines[1999].message, len(lines)) == ("1", "2000", 2001)
        assert lines[-1].message == "98000 more lines in one step were dropped"
        await converse(hf, event)
        assert (await logged(hf.store, "s"))[-1].message == "later"


async def test_a_line_that_is_too_long_is_cut() -> None:
    async with engine() as hf:
        await hf.start(lua_code("alc.log('info', ('é'):rep(100000)) return 1"), id="s")
        (line,) = await logged(hf.store, "s")
        assert line.message.endswith("(200000 bytes in all)")
        assert len(line.message.encode()) < 66_000


async def test_a_batch_that_is_too_large_is_refused_to_the_strategy() -> None:
    many = "local items = {} for i = 1, 10001 do items[i] = { prompt = 'p' .. i } end"
    async with engine() as hf:
        assert "at most 10000" in failed(await hf.start(lua_code(f"{many} return alc.llm_batch(items)"))).error
        code = f"{many} local ok, why = pcall(alc.llm_batch, items) return {{ ok, why, alc.llm('one') }}"
        ok, why, one = result((await converse(hf, await hf.start(lua_code(code))))[1])
        assert not ok
        assert "10001 queries at once" in why
        assert one == "<one>"


async def test_a_batch_that_cannot_be_handed_over_is_an_error_of_the_strategy() -> None:
    many = "local item, items = { prompt = 'p' }, {} for i = 1, 100001 do items[i] = item end"
    code = f"{many} local ok, why = pcall(alc.llm_batch, items) return {{ ok, why, alc.llm('one') }}"
    async with engine() as hf:
        ok, why, one = result((await converse(hf, await hf.start(lua_code(code))))[1])
    assert (ok, one) == (False, "<one>")
    assert why == "alc.llm_batch: 100001 questions at once; at most 100000 can be asked"


async def test_the_largest_batch_is_answered_at_once() -> None:
    code = """
        local items = {} for i = 1, 10000 do items[i] = { prompt = 'p' .. i } end
        local answers, wrong = alc.llm_batch(items), 0
        for i, answer in ipairs(answers) do if answer ~= '<p' .. i .. '>' then wrong = wrong + 1 end end
        return { #answers, wrong }
    """
    async with engine() as hf:
        assert result((await converse(hf, await hf.start(lua_code(code))))[1]) == [10_000, 0]


@pytest.mark.parametrize(
    "code",
    [
        "while true do pcall(alc.llm, 'x') end",
        "while true do alc.state.incr('n') end",
        "local n = 0 while true do n = n + 1 alc.state.set('k' .. n, n) end",
        "while true do alc.llm_safe('x', {}, 'default') alc.state.get('k') end",
    ],
)
async def test_a_strategy_that_asks_without_end_for_what_is_answered_at_once_is_stopped(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.program_run.MAX_QUIET_STEPS", 1000)
    async with engine() as hf:
        neighbour = await hf.start(lua_code(POLITE))
        endless = asyncio.create_task(hf.start(lua_code(code), budget={"max_llm_calls": 0}))
        await asyncio.sleep(0)
        async with asyncio.timeout(HANG_S):
            assert result((await converse(hf, neighbour))[1])[1] == "<second after <first>>"
        event = failed(await endless)
        assert event.error_kind == "endless"
        assert "it would never end" in event.error


async def test_an_answer_that_lua_cannot_read_is_a_failure_that_can_be_caught() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    async with engine() as hf:
        event = await hf.start(lua_code("local ok, why = pcall(alc.llm, 'x') return { ok, why, alc.llm('again') }"))
        event = await hf.feed(event.session_id, Value(value=deep))
        ok, why, again = result((await converse(hf, event))[1])
        assert not ok
        assert "the answer cannot be used" in why
        assert again == "<again>"


# --- orphans ---------------------------------------------------------------------------------------

ENGINE = """
import asyncio, os, sys
from tests.alc.lua.sessions import engine, own_workers
from holdfast.alc.lua.source import lua_code

async def main():
    async with engine(deadline_s=60.0) as hf:
        started = asyncio.ensure_future(hf.start(lua_code(sys.argv[1])))
        while not own_workers():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        print(*own_workers(), flush=True)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    ["return alc.llm('paused')", "while true do end", "return (('a'):rep(30000):find('.-.-.-.-b'))"],
)
def test_no_worker_outlives_an_engine_that_was_killed(code: str) -> None:
    command = [sys.executable, "-c", ENGINE, code]
    killed = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, text=True, check=False)
    workers = [int(pid) for pid in killed.stdout.split()]
    assert workers
    assert killed.returncode == -9
    until_so(lambda: not any(map(is_alive, workers)))


async def test_no_worker_is_left_when_an_engine_closes_in_the_middle_of_a_loop() -> None:
    async with engine(deadline_s=60.0) as hf:
        endless = asyncio.create_task(hf.start(lua_code("while true do end")))
        await asyncio.sleep(0.5)
        workers = own_workers()
        assert workers
        endless.cancel()
    assert not any(map(is_alive, workers))
