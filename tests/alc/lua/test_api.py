"""The table of the API against a running program: neither has what the other lacks, and every example is true."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.vm import Vm
from holdfast.core.queries import is_own
from holdfast.programs.api import GROUPS, FunctionSpec
from holdfast.programs.api.languages import lua_name
from holdfast.programs.contract import AskStep, ReturnStep, Step

FUNCTIONS = {name: function for group in GROUPS for function in group.functions if (name := lua_name(function))}
EXAMPLES = {name: function for name, function in FUNCTIONS.items() if function.example is not None}
WAITING = {name: function for name, function in FUNCTIONS.items() if function.waits != "no"}
NOW = 1_700_000_000

# What is loaded only when it is touched cannot be seen by going through the table: the names are taken from where the
# table looks them up.
WALK = """
local found, constants = {}, {}

local function lazy_names(t)
    local names = {}
    local mt = debug.getmetatable(t)
    if not mt or type(mt.__index) ~= "function" then return names end
    for i = 1, 20 do
        local _, value = debug.getupvalue(mt.__index, i)
        if type(value) == "table" and type(value.math) == "function" then -- what makes each of them, by name
            for key in pairs(value) do names[#names + 1] = key end
        end
    end
    return names
end

local seen = {}

local function walk(prefix, t)
    if seen[t] then return end
    seen[t] = true
    for _, name in ipairs(lazy_names(t)) do local _ = t[name] end
    for name, value in pairs(t) do
        local full = prefix .. "." .. name
        if type(value) == "function" then
            local info = debug.getinfo(value, "u")
            found[full] = {parameters = info.nparams, rest = info.isvararg}
        elseif type(value) == "table" and full ~= "alc.env" and full ~= "alc._dirs" then
            walk(full, value)
        else
            constants[#constants + 1] = full
        end
    end
end

walk("alc", alc)
walk("std", std)
return {found = found, constants = constants, lazy = lazy_names(alc)}
"""


IN_GSUB = """
local told
local function call() return %s end
local _ = ("x"):gsub("x", function()
    local ok, value = pcall(call)
    told = {ok = ok, value = value}
    return ""
end)
return told
"""


def near(given: Any, wanted: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict) and given.keys() == wanted.keys() and all(near(given[k], wanted[k]) for k in given)
        )
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(near, given, wanted))
    if isinstance(wanted, float):
        return isinstance(given, float) and math.isclose(given, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return type(given) is type(wanted) and bool(given == wanted)


def step(code: str, directory: Path, *, trusted: bool = False) -> Step:
    """The first step of a program, with two packages around that ask."""
    packages = directory / "packages"
    for name in ("asks_one", "asks_two"):
        (packages / name).mkdir(parents=True, exist_ok=True)
        (packages / name / "init.lua").write_text("return {run = function(ctx) return alc.llm(ctx.task) end}")
    config = {
        "name": "example",
        "code": code,
        "ctx": {"task": "Why?"},
        "seed": 7,
        "at": NOW * 1000,
        "deadline_s": 5,
        "memory_mib": 64,
        "dirs": {"state": "/s", "cards": "/c", "scenarios": "/n"},
    }
    roots = Roots(roots=[str(packages)])
    vm = Vm(VmSpec(json.dumps(config).encode(), roots, trusted, 64, str(directory)))
    return step_of(vm.step(VmWaking(NOW * 1000, 0, 0)))


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    outcome = step(WALK, tmp_path_factory.mktemp("walk"), trusted=True)
    assert isinstance(outcome, ReturnStep), outcome
    result: dict[str, Any] = outcome.result
    return result


def test_the_walk_finds_what_is_loaded_late(reachable: dict[str, Any]) -> None:
    assert {"math", "card", "eval"} <= set(reachable["lazy"])


def test_every_function_that_a_program_sees_is_in_the_table(reachable: dict[str, Any]) -> None:
    assert sorted(set(reachable["found"]) - set(FUNCTIONS)) == []


def test_every_function_of_the_table_is_there(reachable: dict[str, Any]) -> None:
    assert sorted(set(FUNCTIONS) - set(reachable["found"])) == []


def test_the_sandbox_has_the_same_functions(tmp_path: Path) -> None:
    entries = ", ".join(f'["{name}"] = type({name})' for name in FUNCTIONS)
    outcome = step(f"return {{{entries}}}", tmp_path)
    assert isinstance(outcome, ReturnStep), outcome
    assert set(outcome.result.values()) == {"function"}


def test_no_function_is_in_the_table_twice() -> None:
    names = [name for group in GROUPS for function in group.functions if (name := lua_name(function))]
    assert len(names) == len(set(names))


def test_the_constants_are_those_of_the_table(reachable: dict[str, Any]) -> None:
    assert sorted(reachable["constants"]) == sorted(
        name for group in GROUPS for each in group.constants if (name := lua_name(each))
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_as_many_parameters_as_the_table_says(name: str, reachable: dict[str, Any]) -> None:
    there = reachable["found"][name]
    assert there["parameters"] == len(FUNCTIONS[name].parameters)
    assert there["rest"] == (FUNCTIONS[name].rest is not None)


@pytest.mark.parametrize("function", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_waits_and_gives_as_the_table_says(function: FunctionSpec, tmp_path: Path) -> None:
    assert function.example is not None
    outcome = step(f"return {function.example.lua}", tmp_path)
    if function.waits != "no":
        assert isinstance(outcome, AskStep), outcome
        assert {is_own(query) for query in outcome.queries} == {function.waits == "engine"}
        return
    assert isinstance(outcome, ReturnStep), outcome
    assert function.example.gives is not None, "an example that does not wait says what it gives"
    assert near(outcome.result, json.loads(function.example.gives)), outcome.result


@pytest.mark.parametrize("function", WAITING.values(), ids=WAITING)
def test_a_function_that_waits_says_so_where_lua_cannot_wait(function: FunctionSpec, tmp_path: Path) -> None:
    assert function.example is not None, "a function that waits has an example"
    outcome = step(IN_GSUB % function.example.lua, tmp_path)
    assert isinstance(outcome, ReturnStep), outcome
    # An error; or what became of it, for those who catch errors and report or log them.
    assert "cannot pause here" in repr((outcome.result, outcome.notes))
