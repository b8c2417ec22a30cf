"""What a strategy cannot reach: files, processes, the environment, Python, and the insides of its own host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.events import Event
from holdfast.engine.sync import SyncHoldfast, open_sync
from holdfast.programs.language import Trust
from tests.alc.lua.sessions import failed, install, own_workers, result

pytestmark = pytest.mark.executes  # what a process has is that of a worker, and of no test


@pytest.fixture(scope="module")
def hf() -> Iterator[SyncHoldfast]:
    with open_sync("memory:") as opened:
        yield opened


def run(hf: SyncHoldfast, code: str, *, trust: Trust = "sandbox", ctx: Any = None) -> Event:
    return hf.start(lua_code(code, trust=trust), ctx=ctx)


ALLOWED = {
    *("_G", "_VERSION", "alc", "assert", "collectgarbage", "coroutine", "ctx", "error", "getmetatable", "io", "ipairs"),
    *("load", "math", "next", "os", "package", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen", "rawset"),
    *(
        "require",
        "select",
        "setmetatable",
        "std",
        "string",
        "table",
        "tonumber",
        "tostring",
        "type",
        "utf8",
        "warn",
        "xpcall",
    ),
}
"""All that a strategy sees."""


def test_the_globals_are_those_on_the_list_and_no_others(hf: SyncHoldfast) -> None:
    names = result(
        run(hf, "local names = {} for name in pairs(_G) do names[#names + 1] = name end return names", ctx={})
    )
    assert set(names) == ALLOWED


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "python",
            "debug",
            "dofile",
            "loadfile",
            "loadstring",
            "newproxy",
            "module",
            "setfenv",
            "jit",
            "host",
            "lupa",
        ),
        *("io.popen == nil", "io.tmpfile", "io.stdin", "io.input", "io.output", "io.close"),
        *("os.execute", "os.exit", "os.remove", "os.rename", "os.tmpname", "os.setlocale"),
        *("string.dump", "('').dump", "package.loadlib", "package.searchers", "package.searchpath"),
        *("package.loaded.debug", "package.loaded.python", "package.loaded.host", "package.loaded['holdfast/driver']"),
        *("_G._G._G.python", "_ENV.python", "rawget(_G, 'debug')", "rawget(_ENV, 'python')"),
        *("getmetatable('')", "getmetatable(alc.null)", "getmetatable(alc.env)", "getmetatable(alc.llm)"),
        *("getmetatable(print)", "getmetatable(coroutine.running())", "getmetatable(alc.json_decode('[1]'))"),
    ],
)
def test_what_would_lead_out_of_the_sandbox_is_not_there(hf: SyncHoldfast, expression: str) -> None:
    assert not result(run(hf, f"return {expression}"))


INSIDES = """
-- Everything that can be reached from the globals by fields and metatables.
local HOST = { read_module = 1, trusted = 1, advance = 1, sethook = 1, getinfo = 1, getupvalue = 1, sorted_pairs = 1 }
local seen, found, queue = {}, {}, { { _G, "_G" } }
local function visit(value, path)
    local kind = type(value)
    if (kind == "table" or kind == "function" or kind == "userdata" or kind == "thread") and not seen[value] then
        seen[value] = path
        queue[#queue + 1] = { value, path }
    end
end
local _ = std, alc.math, alc.card, alc.eval
while #queue > 0 do
    local value, path = table.unpack(table.remove(queue))
    if type(value) == "userdata" and value ~= alc.null then found[#found + 1] = path .. " is a userdata" end
    if type(value) == "thread" then found[#found + 1] = path .. " is a thread" end
    visit(getmetatable(value) or nil, "getmetatable(" .. path .. ")")
    if type(value) == "table" then
        for key, inner in pairs(value) do
            visit(key, path .. " key")
            visit(inner, path .. "." .. tostring(key))
            if HOST[key] then found[#found + 1] = path .. "." .. key end
        end
    end
end
return table.concat(found, "; ")
"""


def test_nothing_of_the_host_hangs_on_anything_that_a_strategy_sees(hf: SyncHoldfast) -> None:
    assert result(run(hf, INSIDES)) == ""


def test_the_walk_through_the_insides_would_find_what_is_there(hf: SyncHoldfast) -> None:
    leak = "_G.leak = setmetatable({}, { x = { getupvalue = 1, co = coroutine.create(print) } })"
    found = result(run(hf, leak + INSIDES))
    assert found == "getmetatable(_G.leak).x.getupvalue; getmetatable(_G.leak).x.co is a thread"


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        ("setmetatable('', {})", "table expected"),
        ("setmetatable(alc.env, {})", "protected"),
        ("setmetatable({}, { __gc = print })", "__gc"),
        ("alc.env.X = 1", "read-only"),
        ("rawset('', 'x', 1)", "table expected"),
        ("return alc.null.x", "null"),
        ("alc.null.x = 1", "index"),
        ("alc.null()", "call"),
        ("return #alc.null", "length"),
        ("return alc.null + 1", "arithmetic"),
        ("return alc.null < alc.null", "compare"),
        ("io.lines('/etc/passwd')", "not available in the sandbox"),
        ("std.fs.read('/etc/passwd')", "not available in the sandbox"),
        ("std.fs.is_file('/etc/passwd')", "not available in the sandbox"),
        ("require('debug')", "not found"),
        ("require('python')", "not found"),
        ("coroutine.resume(coroutine.running())", None),
        ("coroutine.close(coroutine.running())", "running"),
        ("coroutine.wrap(function() coroutine.close(coroutine.running()) end)()", "running"),
        ("coroutine.yield('forged')", "outside a coroutine"),
    ],
)
def test_an_attempt_is_an_error_that_the_strategy_can_catch(hf: SyncHoldfast, attempt: str, told: str | None) -> None:
    ok, why = result(run(hf, f"local ok, why = pcall(function() {attempt} end) return {{ ok, why or 'nothing' }}"))
    if told is None:
        assert ok
    else:
        assert not ok
        assert told in why


def test_files_cannot_be_opened_and_say_so(hf: SyncHoldfast) -> None:
    code = """
        local told = {}
        for i, path in ipairs({ "/etc/passwd", "x", "/dev/null", "/proc/self/environ", "" }) do
            local file, why = io.open(path)
            told[i] = { file == nil, why }
        end
        told[#told + 1] = { (io.popen("id")) == nil, (select(2, io.popen("id"))) }
        return told
    """
    for is_nothing, why in result(run(hf, code)):
        assert is_nothing
        assert "not available in the sandbox" in why


BYTECODE = r"""
local chunk = "\27Lua\84\0\25\147\r\n\26\n\4\8\8"
local told = {}
for _, mode in ipairs({ "b", "bt", "t", "x" }) do
    local f, why = load(chunk, "c", mode)
    told[#told + 1] = f == nil and why
end
told[#told + 1] = select(2, load(function() local c = chunk chunk = nil return c end))
return told
"""


def test_bytecode_is_not_loaded_in_any_mode(hf: SyncHoldfast) -> None:
    told = result(run(hf, BYTECODE))
    assert len(told) == 5
    assert all("attempt to load a" in why for why in told)


def test_a_strategy_that_is_bytecode_itself_is_refused(hf: SyncHoldfast) -> None:
    assert "binary chunk" in failed(run(hf, "\x1bLua")).error


def test_a_loaded_chunk_sees_the_globals_of_the_strategy_and_no_others(hf: SyncHoldfast) -> None:
    code = """
        return {
            load("return python == nil and debug == nil and _G == ...")(_G),
            load("return x", "c", "t", { x = 5 })(),
            pcall(load("return print", "c", "t", nil)),
            load("x = 7 return _ENV")() == _G and x,
        }
    """
    assert result(run(hf, code)) == [True, 5, False, 7]


REPLACED = """
-- What our own code would find if it called the methods of a text.
local calls = 0
for name in pairs(string) do
    string[name] = function() calls = calls + 1 error("replaced " .. name) end
end
for _, library in ipairs({ table, math, utf8, coroutine, os }) do
    for name in pairs(library) do library[name] = function() calls = calls + 1 end end
end
tostring, pairs, next, type, error_, select, rawget = nil, nil, nil, nil, error, nil, nil
"""


@pytest.mark.parametrize(
    "use",
    [
        "print('a', 1, {}) io.write('b\\n') io.stderr:write('c\\n') warn('d')",
        "alc.log('info', 'x') alc.progress(1, 2, 'x') alc.stats.record('a', { b = 1 }) alc.stats.get('a')",
        "alc.json_encode({ a = { 1, 2.5, 'é\\n' } }) alc.json_decode('{\"a\": [1, 2.5, \"\\\\u00e9\"]}')",
        "alc.parse_score('7/10') alc.parse_number('it is 3.5') alc.fingerprint('A  b') alc.hash('x')",
        "alc.json_extract('so: ```json\\n{\"a\": 1}\\n```') alc.match_enum('maybe', { 'yes', 'no' })",
        "alc.match_bool('no') alc.chunk('a\\nb\\nc', { size = 1 }) alc.vote({ 'a', 'b', 'a' })",
        "alc.tuning({ a = 1 }, { a = 2 })",
        "alc.state.set('k', 1) alc.state.get('k') alc.state.keys() alc.state.incr('n') alc.state.delete('k')",
        "pcall(require, 'no.such.module') pcall(alc.fork, { 'no_such' }, {}) pcall(alc.llm, {})",
        "alc.budget_remaining() alc.budget_check() alc.time() alc.cache_info() local _ = alc.env.HOME",
    ],
)
def test_a_strategy_that_replaces_its_libraries_breaks_only_itself(hf: SyncHoldfast, use: str) -> None:
    event = run(hf, f"{REPLACED} local ok, why = pcall(function() {use} end) return {{ ok, why or '', calls }}")
    assert result(event) == [True, "", 0]


def test_the_error_of_a_strategy_that_replaced_its_libraries_is_told_as_it_is(hf: SyncHoldfast) -> None:
    assert failed(run(hf, REPLACED + "error('its own')")).error.endswith("its own")


def test_what_a_strategy_hides_in_the_metatable_of_its_globals_stays_there(hf: SyncHoldfast) -> None:
    run(hf, "getmetatable(_G).__index = function(_, name) return 'stolen' end getmetatable(alc).__index = error")
    assert result(run(hf, "return { type(nothing), type(alc.nothing), type(std) }")) == ["nil", "nil", "table"]


def test_sessions_do_not_see_the_globals_of_each_other(hf: SyncHoldfast) -> None:
    run(hf, "leaked = 1 string.leaked = 2 table.leaked = 3 alc.leaked = 4 package.loaded.leaked = 5")
    code = (
        "return { type(leaked), type(string.leaked), type(table.leaked), type(alc.leaked), pcall(require, 'leaked') }"
    )
    assert result(run(hf, code))[:5] == ["nil", "nil", "nil", "nil", False]


# --- modules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("../secret", "..secret", "a/../../secret", "/etc/passwd", "a/b", "a\\b", "~/x", "file:///etc/passwd", "C:x"),
        *("secret\0", "a.\0.b", "\n", "", ".", "..", "...", "a..b", ".a", "a.", "x" * 10_000, "\ud7ff" * 300),
    ],
)
def test_require_reads_no_file_outside_of_the_packages(
    hf: SyncHoldfast, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"a": "return { 'the package' }"})
    (tmp_path / "secret.lua").write_text("return 'read'")
    (tmp_path / "packages" / "a" / "b.lua").write_text("return 'by its dotted name'")
    ok, why = result(run(hf, "local ok, why = pcall(require, ctx.name) return { ok, why }", ctx={"name": name}))
    assert not ok
    assert "not found" in why


def test_require_of_bytes_that_are_no_text_is_a_plain_error(hf: SyncHoldfast) -> None:
    ok, why = result(run(hf, r"local ok, why = pcall(require, 'a\255b') return { ok, why }"))
    assert not ok
    assert "not found" in why


def test_a_module_that_is_bytecode_is_not_loaded(
    hf: SyncHoldfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"bytes": "\x1bLua"})
    assert "binary chunk" in failed(run(hf, "return require('bytes')")).error


def test_a_module_sees_the_sandbox_of_whoever_requires_it(
    hf: SyncHoldfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path, monkeypatch, {"curious": "return { debug == nil, python == nil, io.open('/etc/passwd') == nil, _G }"}
    )
    assert result(run(hf, "local c = require('curious') return { c[1], c[2], c[3], c[4] == _G }")) == [True] * 4


def test_nothing_that_python_raises_reaches_a_strategy(hf: SyncHoldfast) -> None:
    code = r"""
        local told = {}
        local function try(f, ...)
            local values = table.pack(pcall(f, ...))
            for i = 1, values.n do told[#told + 1] = type(values[i]) end
        end
        try(require, ("x"):rep(100000)) try(require, "a\255") try(require, "\0")
        try(alc.eval, "no such", "none") try(alc.eval, "../x", "none") try(alc.eval, "\0", "none")
        local kinds = {}
        for _, kind in ipairs(told) do kinds[kind] = true end
        return kinds
    """
    assert "userdata" not in result(run(hf, code))


# --- the environment -------------------------------------------------------------------------------


def test_only_listed_variables_of_the_environment_are_seen(hf: SyncHoldfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("ALC_SHAPE_CHECK", "1")
    code = """
        local seen = {}
        for _, name in ipairs({ "OPENAI_API_KEY", "PATH", "PYTHONPATH", "LC_ALL", 1, "", "ALC_SHAPE_CHECK" }) do
            seen[#seen + 1] = tostring(os.getenv(name))
        end
        return seen
    """
    assert result(run(hf, code)) == ["nil"] * 6 + ["1"]


def test_a_worker_for_the_sandbox_does_not_even_have_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    before = own_workers()
    with open_sync("memory:") as hf:
        assert result(run(hf, "return 1")) == 1
        (worker,) = own_workers() - before
        assert b"OPENAI_API_KEY" not in Path(f"/proc/{worker}/environ").read_bytes()


# --- trusted ---------------------------------------------------------------------------------------


def test_a_trusted_strategy_has_files_processes_and_debug(hf: SyncHoldfast, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("from a file")
    code = """
        local file = io.open(ctx.path)
        local text = file:read("a")
        file:close()
        local pipe = io.popen("echo from a process")
        return { text, pipe:read("l"), type(debug.getinfo), os.getenv("PATH") ~= nil, (std.fs.read(ctx.path)),
                 load(string.dump(function() return 5 end))() }
    """
    event = run(hf, code, trust="trusted", ctx={"path": str(tmp_path / "data")})
    assert result(event) == ["from a file", "from a process", "function", True, "from a file", 5]


def test_trusted_strategies_and_others_never_share_a_process(hf: SyncHoldfast) -> None:
    pid = "local f = io.open('/proc/self/stat') local pid = f:read('n') f:close() return pid"
    trusted = result(run(hf, pid, trust="trusted"))
    for _ in range(3):
        assert result(run(hf, "return 1")) == 1
        assert result(run(hf, pid, trust="trusted")) == trusted
    assert len(own_workers() - {trusted}) >= 1


def test_nobody_reaches_python_even_if_trusted(hf: SyncHoldfast) -> None:
    code = "return { type(python), type(_G.python), type(package.loaded.python) }"
    assert result(run(hf, code, trust="trusted")) == ["nil", "nil", "nil"]
