"""The pure functions of `alc`: JSON, cutting, hashing, formatting, lists and settings."""

from __future__ import annotations

import re
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alc.lua.scripted import call, run
from tests.examples import examples
from tests.tables import each_row

SLOW = settings(max_examples=examples(15), deadline=None)  # every example makes a VM


def error(expression: str) -> str:
    return run(f"return {expression}").error


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_goes_through_the_rules_of_the_runtime() -> None:
    assert call("alc.json_encode({b = 1, a = {1.0, alc.null}})") == '{"a":[1.0,null],"b":1}'
    assert call("alc.json_encode(alc.json_decode('{\"a\":[]}'))") == '{"a":[]}'
    assert call("alc.json_encode()") == "null"
    assert call("alc.json_decode(7) + 1") == 8


def test_what_encoding_loses_is_in_the_log() -> None:
    ended = run("return alc.json_encode({list = {1, name = 'x'}, text = '\\xff'})")
    assert ended.result == '{"list":[1],"text":"\ufffd"}'
    lost, repaired = ended.logged("warn")
    assert "alc.json_encode: value.list" in lost
    assert "alc.json_encode: value.text" in repaired


def test_json_errors_are_texts_that_a_program_can_catch() -> None:
    assert call("select(2, pcall(alc.json_decode, '[1,]'))") == "invalid JSON: expected a value at line 1 column 4"
    assert call("select(2, pcall(alc.json_encode, {f = print}))") == "cannot serialize <function> at .f"
    assert "alc.json_decode: text must be a string, got null" in error("alc.json_decode(alc.null)")


@each_row(
    ("raw", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" [1, 2] ", [1, 2]),
        ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ("```python\nx\n```\n```json\n[1]\n```", [1]),
        ("```\n[1]\n```", [1]),
        ('```json\n{broken\n```\nbut {"a": 2}', {"a": 2}),
        ('first {not json} then {"a": {"b": 1}} and {"c": 1}', {"a": {"b": 1}}),
        ('a list [1, 2] and an object {"a": 1}', {"a": 1}),
        ("only [x] and [1, 2]", [1, 2]),
        ('} { {"a": 1}', {"a": 1}),
        ("text {} end", {}),
        ("7", None),
        ('"text"', None),
        ("null", None),
        ("nothing here", None),
        ("", None),
        ("{{}", {}),
        ('{"a": "}"}', {"a": "}"}),
        ('see {"a": "}"}', None),
    ],
)
def test_json_extract_tries_the_whole_then_fences_then_braces_then_brackets(raw: str, value: Any) -> None:
    assert call("alc.json_extract(ctx.raw)", raw=raw) == value


def test_json_extract_of_what_is_no_text_is_nil() -> None:
    assert call("alc.json_extract(nil) == nil and alc.json_extract({1}) == nil and alc.json_extract(5) == nil")


@each_row("raw", ["{" * 200_000, "[" * 200_000, "```json" + " \n" * 100_000, "{}" * 50_000 + "["])
def test_json_extract_is_quick_on_hostile_text(raw: str) -> None:
    began = time.process_time()
    call("alc.json_extract(ctx.raw) ~= 1", raw=raw)
    assert time.process_time() - began < 3


@SLOW
@given(st.text(alphabet="{}[]ab", max_size=30))
def test_balanced_parts_are_those_that_lua_patterns_find(raw: str) -> None:
    # Lua's own %b decides which part comes first; making every part decodable shows which one was taken.
    code = """
        local raw, expected = ctx.raw, nil
        for _, pattern in ipairs({"%b{}", "%b[]"}) do
            for part in raw:gmatch(pattern) do
                if pcall(alc.json_decode, part) then expected = expected or part end
            end
        end
        local got = alc.json_extract(raw)
        return {expected or false, got and alc.json_encode(got) or false}
    """
    expected, got = run(code, ctx={"raw": raw}).result
    assert got == (expected and re.sub(r"\s", "", expected))


# --- chunk ------------------------------------------------------------------------------------------------------------


