"""Strategies made by chance: loops, branches on answers, tables, closures, batches, forks, state, errors, coroutines.

Whatever they ask shows all that they know, so that a replay which differs anywhere asks something else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.core.queries import Failure, LlmQuery, Query

DEPTH = 3
"""How deep blocks may lie in each other."""

BEGIN = """
local n, last, bag, calls = 1, "", {}, 0
local function show()
    local parts = { n % 100003, last, calls }
    for k, v in pairs(bag) do parts[#parts + 1] = tostring(k) .. ":" .. tostring(v) end
    return table.concat(parts, " ")
end
local function mix(text) n = (n * 31 + #tostring(text)) % 1000003 return n end
local function counter(step) local at = 0 return function() at = at + step return at end end
local count = counter(1 + n % 3)
"""

END = """
return { n = n, last = last, bag = show(), calls = calls, drawn = math.random(1000000) }
"""

PACKAGES = {
    "left": """
        local M = {}
        function M.run(ctx)
            local seen = {}
            for i = 1, 1 + ctx.n % 2 do
                seen["a" .. i] = alc.llm("left " .. i .. " of " .. ctx.n .. " " .. math.random(99))
            end
            alc.state.set("left", seen)
            return alc.state.get("left")
        end
        return M
    """,
    "right": """
        return { run = function(ctx)
            local answers = alc.llm_batch({ { prompt = "right " .. ctx.last }, { prompt = "and " .. math.random(9) } })
            if #answers[1] % 3 == 0 then error("right gives up: " .. answers[2], 0) end
            local inner = ctx.n % 4 == 0 and alc.fork({ "left" }, { n = ctx.n + 1 })[1].result
            return { answers = answers, inner = inner or 0 }
        end }
    """,
}


def scripted(query: Query) -> Any:
    """Always the same to the same question."""
    assert isinstance(query, LlmQuery)
    digest = zlib.crc32(query.prompt.encode())
    if digest % 11 == 0:
        return Failure(f"no answer to {digest % 1000}", "away")
    return "é" * (digest % 3) + f"{digest % 10_000:x}" * (1 + digest % 2)


class Writer:
    """Writes one strategy."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._pauses = 24
        """About as many questions as may still be asked, loops counted."""
        self._names = 0

    def strategy(self) -> str:
        return BEGIN + self._block(0, 1, self._chance.randint(5, 12)) + END

    def _block(self, depth: int, times: int, length: int) -> str:
        return "\n".join(self._statement(depth, times) for _ in range(length))

    def _statement(self, depth: int, times: int) -> str:
        plain: list[Callable[[int], str]] = [
            *(
                self._ask,
                self._ask,
                self._ask,
                self._batch,
                self._fork,
                self._state,
                self._table,
                self._table,
                self._format,
            ),
            *(self._random, self._closure, self._sort, self._coroutine, self._caught, self._clock, self._says),
        ]
        nested: list[Callable[[int, int], str]] = [self._branch, self._loop, self._while, self._protected]
        if depth < DEPTH and self._chance.random() < 0.35:
            return self._chance.choice(nested)(depth, times)
        return self._chance.choice(plain)(times)

    def _number(self, least: int, most: int) -> int:
        return self._chance.randint(least, most)

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def _may_ask(self, times: int, questions: int) -> bool:
        if self._pauses < times * questions:
            return False
        self._pauses -= times * questions
        return True

    # --- what pauses -------------------------------------------------------------------------------

    def _ask(self, times: int) -> str:
        if not self._may_ask(times, 1):
            return self._random(times)
        which = self._number(0, 99)
        return f"last = alc.llm_safe('q{which} ' .. show(), {{ max_tokens = {self._number(1, 50)} }}, 'none') mix(last)"

    def _batch(self, times: int) -> str:
        if not self._may_ask(times, 1):
            return self._table(times)
        size = f"1 + n % {self._number(1, 4)}"
        return (
            f"do local items = {{}} for i = 1, {size} do items[i] = {{ prompt = i .. ' b ' .. show() }} end"
            " local ok, got = pcall(alc.llm_batch, items)"
            " last = ok and table.concat(got, '/') or got calls = calls + #items mix(last) end"
        )

    def _fork(self, times: int) -> str:
        if not self._may_ask(times, 3):
            return self._format(times)
        names = ", ".join(repr(self._chance.choice(["left", "right"])) for _ in range(self._number(1, 3)))
        return (
            f"for i, entry in ipairs(alc.fork({{ {names} }}, {{ n = n, last = last }})) do"
            " bag['f' .. i] = entry.ok and #alc.json_encode(entry.result) or entry.error mix(bag['f' .. i]) end"
        )

    def _state(self, times: int) -> str:
        key = f"k{self._number(0, 3)}"
        return (
            f"alc.state.set('{key}', {{ n = n, list = {{ last, n }} }}) bag.{key} = alc.state.get('{key}').list[1]"
            " alc.state.set('sum', n) mix(alc.state.incr('sum', 2))"
        )

    # --- what does not -----------------------------------------------------------------------------

    def _table(self, times: int) -> str:
        key = self._chance.choice(["'w' .. n % 17", "n % 7", "n % 2 == 0", "n % 5 + 0.5", "-(n % 3)", "last"])
        value = self._chance.choice(["n", "#last", "nil", "last:sub(1, 3)", "tostring({})"])
        return f"bag[{key}] = {value} for k, v in pairs(bag) do mix(tostring(k) .. tostring(v)) end"

    def _format(self, times: int) -> str:
        return "last = ('%s|%5.2f|%d|%q|%s'):format(last:sub(-6), n / 7, n, last:sub(1, 4), n % 3 == 0) mix(last)"

    def _random(self, times: int) -> str:
        seed = self._chance.choice(["", "math.randomseed(n)", "math.randomseed()"])
        return f"{seed} n = n + math.random({self._number(2, 1000)}) if math.random() < 0.5 then mix('heads') end"

    def _closure(self, times: int) -> str:
        name = self._name("c")
        return f"local {name} = counter(n % 5) {name}() n = n + {name}() + count()"

    def _sort(self, times: int) -> str:
        size = self._chance.choice([5, 40, 400])
        return (
            f"do local rows = {{}} for i = 1, {size} do rows[i] = {{ rank = (i * n) % 7, i = i }} end"
            " table.sort(rows, function(a, b) return a.rank < b.rank end)"
            " for i, row in ipairs(rows) do n = (n * 3 + row.i * i) % 1000003 end end"
        )

    def _coroutine(self, times: int) -> str:
        return (
            "do local function keys() for k in pairs({ x = n, y = 2, [3] = 4 }) do coroutine.yield(k) end end"
            " for k in coroutine.wrap(keys) do mix(tostring(k)) end end"
        )

    def _caught(self, times: int) -> str:
        what = self._chance.choice(["'e' .. n", "{ n = n }", "nil", "setmetatable({}, { __name = 'E' })"])
        return f"do local ok, e = pcall(error, {what}) last = tostring(e):sub(1, 20) mix(tostring(e)) end"

    def _clock(self, times: int) -> str:
        return "if os.time() < 0 or os.clock() < 0 or alc.time() < 0 then n = 0 end mix(os.date('%Y') >= '2000')"

    def _says(self, times: int) -> str:
        return "print('n is', n, bag) alc.log('debug', show()) alc.stats.record('n', n) mix(alc.stats.get('n'))"

    # --- blocks ------------------------------------------------------------------------------------

    def _branch(self, depth: int, times: int) -> str:
        test = self._chance.choice(["#last % 2 == 0", "n % 3 == 0", "bag.w1", "last:find('a')", "math.random(2) == 1"])
        one, two = (self._block(depth + 1, times, self._number(1, 3)) for _ in range(2))
        return f"if {test} then\n{one}\nelse\n{two}\nend"

    def _loop(self, depth: int, times: int) -> str:
        rounds = self._number(1, 3)
        return f"for i = 1, {rounds} do\n{self._block(depth + 1, times * rounds, self._number(1, 3))}\nend"

    def _while(self, depth: int, times: int) -> str:
        name = self._name("left")
        body = self._block(depth + 1, times * 2, self._number(1, 2))
        return f"local {name} = 1 + n % 2 while {name} > 0 do {name} = {name} - 1\n{body}\nend"

    def _protected(self, depth: int, times: int) -> str:
        body = self._block(depth + 1, times, self._number(1, 3))
        fails = self._chance.choice(["", "error('on purpose ' .. n)", "local x = nil; x.y = 1"])
        return (
            f"do local ok, e = pcall(function()\n{body}\n{fails} end) mix(ok) if not ok then last = tostring(e) end end"
        )
