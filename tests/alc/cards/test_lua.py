"""`alc.card` of Lua programs, on a bare VM whose tool calls are answered by a real box of cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lupa.lua54 as lua54
import pytest

import holdfast.alc
from holdfast.alc.cards import CardBox
from holdfast.core.errors import HoldfastError

RUNTIME = Path(holdfast.alc.__file__).parent / "lua" / "runtime"
NOW = 1_750_000_000.5

HOST = b"""
local load_file, answer, log = ...
local host = { null = io.stdout, now = function() return 1750000000.5 end, log = log }
for name, value in pairs(load_file("json")(host)) do host[name] = value end
function host.call(tool, arguments)
	local ok, text = answer(tool, host.encode(arguments))
	if not ok then error(text, 0) end
	return host.decode(text)
end
alc, null, encode = {}, host.null, host.encode
load_file("card")(host)(alc, {})
other = {}
load_file("card")(host)(other, {})
"""


class Program:
    """A VM with `alc.card` in it, the questions that it asked, and what it logged."""

    def __init__(self, box: CardBox) -> None:
        self.box = box
        self.asked: list[dict[str, Any]] = []
        self.logged: list[str] = []
        self._lua = lua54.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._load = self._lua.eval("function(text, name) return assert(load(text, name)) end")
        self._load(HOST, b"@host")(self._file, self._answer, self._log)

    def _file(self, name: bytes) -> Any:
        path = RUNTIME / f"{name.decode()}.lua"
        return self._load(path.read_bytes(), b"@" + name)

    def _answer(self, tool: bytes, text: bytes) -> tuple[bool, bytes]:
        assert tool == b"holdfast.card"
        self.asked.append(json.loads(text))
        try:
            return True, json.dumps(self.box.answer(self.asked[-1], False)).encode()
        except HoldfastError as error:
            return False, str(error).encode()

    def _log(self, level: bytes, message: bytes, source: bytes) -> None:
        self.logged.append(f"{source.decode()} {level.decode()} {message.decode()}")

    def run(self, code: str) -> Any:
        """What the code returns, as JSON; a bare nil is told from null."""
        wrapped = f"local r = (function() {code} end)() if r == nil then return 'nil' end return encode(r)"
        said = self._load(wrapped.encode(), b"@program")()
        return "nil" if said == b"nil" else json.loads(said)

    def error(self, code: str) -> str:
        with pytest.raises(lua54.LuaError) as raised:
            self.run(code)
        return str(raised.value)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(CardBox(tmp_path / "cards", [tmp_path / "mirror"]))


def test_a_program_creates_a_card_and_reads_it_back(program: Program) -> None:
    card = program.run("""
        local made = alc.card.create({ pkg = { name = "cot" }, stats = { n = 3, rate = 1.0, gone = null } })
        local card = alc.card.get(made.card_id)
        assert(math.type(card.stats.n) == "integer" and math.type(card.stats.rate) == "float")
        assert(card.stats.gone == nil)
        return card
    """)
    assert card["created_at"] == "2025-06-15T15:06:40Z"
    assert program.box.get(card["card_id"]) == card


def test_every_question_carries_the_virtual_time(program: Program) -> None:
    program.run("alc.card.create({ pkg = { name = 'cot' } }) alc.card.list() alc.card.get('x')")
    assert [asked["now"] for asked in program.asked] == [NOW] * 3


def test_unknown_ids_and_aliases_are_nil(program: Program) -> None:
    assert program.run("return alc.card.get('x')") == "nil"
    assert program.run("return alc.card.get_by_alias('x')") == "nil"
    assert program.run("return alc.card.lineage({ card_id = 'x' })") == "nil"


def test_all_other_functions_reach_the_box(program: Program, tmp_path: Path) -> None:
    told = program.run(f"""
        local id = alc.card.create({{ pkg = {{ name = "cot" }}, card_id = "c1" }}).card_id
        alc.card.create({{ pkg = {{ name = "cot" }}, card_id = "c2", metadata = {{ prior_card_id = id }} }})
        return {{
            appended = alc.card.append(id, {{ review = "good" }}).review,
            alias = alc.card.alias_set("best", id, {{ pkg = "cot", note = "n" }}),
            aliases = #alc.card.alias_list({{ pkg = "cot" }}) + #alc.card.alias_list(),
            by_alias = alc.card.get_by_alias("best").card_id,
            listed = #alc.card.list({{ pkg = "cot" }}) + #alc.card.list(),
            found = alc.card.find({{ where = {{ review = {{ exists = true }} }}, order_by = "-card_id", limit = "5" }}),
            ordered = alc.card.find({{ order_by = {{ "-card_id" }}, limit = 1.0, offset = 1 }})[1].card_id,
            samples = alc.card.write_samples(id, {{ {{ n = 1 }}, {{ n = 2, why = null }} }}).count,
            read = alc.card.read_samples(id, {{ offset = 1, where = {{ n = {{ gte = 1 }} }} }}),
            lineage = alc.card.lineage({{ card_id = "c2", direction = "both", depth = 3, relation_filter = null }}),
            filled = alc.card.sink_backfill({{ sink = "file://{tmp_path}/mirror", dry_run = true }}).skipped,
        }}
    """)
    assert told["appended"] == "good"
    assert told["alias"]["note"] == "n"
    assert told["aliases"] == 2
    assert told["by_alias"] == "c1"
    assert told["listed"] == 4
    assert [row["card_id"] for row in told["found"]] == ["c1"]
    assert told["ordered"] == "c1"
    assert told["samples"] == 2
    assert told["read"] == [{"n": 2, "why": None}]
    assert [node["card_id"] for node in told["lineage"]["nodes"]] == ["c2", "c1"]
    assert told["filled"] == ["c1", "c2"]


def test_an_empty_list_of_samples_or_relations_stays_a_list_and_the_programs_table_is_left_alone(
    program: Program,
) -> None:
    program.run("""
        alc.card.create({ pkg = { name = "cot" }, card_id = "c1" })
        local rows = {}
        assert(alc.card.write_samples("c1", rows).count == 0)
        assert(encode(rows) == "{}")
        alc.card.lineage({ card_id = "c1", relation_filter = {} })
    """)
    assert program.asked[1]["rows"] == []
    assert program.asked[2]["relation_filter"] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("alc.card.create()", "alc.card.create: input must be a table, got nil"),
        ("alc.card.create('x')", "alc.card.create: input must be a table, got string"),
        ("alc.card.create({})", "alc.card.create: pkg.name is required"),
        ("alc.card.get()", "alc.card.get: card_id must be a string, got nil"),
        ("alc.card.get({})", "alc.card.get: card_id must be a string, got table"),
        ("alc.card.get('a/b')", "Invalid card_id name: 'a/b' (a name holds no '/', '\\', '..' or NUL)"),
        ("alc.card.list('cot')", "alc.card.list: options must be a table, got string"),
        ("alc.card.list({ pkg = {} })", "alc.card.list: pkg must be a string, got table"),
        ("alc.card.append('x')", "alc.card.append: fields must be a table, got nil"),
        ("alc.card.append('x', { a = 1 })", "alc.card.append: card 'x' not found"),
        ("alc.card.alias_set('a')", "alc.card.alias_set: card_id must be a string, got nil"),
        ("alc.card.alias_set('a', 'x')", "alc.card.alias_set: card 'x' not found"),
        ("alc.card.find({ limit = 'many' })", "alc.card.find: limit must be a whole number, 0 or more"),
        ("alc.card.find({ limit = -1 })", "alc.card.find: limit must be a whole number, 0 or more"),
        ("alc.card.find({ offset = 0.5 })", "alc.card.find: offset must be a whole number, 0 or more"),
        ("alc.card.find({ where = 'x' })", "alc.card.find: where must be a table, got string"),
        ("alc.card.find({ order_by = true })", "alc.card.find: order_by must be a string, got boolean"),
        ("alc.card.write_samples('x', 'rows')", "alc.card.write_samples: samples must be a table, got string"),
        ("alc.card.write_samples('x', { a = 1 })", "alc.card.write_samples: samples must be an array"),
        ("alc.card.read_samples('x')", "alc.card.read_samples: card 'x' not found"),
        ("alc.card.lineage('x')", "alc.card.lineage: query must be a table, got string"),
        ("alc.card.lineage({})", "alc.card.lineage: card_id must be a string, got nil"),
        ("alc.card.lineage({ card_id = 'x', direction = 'in' })", "alc.card.lineage: direction must be 'up'"),
        ("alc.card.sink_backfill({})", "alc.card.sink_backfill: sink must be a string, got nil"),
        ("alc.card.sink_backfill({ sink = 'file:///x' })", "unknown sink: file:///x"),
    ],
)
def test_wrong_arguments_raise_a_plain_text_that_names_the_function(program: Program, code: str, said: str) -> None:
    assert program.error(code).startswith(said)


def test_a_refused_argument_asks_nothing(program: Program) -> None:
    program.error("alc.card.find({ limit = {} })")
    assert program.asked == []


def test_numbers_count_as_text_where_a_name_is_wanted(program: Program) -> None:
    program.run("alc.card.get(5) alc.card.get(5.0)")
    assert [asked["card_id"] for asked in program.asked] == ["5", "5.0"]


def test_flags_go_by_truth_and_null_counts_as_not_given(program: Program) -> None:
    program.run("""
        alc.card.lineage({ card_id = "x", include_stats = false })
        alc.card.lineage({ card_id = "x", include_stats = 1, depth = null })
        alc.card.lineage({ card_id = "x", include_stats = null })
        alc.card.list(null)
    """)
    assert [asked["include_stats"] for asked in program.asked[:3]] == [False, True, True]
    assert "depth" not in program.asked[1]


def test_options_that_do_not_exist_are_warned_of_and_left_out(program: Program) -> None:
    program.run("alc.card.find({ were = {}, pkg = 'cot', [1] = 2 })")
    assert program.logged == ["alc.card warn alc.card.find: no such option: 'were', a number key"]
    assert program.asked == [{"op": "find", "now": NOW, "pkg": "cot"}]


def test_named_keys_beside_samples_are_warned_of_and_left_out(program: Program) -> None:
    program.run("""
        alc.card.create({ pkg = { name = "cot" }, card_id = "c1" })
        alc.card.write_samples("c1", { 1, 2, n = 2 })
    """)
    assert program.logged == ["alc.card warn alc.card.write_samples: samples: 1 entries outside 1..2 are left out"]
    assert program.box.read_samples("c1") == [1, 2]


def test_metamethods_of_the_programs_tables_are_not_run(program: Program) -> None:
    program.run("""
        local trap = setmetatable({}, {
            __index = function() error("index") end,
            __len = function() error("len") end,
            __pairs = function() error("pairs") end,
        })
        alc.card.find(trap)
        alc.card.create({ pkg = { name = "cot" }, card_id = "c1" })
        alc.card.write_samples("c1", trap)
    """)
    assert program.asked[0] == {"op": "find", "now": NOW}


def test_each_program_has_a_table_of_its_own(program: Program) -> None:
    program.run("alc.card.get = nil")
    assert program.run("return other.card.get('x')") == "nil"