@each_row(
    ("text", "opts", "chunks"),
    [
        ("a\nb\nc\nd\ne", "{size = 2}", ["a\nb", "c\nd", "e"]),
        ("a\nb\nc\nd\ne", "{size = 3, overlap = 1}", ["a\nb\nc", "c\nd\ne"]),
        ("a\nb\nc", "{size = 2, overlap = 5}", ["a\nb", "b\nc"]),
        ("a\nb\nc", "{size = 2, overlap = 2}", ["a\nb", "b\nc"]),
        ("a\r\nb\r\n", "{size = 1}", ["a", "b"]),
        ("a\r", "{size = 1}", ["a\r"]),
        ("a\r\r\nb", "{size = 1}", ["a\r", "b"]),
        ("a\n\nb", "{size = 1}", ["a", "", "b"]),
        ("\n", "{}", [""]),
        ("a\n", "{}", ["a"]),
        ("", "{}", []),
        ("abc", "{size = 0}", []),
        ("abcde", "{mode = 'chars', size = 3}", ["abc", "de"]),
        ("abcdef", "{mode = 'chars', size = 4, overlap = 2}", ["abcd", "cdef"]),
        ("あいうえお", "{mode = 'chars', size = 2}", ["あい", "うえ", "お"]),
        ("", "{mode = 'chars'}", []),
        ("a\nb", "{mode = 'words', size = 1}", ["a", "b"]),
        ("a\nb\nc", "{size = '2'}", ["a\nb", "c"]),
        ("a\nb\nc", "{size = 2.0, overlap = '1.0'}", ["a\nb", "b\nc"]),
        ("a\nb\nc", "{size = 1.5}", ["a\nb\nc"]),
        ("a\nb\nc", "{size = -1}", ["a\nb\nc"]),
        ("a\nb\nc", "{size = {}, overlap = 'x'}", ["a\nb\nc"]),
        ("a\nb", "{size = math.maxinteger, overlap = math.maxinteger}", ["a\nb"]),
        ("a\nb", "nil", ["a\nb"]),
        ("a\nb", "alc.null", ["a\nb"]),
    ],
)
def test_chunk_cuts_by_lines_or_characters(text: str, opts: str, chunks: list[str]) -> None:
    # An empty result must be an array on the wire too.
    assert call(f"alc.chunk(ctx.text, {opts})", text=text) == chunks


def test_chunk_has_fifty_lines_by_default() -> None:
    assert [len(part.split("\n")) for part in call("alc.chunk(ctx.text)", text="x\n" * 120)] == [50, 50, 20]


