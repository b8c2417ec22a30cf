"""Computing in Lua: `pairs` in the stable order whatever table it walks, and programs that run without a hook."""

from __future__ import annotations

import time

import pytest

from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.stopper import LOOK_S, Stopper
from holdfast.alc.lua.vm import Vm
from holdfast.core.values import encode
from holdfast.programs.contract import AskStep, RaiseStep, ReturnStep
from holdfast.testing.patience import HANG_S
from tests.alc.lua.scripted import run

WALK = """
local function walk(t)
    local seen = {}
    for k, v in pairs(t) do seen[#seen + 1] = k .. '=' .. v end
    return seen
end
"""


def test_tables_of_one_kind_are_walked_in_the_order_of_their_names_however_they_were_made() -> None:
    code = """
        local one, two = { pear = 1, fig = 2, apple = 3 }, {}
        for _, name in ipairs({ "fig", "apple", "lime", "pear" }) do two[name] = #name end
        two.lime = nil
        return { walk(one), walk(two), walk(one), walk({ fig = 1 }), walk({}) }
    """
    first = ["apple=3", "fig=2", "pear=1"]
    assert run(WALK + code).result == [first, ["apple=5", "fig=3", "pear=4"], first, ["fig=1"], {}]


def test_what_is_added_or_taken_out_during_a_walk_is_treated_as_before() -> None:
    code = """
        local function changed(t)
            local seen = {}
            for k in pairs(t) do
                seen[#seen + 1] = k
                t.c, t.zz = nil, 1
            end
            return table.concat(seen)
        end
        return { changed({ a = 1, b = 2, c = 3, d = 4 }), changed({ a = 1, b = 2, c = 3, d = 4 }) }
    """
    assert run(code).result == ["abd", "abd"]


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("{ 'x', 'y', 'z' }", "1=x 2=y 3=z"),
        ("{ 'x', 'y', b = 2, a = 1 }", "1=x 2=y a=1 b=2"),
        ("{ [0] = 'o', 'x', [-1] = 'n', [2.5] = 'h' }", "-1=n 0=o 1=x 2.5=h"),
        ("{ [30] = 'c', [10] = 'a', [20] = 'b' }", "10=a 20=b 30=c"),
        ("setmetatable({ b = 2, a = 1 }, { __index = { c = 3 } })", "a=1 b=2"),
    ],
)
def test_lists_and_mixed_tables_are_walked_in_the_stable_order(table: str, keys: str) -> None:
    assert run(WALK + f"return table.concat(walk({table}), ' ')").result == keys


def test_more_kinds_of_tables_than_are_remembered_are_walked_in_order_too() -> None:
    code = """
        for i = 1, 3000 do
            local seen = table.concat(walk({ ["n" .. i] = i, ["a" .. i] = i, m = i }), " ")
            assert(seen == ("a%d=%d m=%d n%d=%d"):format(i, i, i, i, i), seen)
        end
        local many, names = {}, {}
        for i = 1, 500 do names[i] = ("k%03d"):format(i) many[names[i]] = i end
        local at = 0
        for name in pairs(many) do at = at + 1 assert(name == names[at]) end
        return at
    """
    assert run(WALK + code).result == 500


def test_a_large_table_that_is_walked_again_is_walked_by_the_keys_that_it_has_now() -> None:
    code = """
        local t, rounds = {}, {}
        for i = 100, 1, -1 do t["k" .. (1000 + i)] = i end
        local function order()
            local keys = {}
            for key in pairs(t) do keys[#keys + 1] = key end
            local sorted = table.move(keys, 1, #keys, 1, {})
            table.sort(sorted)
            assert(table.concat(keys) == table.concat(sorted))
            return #keys
        end
        for i = 1, 4 do rounds[i] = order() end
        t.k1050, t.new = nil, 1
        rounds[5] = order()
        t.another = 1
        for i = 6, 9 do rounds[i] = order() end
        return rounds
    """
    assert run(code).result == [100, 100, 100, 100, 100, 101, 101, 101, 101]


