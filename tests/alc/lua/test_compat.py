"""Habits of published packages: what they do with the standard library, with `require` and with `alc` itself, and what
they match in error messages. Where plain Lua 5.4 says a thing in one way, a program hears it in that way."""

from __future__ import annotations

from pathlib import Path

from tests.alc.lua.scripted import Query, run
from tests.tables import each_row


def _package(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "init.lua").write_text(code)


def _shout(query: Query) -> str:
    return str(query["prompt"]).upper()


@each_row(
    ("call", "told"),
    [
        ("string.format('%d', 3.5)", "bad argument #2 to 'format' (number has no integer representation)"),
        ("string.format('%d items', {})", "bad argument #2 to 'format' (number expected, got table)"),
        ("string.format('%s and %d', {}, 'x')", "bad argument #3 to 'format' (number expected, got string)"),
        ("string.format('%q', print)", "bad argument #2 to 'format' (value has no literal form)"),
        ("string.format('%s')", "bad argument #2 to 'format' (no value)"),
        ("string.format('%y', 1)", "invalid conversion '%y' to 'format'"),
        ("string.format('%y', {})", "invalid conversion '%y' to 'format'"),
        ("string.format({}, 1)", "bad argument #1 to 'format' (string expected, got table)"),
        ("table.sort(nil)", "bad argument #1 to 'sort' (table expected, got nil)"),
    ],
)
def test_an_error_of_the_library_names_the_function_and_the_line_that_called_it(call: str, told: str) -> None:
    ended = run(f"local function f()\n\tlocal text = {call}\n\treturn text\nend\nlocal _, why = pcall(f)\nreturn why")
    assert ended.result == f"test:2: {told}"


def test_what_a_tostring_raises_while_a_text_is_formatted_stays_what_it_is() -> None:
    ended = run("""
        local cause = {code = 7}
        local angry = setmetatable({}, {__tostring = function() error(cause) end})
        local plain = setmetatable({}, {__tostring = function() error("no name") end})
        local _, first = pcall(function() return (string.format("%s", angry)) end)
        local _, second = pcall(function() return (string.format("%s", plain)) end)
        return {first == cause, second}
    """)
    assert ended.result == [True, "test:4: no name"]


def test_only_what_is_shown_as_text_gets_a_number_for_its_address() -> None:
    ended = run("""
        local named = setmetatable({}, {__tostring = function() return "Ada" end})
        return string.format("%5.2s|%%|%d|%s|%-8s|", named, 4, {}, nil)
    """)
    assert ended.result == "   Ad|%|4|table: 0x00000000000001|nil     |"


def test_an_error_in_the_body_of_a_module_reaches_who_required_it_unchanged(tmp_path: Path) -> None:
    _package(tmp_path, "strict", "local M = {}\nerror('a name is needed')\nreturn M")
    _package(tmp_path, "coded", "error({code = 'E7'})")
    _package(tmp_path, "outer", "return require('strict')")
    ended = run(
        """
        local _, said = pcall(require, "strict")
        local _, thrown = pcall(require, "coded")
        local _, through = pcall(require, "outer")
        return {said, thrown.code, through, package.loaded.strict == nil}
        """,
        packages=tmp_path,
    )
    told = "strict/init.lua:2: a name is needed"
    assert ended.result == [told, "E7", told, True]


def test_a_module_that_failed_can_be_required_again_once_its_cause_is_gone(tmp_path: Path) -> None:
    _package(tmp_path, "late", "return {value = settings.value}")
    ended = run(
        """
        local before = pcall(require, "late")
        settings = {value = 3}
        return {before, require("late").value}
        """,
        packages=tmp_path,
    )
    assert ended.result == [False, 3]


def test_modules_are_taken_out_of_package_loaded_while_it_is_gone_through(tmp_path: Path) -> None:
    for name in ("fresh", "fresh_too", "kept"):
        _package(tmp_path, name, "loads = (loads or 0) + 1\nreturn {}")
    ended = run(
        """
        local names = {"fresh", "fresh_too", "kept"}
        for _, name in ipairs(names) do require(name) end
        for name in pairs(package.loaded) do
            if name:match("^fresh") then package.loaded[name] = nil end
        end
        for _, name in ipairs(names) do require(name) end
        return loads
        """,
        packages=tmp_path,
    )
    assert ended.result == 5


def test_a_tracer_that_stands_in_for_alc_llm_sees_every_call_and_leaves_no_trace(tmp_path: Path) -> None:
    _package(
        tmp_path,
        "twice",
        'return {run = function(ctx) ctx.result = alc.llm("one") .. alc.llm("two", {system = "s"}) return ctx end}',
    )
    ended = run(
        """
        local seen, original = {}, alc.llm
        alc.llm = function(prompt, options)
            local before = os.clock()
            local answer = original(prompt, options)
            seen[#seen + 1] = {prompt, answer, os.clock() > before}
            return answer
        end
        local ok = pcall(function() require("twice").run(ctx) end)
        alc.llm = original
        return {ok, seen, ctx.result, alc.llm == original}
        """,
        _shout,
        ctx={},
        packages=tmp_path,
    )
    assert ended.result == [True, [["one", "ONE", True], ["two", "TWO", True]], "ONETWO", True]


def test_a_package_that_seeds_from_the_clock_and_the_kernel_says_the_same_each_time(tmp_path: Path) -> None:
    _package(
        tmp_path,
        "nonce",
        """
        local seed = os.time() + math.floor((os.clock() or 0) * 1e6)
        local file = io.open("/dev/urandom", "rb")
        if file then
            local a, b = file:read(2):byte(1, 2)
            file:close()
            seed = seed + a + b * 256
        end
        math.randomseed(seed)
        return function(n)
            local digits = {}
            for i = 1, n do digits[i] = string.format("%x", math.random(0, 15)) end
            return table.concat(digits)
        end
        """,
    )
    code = 'local nonce = require("nonce") return {nonce(16), nonce(16)}'
    first, second = run(code, packages=tmp_path).result
    assert first != second
    assert run(code, packages=tmp_path).result == [first, second]


def test_a_missing_field_and_a_null_are_alike_in_what_a_model_wrote() -> None:
    ended = run(
        """
        local parsed = alc.json_decode(alc.llm("JSON, please"))
        local absent, null = parsed.nothing, parsed.score
        return {absent == nil, null == nil, type(null), tonumber(null) or 0.5, (parsed.name or "nobody"), #parsed.list}
        """,
        lambda _: '{"score": null, "name": "Ada", "list": []}',
    )
    assert ended.result == [True, True, "nil", 0.5, "Ada", 0]