@SLOW
@given(
    st.text(alphabet="ab\n\ré", max_size=20), st.integers(1, 6), st.integers(0, 7), st.sampled_from(["lines", "chars"])
)
def test_chunk_equals_a_plain_rendering_of_its_rule(text: str, size: int, overlap: int, mode: str) -> None:
    pieces = text.split("\n")
    lines = [piece.removesuffix("\r") for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    units, joint = (list(text), "") if mode == "chars" else (lines, "\n")
    expected, i, step = [], 0, size - overlap if overlap < size else 1
    while i < len(units):
        expected.append(joint.join(units[i : i + size]))
        if i + size >= len(units):
            break
        i += step
    given_ctx = {"text": text, "opts": {"size": size, "overlap": overlap, "mode": mode}}
    assert call("alc.chunk(ctx.text, ctx.opts)", **given_ctx) == expected


# --- hashes -----------------------------------------------------------------------------------------------------------


def djb2(text: str) -> str:
    value = 5381
    for code in text.encode():
        value = (value * 33 + code) % 2**32
    return f"{value:08x}"


def test_fingerprint_folds_case_and_blanks() -> None:
    assert call("alc.fingerprint('  Fix \\n the\\tLogin Bug ')") == djb2("fix the login bug")
    assert call("alc.fingerprint('')") == djb2("") == "00001505"
    assert call("alc.fingerprint(nil)") == djb2("nil")
    assert call("alc.fingerprint(ctx.text)", text="x" * 5000) == djb2("x" * 5000)


def test_hash_tells_exact_texts_apart() -> None:
    assert call("alc.hash('')") == "cbf29ce484222325"  # published values of FNV-1a, 64 bits
    assert call("alc.hash('a')") == "af63dc4c8601ec8c"
    assert call("alc.hash('foobar')") == "85944171f73967e8"
    assert call("alc.hash('A') ~= alc.hash('a')")
    assert "alc.hash: text must be a string, got table" in error("alc.hash({})")


# --- fmt --------------------------------------------------------------------------------------------------------------


@each_row(
    ("arguments", "text"),
    [
        ("'%d', 1.5", "2"),
        ("'%d', -1.5", "-2"),
        ("'%d', 2.4999", "2"),
        ("'%d', 0.49999999999999994", "0"),
        ("'%d', 3.0", "3"),
        ("'%5d|%-5d|%05d', 1.5, 2.5, 3.5", "    2|3    |00004"),
        ("'%d', 0/0", "NaN"),
        ("'%d %i', 1/0, -1/0", "Inf -Inf"),
        ("'%05d|%-6d|%+.3d', 1/0, 0/0, 1/0", "  Inf|NaN   |Inf"),
        ("'%d', '7.5'", "8"),
        ("'%x %X %o %c', 255.4, 255, 8.2, 65.3", "ff FF 10 A"),
        ("'%u', 7.5", "8"),
        ("'%d', 1e300", f"{1e300:.0f}"),
        ("'%s', nil", "<nil>"),
        ("'%s|%s', nil, nil", "<nil>|<nil>"),
        ("'%s', true", "true"),
        ("'%.2f%%', 3.14159", "3.14%"),
        ("'100%% of %d', 2.5", "100% of 3"),
        ("'%q', 'a\"b'", '"a\\"b"'),
        ("'revenue=$%d users=%d', 1234.5, 10", "revenue=$1235 users=10"),
        ("nil", ""),
        ("'plain', 1, 2", "plain"),
    ],
)
def test_fmt_formats_what_string_format_would_refuse(arguments: str, text: str) -> None:
    assert call(f"alc.fmt({arguments})") == text


def test_fmt_still_refuses_what_makes_no_sense() -> None:
    assert "number expected, got string" in error("alc.fmt('%d', 'seven')")
    assert "number expected, got nil" in error("alc.fmt('%d', nil)")
    assert "no value" in error("alc.fmt('%d %d', 1)")


def test_fmt_prints_no_addresses() -> None:
    assert call("alc.fmt('%s', {})") == call("alc.fmt('%s', {})")


def test_log_fmt_logs_the_formatted_text() -> None:
    assert run("alc.log_fmt('info', 'score=%d users=%d', 7.5, 10)").logged("info") == ["score=8 users=10"]


def test_log_fmt_goes_through_a_wrapped_log() -> None:
    code = "local heard alc.log = function(level, text) heard = level .. ':' .. text end alc.log_fmt('warn', '%s', nil)"
    assert run(code + " return heard").result == "warn:<nil>"


# --- lists ------------------------------------------------------------------------------------------------------------


def test_map_is_in_order_with_the_index() -> None:
    assert call("alc.map({'a', 'b'}, function(item, i) return item .. i end)") == ["a1", "b2"]


def test_map_leaves_holes_for_nil_and_stops_at_the_first_gap_of_its_input() -> None:
    assert call("alc.map({1, 2, 3}, function(n) if n ~= 2 then return n end end)[3]") == 3
    assert call("alc.map({1, nil, 3}, function(n) return n end)") == [1]


def test_map_takes_anything_that_can_be_called() -> None:
    assert call("alc.map({1}, setmetatable({}, {__call = function(_, n) return n + 1 end}))") == [2]


def test_reduce_starts_from_its_init_or_the_first_item() -> None:
    assert call("alc.reduce({1, 2, 3}, function(acc, n, i) return acc + n * i end)") == 1 + 4 + 9
    assert call("alc.reduce({1, 2}, function(acc, n, i) return acc .. n .. i end, 'x')") == "x1122"
    assert call("alc.reduce({}, function() error('called') end, 7)") == 7
    assert call("alc.reduce({}, function() error('called') end) == nil")
    assert call("alc.reduce({1}, function() error('called') end)") == 1
    assert call("alc.reduce({1, 2}, function() return 'new' end, false)") == "new"


def test_filter_keeps_what_is_truthy() -> None:
    assert call("alc.filter({1, 2, 3, 4}, function(n, i) return i > 1 and n % 2 == 0 and 'yes' end)") == [2, 4]


@each_row("name", ["map", "reduce", "filter"])
def test_list_functions_say_what_is_wrong_at_the_line_of_the_call(name: str) -> None:
    assert run(f"\nalc.{name}(nil, print)").error == f"test:2: alc.{name}: items must be an array, got nil"
    assert run(f"\nalc.{name}({{}}, 5)").error == f"test:2: alc.{name}: fn must be a function, got number"


def test_vote_trims_counts_and_gives_ties_to_the_first_seen() -> None:
    assert call("alc.vote({' yes', 'no', 'yes\\n', 'Yes'})") == {"winner": "yes", "count": 2, "total": 4}
    assert call("alc.vote({'b', 'a', 'a', 'b'})") == {"winner": "b", "count": 2, "total": 4}
    assert call("alc.vote({1, '1', 1.0, true})") == {"winner": "1", "count": 2, "total": 4}
    assert call("alc.vote({})") == {"count": 0, "total": 0}


# --- tuning -----------------------------------------------------------------------------------------------------------


@each_row(
    ("arguments", "result"),
    [
        ("{a = 1, b = 2}, {a = 5, extra = 1}", {"a": 5, "b": 2}),
        ("{a = 1}, nil", {"a": 1}),
        ("{a = 1}, alc.null", {"a": 1}),
        ("{a = 1, _schema = {x = 1}}, {_schema = 2}", {"a": 1}),
        ("{on = true}, {on = false}", {"on": False}),
        ("{e = {x = 1, y = 2}}, {e = {x = 9, z = 3}}", {"e": {"x": 9, "y": 2}}),
        ("{o = {i = {x = 1, y = 2}, k = 1, _schema = 1}}, {o = {i = {x = 9}}}", {"o": {"i": {"x": 9, "y": 2}, "k": 1}}),
        ("{l = {1, 2, 3}}, {l = {9}}", {"l": [9]}),
        ("{m = 'auto'}, {m = {deep = 1}}", {"m": {"deep": 1}}),
        ("{m = {x = 1}}, {m = 42}", {"m": 42}),
        ("{a = 1}, {a = alc.null}", {"a": None}),
        ("{a = 1}, {p = {a = 2}, a = 3}, {prefix = 'p'}", {"a": 2}),
        ("{a = 1}, {p = {}, a = 3}, {prefix = 'p'}", {"a": 1}),
        ("{a = 1}, {a = 3}, {prefix = 'p'}", {"a": 3}),
        ("'text', {}", "text"),
        ("7, {}", 7),
    ],
)
def test_tuning_merges_ctx_into_the_defaults(arguments: str, result: Any) -> None:
    assert call(f"alc.tuning({arguments})") == result


def test_tuning_warns_of_a_prefix_that_is_no_table_and_uses_the_defaults() -> None:
    ended = run("return alc.tuning({a = 1}, {p = 'x', a = 3}, {prefix = 'p'})")
    assert ended.result == {"a": 1}
    assert len(ended.logged("warn")) == 1
    assert "'p'" in ended.logged("warn")[0]


def test_tuning_leaves_its_arguments_alone() -> None:
    code = "local d, c = {e = {x = 1}}, {e = {x = 2}} alc.tuning(d, c).e.x = 3 return {d.e.x, c.e.x}"
    assert run(code).result == [1, 2]