# --- watched tables --------------------------------------------------------------------------------

WATCHED = """
local function watched()
    local tables = { { b = 1, a = 2, c = 3 }, { 4, 5, 6 }, { [30] = 1, [10] = 2, [20] = 3 } }
    for i = 1, 40 do tables[1]["k" .. i], tables[2][i], tables[3][i * 7] = i, i, i end
    tables[4], tables[5] = { b = 1, a = 2 }, { 1, 2 }
    for _ = 1, 4 do for _, t in ipairs(tables) do for _ in pairs(t) do end end end
    return ipairs(tables)
end
"""


def test_a_table_that_is_walked_again_and_again_shows_no_metatable_and_takes_one() -> None:
    code = """
        local class = { __index = { more = 7 }, __name = "Class" }
        for _, t in watched() do
            assert(getmetatable(t) == nil and t.more == nil and not pcall(function() return t() end))
            assert(tostring(t):find("^table: 0x") and rawequal(t, t) and rawlen(t) == #t)
            assert(setmetatable(t, class) == t and getmetatable(t) == class and t.more == 7)
            for _ in pairs(t) do end
            assert(getmetatable(t) == class)
            t.other = 1
            assert(rawget(t, "other") == 1 and getmetatable(setmetatable(t, nil)) == nil)
        end
        return pcall(getmetatable) == false and getmetatable("") == false and getmetatable(nil) == nil
    """
    assert run(WATCHED + code).result is True


def test_a_key_that_is_added_by_any_means_is_walked() -> None:
    code = """
        local adders = {
            function(t, key) t[key] = 1 end,
            function(t, key) rawset(t, key, 1) end,
            function(t) table.insert(t, 1) end,
            function(t) table.move({ 1 }, 1, 1, 1000, t) end,
            function(t) t.taken = 1 t.taken = nil t.taken = 2 end,
            function(t) for key in pairs(t) do t[key] = nil t[key] = 1 end t.last = 1 end,
            function(t) t.none = nil t[-1] = 1 end,
        }
        for number, add in ipairs(adders) do
            for kind, t in watched() do
                add(t, "added")
                local count, seen, before = 0, 0, nil
                for _ in next, t do count = count + 1 end -- by the other way
                for key in pairs(t) do
                    local rank = type(key) == "number" and 0 or 1
                    assert(not before or before[1] < rank or before[2] < key, "out of order")
                    seen, before = seen + 1, { rank, key }
                end
                assert(seen == count, number .. " " .. kind .. ": " .. seen .. " of " .. count)
            end
        end
        return true
    """
    assert run(WATCHED + code).result is True


def test_wrong_keys_of_a_watched_table_are_refused_as_of_any_other() -> None:
    code = """
        local told = {}
        local function refused(f, t)
            local _, why = pcall(f, t)
            told[why] = true
        end
        local function as_nil(t) t[nil] = 1 end
        local function as_nan(t) t[0 / 0] = 1 end
        refused(as_nil, {})
        refused(as_nan, {})
        for _, t in watched() do refused(as_nil, t) end
        for _, t in watched() do refused(as_nan, t) end
        local texts = {}
        for text in pairs(told) do texts[#texts + 1] = text end
        return texts
    """
    assert len(run(WATCHED + code).result) == 2


