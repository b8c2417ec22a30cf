"""Lua sessions survive whatever happens to the processes that run them, and never ask anything else for it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code, lua_package
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import LlmQuery, Query
from holdfast.core.records import PausedRecord, Program
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import DivergenceError
from holdfast.store import open_store
from tests.alc.lua import durable_child
from tests.alc.lua.durable_child import SESSION
from tests.alc.lua.sessions import asked, begin, converse, echo, engine, install, own_workers, result

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["__main__", "asyncpg", "holdfast.engine.holdfast", "holdfast.testing"])

SEED = 20_241_231

MAIN = """
local function digest(t)
    local parts = {}
    for k, v in pairs(t) do parts[#parts + 1] = tostring(k) .. "=" .. tostring(v) end
    return table.concat(parts, " ")
end

local seen, counts, trail = {}, {}, {}
for round = 1, 7 do
    local dice = math.random(1000000)
    local answer = alc.llm(("round %d dice %d %s"):format(round, dice, digest(counts)))
    counts["k" .. (#answer * 7919) % 31] = round
    seen[{}] = answer

    local items = {}
    for i = 1, 1 + round % 3 do items[i] = { prompt = ("batch %d.%d %.3f"):format(round, i, math.random()) } end
    local answers = alc.llm_batch(items)
    alc.state.set("round", { number = round, answers = #answers })
    trail[#trail + 1] = alc.state.incr("total", #answers)

    local ok, entries = pcall(alc.fork, { "scout", "critic", "scout" }, { round = round, seed = math.random(99) })
    counts["fork" .. round] = ok and #entries
    trail[#trail + 1] = entries[2].ok and entries[2].result or entries[2].error
    print("round", round, digest(counts))
end
local last = alc.llm("almost " .. alc.json_encode(trail))
trail[#trail + 1] = alc.llm("the end " .. tostring(seen):match("^table: ") .. #last)
return { trail = trail, counts = counts, state = alc.state.get("round"), total = alc.state.get("total") }
"""

PACKAGES = {
    "scout": """
        local M = {}
        function M.run(ctx)
            local first = alc.llm("scout " .. ctx.round .. " with " .. ctx.seed .. " and " .. math.random(1000))
            alc.state.set("last", first)
            return { alc.llm("scout again " .. #first), alc.state.get("last") }
        end
        return M
    """,
    "critic": """
        return { run = function(ctx)
            local found = alc.llm("critic of " .. ctx.round)
            if ctx.round % 3 == 0 then error("round " .. ctx.round .. " is not good: " .. found, 0) end
            return found
        end }
    """,
}

PAUSES = 30


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install(tmp_path, monkeypatch, PACKAGES)


async def undisturbed(code: str) -> tuple[list[list[str]], CompletedEvent | FailedEvent]:
    async with engine() as hf:
        await begin(hf.store, SESSION, lua_code(code), SEED)
        return await converse(hf, await hf.resume(SESSION))


async def disturbed(
    hf: Holdfast, disturb: Callable[[], Any], answer: Callable[[Query], Any] = echo
) -> tuple[list[list[str]], Event]:
    """What the session asks if something is done to it at every pause."""
    pauses = []
    event = await hf.resume(SESSION)
    while isinstance(event, PausedEvent):
        pauses.append(asked(event))
        disturb()
        event = await hf.feed(SESSION, {query.id: answer(query) for query in event.queries})
    return pauses, event


async def test_the_undisturbed_run_pauses_thirty_times_and_does_everything_that_is_to_be_repeated() -> None:
    pauses, event = await undisturbed(MAIN)
    assert len(pauses) == PAUSES
    assert max(map(len, pauses)) == 3
    assert result(event)["total"] == sum(1 + number % 3 for number in range(1, 8))
    assert any("is not good" in str(step) for step in result(event)["trail"])


async def test_a_worker_killed_at_every_pause_is_not_noticed(tmp_path: Path) -> None:
    pauses, event = await undisturbed(MAIN)
    killed: set[int] = set()

    def kill() -> None:
        for pid in own_workers():
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

    async with engine(f"sqlite:///{tmp_path}/sessions.db") as hf:
        await begin(hf.store, SESSION, lua_code(MAIN), SEED)
        assert await disturbed(hf, kill) == (pauses, _like(event))
    assert len(killed) >= PAUSES


def _like(event: CompletedEvent | FailedEvent) -> Any:
    """Equal to an event with the same outcome, whatever its figures."""

    class Like:
        def __eq__(self, other: object) -> bool:
            same_kind = type(other) is type(event)
            return same_kind and (other.result, other.error) == (event.result, event.error)  # type: ignore[attr-defined]

        def __repr__(self) -> str:
            return f"like {event!r}"

        __hash__ = None  # type: ignore[assignment]

    return Like()


def process(url: str, ledger: Path, dies: str) -> int | None:
    child = _forks.Process(target=durable_child.answer_once, args=(url, str(ledger), dies))
    child.start()
    child.join(40)
    return child.exitcode


def test_an_engine_killed_at_every_pause_goes_on_in_the_next_process(tmp_path: Path) -> None:
    url, ledger = f"sqlite:///{tmp_path}/sessions.db", tmp_path / "ledger"
    pauses, event = asyncio.run(undisturbed(MAIN))

    async def prepare() -> None:
        async with open_store(url) as store:
            await begin(store, SESSION, lua_code(MAIN), SEED)

    asyncio.run(prepare())
    expected = []
    for number, prompts in enumerate(pauses):
        # The answer that is not durable yet is lost with the process, and the question is put again.
        for dies in ("before feed", "after feed") if number % 4 == 0 else ("after feed",):
            expected.append(prompts)
            assert process(url, ledger, dies) == -signal.SIGKILL, ledger.read_text()
    assert process(url, ledger, "after feed") == 0
    *noted, last = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [line["asked"] for line in noted] == expected
    ids = {line["ids"][0]: line["asked"] for line in noted}
    assert list(ids.values()) == pauses
    assert last == {"result": result(event), "error": None}


SLOW = """
local first = alc.llm("first " .. math.random(1000000))
local sum = 0
for i = 1, 40000000 do sum = (sum + i) % 1000003 end
return { first, alc.llm("second " .. sum .. " " .. math.random(1000000)) }
"""


async def test_a_worker_killed_in_the_middle_of_a_step_is_not_noticed(tmp_path: Path) -> None:
    pauses, event = await undisturbed(SLOW)
    async with engine(f"sqlite:///{tmp_path}/sessions.db") as hf:
        await begin(hf.store, SESSION, lua_code(SLOW), SEED)
        paused = await hf.resume(SESSION)
        going_on = asyncio.create_task(converse(hf, paused))
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert not going_on.done()
            for pid in own_workers():
                os.kill(pid, signal.SIGKILL)
        assert await going_on == (pauses, _like(event))


async def test_sessions_beside_a_killed_worker_lose_nothing(tmp_path: Path) -> None:
    code = (
        "local s = 0 for i = 1, 10 do s = s + #alc.llm(ctx.name .. i .. ' ' .. math.random(9)) end return ctx.name .. s"
    )
    async with engine(f"sqlite:///{tmp_path}/sessions.db") as hf:
        names = [f"n{number}" for number in range(12)]
        running = [asyncio.create_task(_converse(hf, lua_code(code), name)) for name in names]
        for _ in range(2):
            await asyncio.sleep(0.2)
            for pid in own_workers():
                os.kill(pid, signal.SIGKILL)
        for name, task in zip(names, running, strict=True):
            pauses, event = await task
            assert [prompt.split()[0] for (prompt,) in pauses] == [f"{name}{i}" for i in range(1, 11)]
            assert result(event).startswith(name)


async def _converse(hf: Holdfast, program: Program, name: str) -> tuple[list[list[str]], CompletedEvent | FailedEvent]:
    return await converse(hf, await hf.start(program, ctx={"name": name}))


@pytest.mark.parametrize(("hot", "sessions"), [(1, 5), (2, 20)])
async def test_more_sessions_at_once_than_hot_vms_do_not_evict_each_other_for_ever(hot: int, sessions: int) -> None:
    code = """
        local said = {}
        for i = 1, 6 do said[i] = alc.llm(ctx.name .. " " .. i .. " " .. math.random(1000)) end
        return { ctx.name, #said, said[6] }
    """
    async with engine(hot_vms=hot) as hf:
        names = [f"n{number}" for number in range(sessions)]
        ended = await asyncio.gather(*(_converse(hf, lua_code(code), name) for name in names))
        for name, (pauses, event) in zip(names, ended, strict=True):
            assert result(event) == [name, 6, f"<{pauses[-1][0]}>"]
            assert [prompt.split()[:2] for (prompt,) in pauses] == [[name, str(i)] for i in range(1, 7)]


async def test_sessions_that_take_turns_with_few_hot_vms_get_their_own_answers() -> None:
    code = "local all = {} for i = 1, 4 do all[i] = alc.llm(ctx.name .. i) end return table.concat(all)"
    async with engine(hot_vms=2) as hf:
        events = {name: await hf.start(lua_code(code), ctx={"name": name}, id=name) for name in "abcdefgh"}
        for number in range(1, 5):
            for name, event in events.items():
                assert asked(event) == [f"{name}{number}"]
                events[name] = await hf.feed(name, f"<{name}{number}>")
        assert {name: result(event) for name, event in events.items()} == {
            name: "".join(f"<{name}{number}>" for number in range(1, 5)) for name in events
        }


# --- what plain Lua would do differently each time -------------------------------------------------

VARYING = """
local function shown()
    local t = {}
    for _, word in ipairs({ "pear", "fig", "apple", "kiwi", "plum", "date", "lime" }) do t[word] = #word end
    t[1], t[2.5], t[true], t[-3] = 1, 2, 3, 4
    local order = {}
    for k in pairs(t) do order[#order + 1] = tostring(k) end
    local k = next(t)
    while k ~= nil do order[#order + 1] = tostring(k) k = next(t, k) end
    local rows = {}
    for i = 1, 1500 do rows[i] = { rank = i % 3, number = i } end
    rows[1].rank, rows[#rows].rank, rows[1 + (#rows - 1) // 4].rank = -1, -1, -1
    table.sort(rows, function(a, b) return a.rank < b.rank end)
    local ties = 0
    for i, row in ipairs(rows) do ties = (ties * 31 + row.number * i) % 1000000007 end
    local named = setmetatable({}, { __name = "Thing" })
    local _, why = pcall(error, named)
    return table.concat({
        table.concat(order, ","), ties, tostring({}), tostring(print), tostring(coroutine.create(print)),
        tostring(named), tostring(why), ("%s %p"):format({}, "x"), math.random(1 << 40), math.random(), os.time(),
        os.clock(), os.date("%Y-%m-%dT%H:%M:%S"), alc.time(), tostring(alc.null), #tostring(os.tmpname),
    }, " ")
end
math.randomseed()
local said = {}
for i = 1, 6 do
    said[#said + 1] = shown()
    alc.llm(shown())
    if i == 3 then math.randomseed(42) end
end
return said
"""


@pytest.mark.executes  # addresses and hashes differ between processes
async def test_what_plain_lua_does_differently_each_time_is_the_same_in_every_replay(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with engine(url) as hf:
        await begin(hf.store, SESSION, lua_code(VARYING), SEED)

        def kill() -> None:
            for pid in own_workers():
                os.kill(pid, signal.SIGKILL)

        # A replay that shows anything else than before is a divergence.
        pauses, event = await disturbed(hf, kill)
        said = result(event)
    assert len(pauses) == 6
    async with engine(url) as hf:  # what it said beside its questions is not compared, so it is said once more
        forked = await hf.fork(SESSION, await _last_pause(hf), id="again")
        assert asked(forked) == pauses[-1]
        assert result((await converse(hf, forked))[1]) == said


async def _last_pause(hf: Holdfast) -> int:
    return max([entry.position async for entry in hf.store.journal(SESSION) if isinstance(entry.record, PausedRecord)])


async def test_two_sessions_do_not_draw_the_same_random_numbers() -> None:
    async with engine() as hf:
        drawn = [result(await hf.start(lua_code("return math.random(1 << 60)"))) for _ in range(4)]
    assert len(set(drawn)) == 4


# --- forks of sessions -----------------------------------------------------------------------------


async def test_a_fork_of_a_session_goes_on_where_it_was_and_by_itself(tmp_path: Path) -> None:
    async with engine(f"sqlite:///{tmp_path}/sessions.db") as hf:
        await begin(hf.store, SESSION, lua_code(MAIN), SEED)
        pauses, event = await converse(hf, await hf.resume(SESSION))
        entries = [entry async for entry in hf.store.journal(SESSION)]
        paused = [
            entry.position for entry in entries if isinstance(entry.record, PausedRecord) and _asks_host(entry.record)
        ]
        for number in (0, 7, 18, 27):
            forked = await hf.fork(SESSION, paused[number], id=f"fork-{number}")
            again, ended = await converse(hf, forked)
            # The state is shared by all of them, so the sums that the last two questions tell have grown.
            assert again[:-2] == pauses[number:-2]
            assert result(ended)["trail"][1:-1:2] == result(event)["trail"][1:-1:2]
        other = await hf.fork(SESSION, paused[20], id="otherwise")
        _, ended = await converse(hf, other, lambda query: "something else")
        assert result(ended)["trail"][:9] == result(event)["trail"][:9]
        assert result(ended)["trail"][11] == "round 6 is not good: something else"


def _asks_host(record: PausedRecord) -> bool:
    return all(isinstance(query, LlmQuery) for query in record.queries)


# --- changed code ----------------------------------------------------------------------------------

VERSION_1 = "return { run = function() local a = alc.llm('one') return alc.llm('two after ' .. a) end }"
VERSION_2 = "return { run = function() local a = alc.llm('uno') return alc.llm('due dopo ' .. a) end }"


@pytest.mark.parametrize("change", ["updated", "removed"])
async def test_a_session_goes_on_with_the_package_that_it_began_with(
    packages: Path, change: str, tmp_path: Path
) -> None:
    install_in(packages, "changing", VERSION_1)
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with engine(url) as hf:
        await hf.start(lua_package("changing"), id=SESSION)
    if change == "updated":
        install_in(packages, "changing", VERSION_2)
    else:
        (packages / "changing" / "init.lua").unlink()
    async with engine(url) as hf:
        assert asked(await hf.feed(SESSION, "a")) == ["two after a"]
    async with engine(url) as hf:
        assert result(await hf.feed(SESSION, "b")) == "b"


BY_COMPUTED_NAME = "return require('chan' .. 'ging').run()"


async def test_code_that_changed_under_a_session_is_a_divergence_that_names_both_sides(
    packages: Path, tmp_path: Path
) -> None:
    install_in(packages, "changing", VERSION_1)
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with engine(url) as hf:
        await hf.start(lua_code(BY_COMPUTED_NAME), id=SESSION)
        before = [entry async for entry in hf.store.journal(SESSION)]
    install_in(packages, "changing", VERSION_2)
    async with engine(url) as hf:
        with pytest.raises(DivergenceError) as caught:
            await hf.feed(SESSION, "a")
        assert "one" in caught.value.recorded
        assert "uno" in caught.value.asked
        assert "changing/init.lua:1" in caught.value.where
        assert [entry async for entry in hf.store.journal(SESSION)] == before
    (packages / "changing" / "init.lua").unlink()
    async with engine(url) as hf:
        with pytest.raises(DivergenceError) as caught:
            await hf.feed(SESSION, "a")
        assert "module 'changing' not found" in caught.value.asked
        assert [entry async for entry in hf.store.journal(SESSION)] == before
    install_in(packages, "changing", VERSION_1)
    async with engine(url) as hf:
        assert asked(await hf.feed(SESSION, "a")) == ["two after a"]


def install_in(packages: Path, name: str, source: str) -> None:
    (packages / name).mkdir(exist_ok=True)
    (packages / name / "init.lua").write_text(source, encoding="utf-8")