def test_random_changes_between_walks_are_seen_in_the_stable_order() -> None:
    code = """
        local keys = {}
        for i = 1, 50 do keys[i], keys[50 + i], keys[100 + i] = i, "k" .. i, i * 1000 end
        keys[151], keys[152], keys[153] = true, false, 1.5
        local RANK = { number = 1, string = 2, boolean = 3 }
        local function less(a, b)
            if type(a) ~= type(b) then return RANK[type(a)] < RANK[type(b)] end
            if type(a) == "boolean" then return b and not a end
            return a < b
        end
        for round = 1, 150 do
            local t, shadow = {}, {}
            local from, span = math.random(0, 3) * 50, math.random(4, 60)
            for _ = 1, 60 do
                for _ = 1, math.random(0, 2) * math.random(0, 9) do
                    local key = keys[(from + math.random(span)) % #keys + 1]
                    local value = math.random(3) > 1 and math.random(9) or nil
                    t[key], shadow[tostring(key)] = value, value and { key, value } or nil
                end
                local wanted = {}
                for _, pair in next, shadow do wanted[#wanted + 1] = pair end
                table.sort(wanted, function(a, b) return less(a[1], b[1]) end)
                local at = 0
                for key, value in pairs(t) do
                    at = at + 1
                    assert(wanted[at] and wanted[at][1] == key and wanted[at][2] == value, "round " .. round)
                end
                assert(at == #wanted, "round " .. round)
            end
        end
        return true
    """
    assert run(code).result is True


def test_watched_tables_are_let_go() -> None:
    code = """
        for i = 1, 20000 do
            local t = {}
            for j = 1, 40 do t[j * 3] = j end
            for _ = 1, 3 do for _ in pairs(t) do end end
        end
        return true
    """
    assert run(code).result is True  # within 64 MiB


def test_the_metatable_is_hidden_from_a_trusted_program_too() -> None:
    code = """
        for _, t in watched() do assert(debug.getmetatable(t) == nil) end
        debug.setmetatable(ctx, { __index = { x = 1 } })
        return debug.getmetatable(ctx).__index.x
    """
    config: dict[str, object] = {"name": "t", "code": WATCHED + code, "ctx": {}, "seed": 1, "at": 0, "dirs": {}}
    config |= {"deadline_s": 60, "over": "too long", "full": "too much", "replay_slack": 1}
    vm = Vm(VmSpec(encode(config), Roots(), is_trusted=True, memory_mib=64, scenarios="/nowhere"))
    step = step_of(vm.step(VmWaking(0, 0, 0)))
    assert isinstance(step, ReturnStep), step
    assert step.result == 1


# --- the stopper -----------------------------------------------------------------------------------


def watched(code: str, deadline_s: float) -> Vm:
    config: dict[str, object] = {
        "name": "t",
        "code": code,
        "ctx": None,
        "seed": 1,
        "at": 0,
        "deadline_s": deadline_s,
        "dirs": {},
    }
    config |= {"over": "too long", "full": "too much", "replay_slack": 1}
    stopper = Stopper.found()
    assert stopper is not None  # the Lua that we are built on lets it
    return Vm(VmSpec(encode(config), Roots(), is_trusted=False, memory_mib=64, scenarios="/nowhere"), stopper)


@pytest.mark.parametrize("loop", ["while true do end", "while true do pcall(error) end", "repeat until pcall(error)"])
def test_a_program_without_a_hook_is_stopped_at_its_deadline(loop: str) -> None:
    vm = watched(f"alc.llm('first') {loop}", 0.2)
    assert isinstance(step_of(vm.step(VmWaking(0, 0, 0))), AskStep)
    began = time.process_time()
    step = step_of(vm.step(VmWaking(0, 1, 1, answers=[b"x"], forms=b"s")))
    assert isinstance(step, RaiseStep)
    assert (step.kind, step.error) == ("deadline", "too long")
    assert 0.2 <= time.process_time() - began < HANG_S


def test_a_loop_in_a_coroutine_of_the_program_is_stopped_too() -> None:
    step = step_of(watched("coroutine.wrap(function() while true do end end)()", 0.2).step(VmWaking(0, 0, 0)))
    assert isinstance(step, RaiseStep)
    assert step.kind == "deadline"


def test_time_between_two_steps_does_not_count() -> None:
    vm = watched("alc.llm('first') local n = 0 for i = 1, 100000 do n = n + i end return n", 2 * LOOK_S)
    vm.step(VmWaking(0, 0, 0))
    until = time.process_time() + 4 * LOOK_S
    while time.process_time() < until:
        pass
    step = step_of(vm.step(VmWaking(0, 1, 1, answers=[b"x"], forms=b"s")))
    assert isinstance(step, ReturnStep)
