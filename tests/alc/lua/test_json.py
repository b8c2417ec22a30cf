"""JSON for Lua values: what `encode` writes, what `decode` accepts, and the stable order of keys."""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

import lupa.lua54 as lua
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.alc.lua.vm import RUNTIME
from tests.tables import each_row

VM: Any = lua.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False)
VM.execute(
    b"""
    null = io.stdout
    json = load(..., '=json', 't')({ null = null })
    function tries(...)
        local ok, why = pcall(...)
        assert(not ok, 'no error')
        return why
    end
    function issues(value)
        local heard = {}
        local text = json.encode(value, function(kind, path, keys)
            heard[#heard + 1] = kind .. ' ' .. path .. (keys and ': ' .. keys or '')
        end)
        return table.concat(heard, '; '), text
    end
    """,
    (RUNTIME / "json.lua").read_bytes(),
)


def lua_value(expression: str) -> Any:
    return VM.execute(f"return {expression}".encode())


def encoded(expression: str) -> str:
    text: bytes = VM.execute(f"return json.encode({expression})".encode())
    return text.decode()


def encode_error(expression: str) -> str:
    text: bytes = VM.execute(f"return tries(json.encode, {expression})".encode())
    return text.decode()


def encode(value: Any) -> bytes:
    text: bytes = VM.globals()[b"json"][b"encode"](value)
    return text


def round_trip(text: bytes) -> bytes:
    again: bytes = VM.execute(b"return json.encode(json.decode(...))", text)
    return again


def decode_error(text: str | bytes) -> str:
    given = text if isinstance(text, bytes) else text.encode()
    why: bytes = VM.execute(b"return tries(json.decode, ...)", given)
    return why.decode()


# --- encode: arrays and objects ---------------------------------------------------------------------------------------


@each_row(
    ("expression", "text"),
    [
        ("{1, 2, 3}", "[1,2,3]"),
        ("{}", "{}"),
        ("json.array({})", "[]"),
        ("json.decode('[]')", "[]"),
        ("json.decode('{}')", "{}"),
        ("{b = 1, a = 2, ['\\255'] = 3, B = 4}", '{"B":4,"a":2,"b":1,"\ufffd":3}'),
        ("{[''] = 1, ['a b'] = {}}", '{"":1,"a b":{}}'),
        ("{1, nil, 3}", "[1,null,3]"),
        ("{nil, 2}", "[null,2]"),
        ("{1, null, true, false, 'x'}", '[1,null,true,false,"x"]'),
        ("nil", "null"),
        ("null", "null"),
    ],
)
def test_tables_become_arrays_or_objects_by_their_border_and_their_mark(expression: str, text: str) -> None:
    assert encoded(expression) == text


def test_an_array_drops_its_other_keys_and_says_so_once() -> None:
    assert lua_value("issues({1, 2, name = 'x', {3, deep = 1}})") == (b'mixed : "name"', b"[1,2,[3]]")


def test_the_issue_names_the_place_of_the_mixed_table() -> None:
    assert lua_value("(issues({ok = {1}, list = {1, {2, x = 1}}}))") == b'mixed .list[2]: "x"'


def test_the_issue_names_the_keys_that_are_lost_numbers_too() -> None:
    assert lua_value("(issues({1, 2, [9] = 'x', [0] = 1, [1.5] = 1, a = 1, ['b\\0'] = 1}))") == (
        b'mixed : 0, 1.5, 9, "a", "b?"'
    )
    assert lua_value("(issues({1, a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1}))") == (
        b'mixed : "a", "b", "c", "d", "e" and 2 more'
    )


def test_a_list_without_other_keys_raises_no_issue() -> None:
    assert lua_value("issues({1, 2, {a = {}}, json.array({})})") == (b"", b'[1,2,{"a":{}},[]]')


def test_a_marked_empty_array_with_names_is_still_an_array_and_an_issue() -> None:
    assert lua_value("issues(json.array({name = 1}))") == (b'mixed : "name"', b"[]")


@each_row(
    ("expression", "key"),
    [
        ("{[0] = 1}", "0 is a number"),
        ("{[2.5] = 1}", "2.5 is a number"),
        ("{[true] = 1, [-7] = 1, x = 1}", "-7 is a number"),
        ("{[false] = 1, [true] = 1}", "false is a boolean"),
        ("{[{}] = 1}", "<table> is a table"),
    ],
)
def test_keys_of_an_object_must_be_strings(expression: str, key: str) -> None:
    why = encode_error(f"{{inner = {expression}}}")
    assert f"whose key {key} at .inner" in why
    assert "use tostring(key)" in why


@each_row(
    ("expression", "why"),
    [
        ("print", "cannot serialize <function>"),
        ("coroutine.create(print)", "cannot serialize <thread>"),
        ("io.stderr", "cannot serialize <userdata>"),
        ("{items = {1, {fn = print}}}", "cannot serialize <function> at .items[2].fn"),
        ("{['a b'] = print}", 'cannot serialize <function> at ["a b"]'),
    ],
)
def test_what_has_no_json_is_refused_with_its_path(expression: str, why: str) -> None:
    assert encode_error(expression) == why


def test_a_table_inside_itself_is_refused_with_its_path() -> None:
    why = VM.execute(b"local t = {a = {}} t.a.b = {t} return tries(json.encode, t)")
    assert why == b"cannot serialize a recursive table at .a.b[1]"


def test_a_table_that_occurs_twice_without_recursion_is_written_twice() -> None:
    assert VM.execute(b"local t = {1} return json.encode({a = t, b = t})") == b'{"a":[1],"b":[1]}'


def test_the_same_table_can_be_encoded_again_after_a_failure() -> None:
    code = b"local t = {a = {}, f = print} pcall(json.encode, t) t.f = nil return json.encode(t)"
    assert VM.execute(code) == b'{"a":{}}'


NEST = b"local t = {} for _ = 2, ... do t = {t} end return "


def test_nesting_ends_at_128_both_ways() -> None:
    deepest = VM.execute(NEST + b"json.encode(t)", 128)
    assert deepest == b"[" * 127 + b"{}" + b"]" * 127
    assert VM.execute(b"return json.encode(json.decode(...))", deepest) == deepest
    assert b"nested deeper than 128" in VM.execute(NEST + b"tries(json.encode, t)", 129)
    assert "nesting deeper than 128 levels at line 1 column 129" in decode_error("[" * 129 + "]" * 129)


def test_a_megabyte_of_brackets_is_an_error_and_not_a_crash() -> None:
    assert "nesting deeper" in decode_error("[" * 1_000_000)


def test_metamethods_of_a_program_do_not_run() -> None:
    code = b"""
        local trap = function() error('trapped') end
        local mt = {__index = trap, __len = trap, __pairs = trap, __tostring = trap, __name = 'x', __eq = trap}
        return json.encode(setmetatable({a = setmetatable({1, 2}, mt)}, mt))
    """
    assert VM.execute(code) == b'{"a":[1,2]}'


# --- encode: numbers --------------------------------------------------------------------------------------------------


@each_row(
    ("expression", "text"),
    [
        ("1", "1"),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("0.0", "0.0"),
        ("math.mininteger", "-9223372036854775808"),
        ("math.maxinteger", "9223372036854775807"),
        ("0.1", "0.1"),
        ("-12.5", "-12.5"),
        ("1e15", "1000000000000000.0"),
        ("1e16", "1e16"),
        ("123456789012345678.0", "1.2345678901234568e17"),
        ("1e-5", "0.00001"),
        ("1e-6", "1e-6"),
        ("1.5e300", "1.5e300"),
        ("2^53", "9007199254740992.0"),
        ("5e-324", "5e-324"),
        ("2^-44", "5.684341886080802e-14"),
        ("0/0", "null"),
        ("1/0", "null"),
        ("-1/0", "null"),
    ],
)
def test_integers_and_floats_are_kept_apart_and_floats_are_shortest(expression: str, text: str) -> None:
    assert encoded(expression) == text


def digits_of(text: str) -> str:
    return re.sub(r"e.*|[^0-9]", "", text).strip("0")


def check_shortest(value: float) -> None:
    text = encode(value).decode()
    assert struct.pack("d", float(text)) == struct.pack("d", value)
    assert digits_of(text) == digits_of(repr(value))
    assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?(e-?[1-9]\d*)?", text)
    assert "." in text or "e" in text


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
def test_a_float_reads_back_as_the_same_float_in_the_fewest_digits(value: float) -> None:
    check_shortest(value)


def test_powers_of_two_are_shortest_although_floats_lie_denser_below_them() -> None:
    for exponent in range(-1074, 1024):
        check_shortest(math.ldexp(1.0, exponent))


# --- encode: strings --------------------------------------------------------------------------------------------------


def test_only_what_json_demands_is_escaped() -> None:
    every = bytes(range(0x80))
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    expected = "".join(short.get(code, f"\\u{code:04x}" if code < 32 else chr(code)) for code in every)
    assert encode(every).decode() == f'"{expected}"'


def test_text_beyond_ascii_is_written_raw() -> None:
    text = "é 日本 \U0001f600 \u007f \u2028"
    assert encode(text.encode()).decode() == f'"{text}"'


@given(st.binary())
@example(b"\xed\xa0\x80")
@example(b"\xf0\x9f\x98")
@example(b"\xf4\x90\x80\x80")
@example(b"\xc0\x80a\xe0\x80\x80")
@example(b"\xf1\x80\xc0\x80\xe1\x80\xe1")
@example(b"\xfc\x80\x80\x80\x80\x80")
def test_bytes_that_are_not_utf8_are_repaired_as_python_does(value: bytes) -> None:
    assert json.loads(encode(value)) == value.decode(errors="replace")


@given(
    st.lists(st.sampled_from([b"\x80", b"\xbf", b"\xc2", b"\xe0", b"\xed", b"\xf0", b"\xf4", b"a", b"\xa0", b"\x90"]))
)
def test_torn_sequences_are_repaired_as_python_does(parts: list[bytes]) -> None:
    value = b"".join(parts)
    assert json.loads(encode(value)) == value.decode(errors="replace")


def test_a_repair_is_an_issue_with_its_place_once_per_value() -> None:
    heard, text = lua_value("issues({a = {'ok', '\\xff'}, b = '\\xfe'})")
    assert heard == b"utf8 .a[2]"
    assert json.loads(text) == {"a": ["ok", "\ufffd"], "b": "\ufffd"}


def test_a_key_is_repaired_too() -> None:
    assert lua_value("issues({['k\\xff'] = 1})") == (b'utf8 ["k?"]', '{"k\ufffd":1}'.encode())


def test_valid_text_is_no_issue() -> None:
    assert lua_value("(issues({['ключ'] = 'é日本\\u{10FFFF}\\u{FFFD}'}))") == b""


# --- round trips ------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and alike in type and sign all the way down."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and bool(a == b)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_a_value_of_pythons_comes_back_unchanged(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert same(json.loads(round_trip(text)), value)


@given(VALUES)
def test_encoding_is_canonical(value: Any) -> None:
    once = round_trip(json.dumps(value).encode())
    assert round_trip(once) == once
    assert round_trip(json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False).encode()) == once


# --- decode -----------------------------------------------------------------------------------------------------------


@each_row(
    ("text", "expression", "value"),
    [
        ("null", "rawequal(v, null)", True),
        ("[null]", "rawequal(v[1], null)", True),
        ("1", "math.type(v)", b"integer"),
        ("1.0", "math.type(v)", b"float"),
        ("1e2", "math.type(v)", b"float"),
        ("9223372036854775807", "v", 2**63 - 1),
        ("-9223372036854775808", "v", -(2**63)),
        ("9223372036854775808", "math.type(v)", b"float"),
        ("18446744073709551615", "v", 1.8446744073709552e19),
        ("-0", "1 / v", -math.inf),
        ('{"a":1,"a":2}', "v.a", 2),
        ('{"a":1,"a":null}', "rawequal(v.a, null)", True),
        (" \t\r\n[ 1 , 2 ] \n", "#v", 2),
        (r'"\u00e9\ud83d\ude00\/\"\\\b\f\n\r\t"', "v", 'é\U0001f600/"\\\b\f\n\r\t'.encode()),
        (r'"\u0000"', "v", b"\0"),
        (r'"\uFFFF\uD7FF\uE000"', "v", "\uffff\ud7ff\ue000".encode()),
        ('"\x7f\u2028"', "v", "\x7f\u2028".encode()),
        ('{"":{"":[]}}', "json.is_array(v[''][''])", True),
        ("[]", "json.is_array(v)", True),
        ("{}", "json.is_array(v)", False),
    ],
)
def test_decode_gives_lua_values(text: str, expression: str, value: Any) -> None:
    assert VM.execute(f"local v = json.decode(...) return {expression}".encode(), text.encode()) == value


@each_row(
    ("text", "why"),
    [
        ("", "end of text where a value was expected at line 1 column 1"),
        ("  ", "end of text where a value was expected at line 1 column 3"),
        ("[1,]", "expected a value at line 1 column 4"),
        ("[1 2]", "expected ',' or ']' at line 1 column 4"),
        ("[1", "end of text inside an array at line 1 column 3"),
        ("[,1]", "expected a value at line 1 column 2"),
        ('{"a":1,}', "expected a string as key at line 1 column 8"),
        ('{"a" 1}', "expected ':' at line 1 column 6"),
        ('{"a":1 "b":2}', "expected ',' or '}' at line 1 column 8"),
        ("{a:1}", "expected a string as key at line 1 column 2"),
        ("{1:1}", "expected a string as key at line 1 column 2"),
        ('{"a":', "end of text where a value was expected at line 1 column 6"),
        ('{"a"', "end of text inside an object at line 1 column 5"),
        ('{"a":1', "end of text inside an object at line 1 column 7"),
        ("{", "end of text inside an object at line 1 column 2"),
        ("01", "number with a leading zero at line 1 column 1"),
        ("-01", "number with a leading zero at line 1 column 1"),
        ("-", "expected a digit after '-' at line 1 column 2"),
        ("+1", "expected a value at line 1 column 1"),
        (".5", "expected a value at line 1 column 1"),
        ("1.", "expected a digit after the decimal point at line 1 column 3"),
        ("1.e5", "expected a digit after the decimal point at line 1 column 3"),
        ("1e", "expected a digit in the exponent at line 1 column 3"),
        ("1e+", "expected a digit in the exponent at line 1 column 3"),
        ("0x10", "text after the end of the value at line 1 column 2"),
        ("1e999", "number out of range at line 1 column 1"),
        ("NaN", "expected a value at line 1 column 1"),
        ("nul", "expected a value at line 1 column 1"),
        ("True", "expected a value at line 1 column 1"),
        ("nullx", "text after the end of the value at line 1 column 5"),
        ("1 1", "text after the end of the value at line 1 column 3"),
        ("'a'", "expected a value at line 1 column 1"),
        ('"abc', "unterminated string at line 1 column 5"),
        ('"abc\\', "unterminated string at line 1 column 5"),
        ('"a\\x41"', "unknown escape in a string at line 1 column 3"),
        ('"a\nb"', "control character 0x0a in a string (write it as an escape) at line 1 column 3"),
        ('"\0"', "control character 0x00 in a string (write it as an escape) at line 1 column 2"),
        ('"\\u12g4"', "expected four hex digits after \\u at line 1 column 4"),
        ('"\\u12', "expected four hex digits after \\u at line 1 column 4"),
        ('"\\ud800"', "lone surrogate in a \\u escape at line 1 column 2"),
        ('"\\ud800\\u0041"', "lone surrogate in a \\u escape at line 1 column 2"),
        ('"\\udc00\\ud800"', "lone surrogate in a \\u escape at line 1 column 2"),
        ('{\n  "a": 1,\n  "b": ?\n}', "expected a value at line 3 column 8"),
        ("\ufeff1", "expected a value at line 1 column 1"),
        ("[1]\v", "text after the end of the value at line 1 column 4"),
        ("/* */1", "expected a value at line 1 column 1"),
    ],
)
def test_decode_is_strict_and_says_what_is_wrong_and_where(text: str, why: str) -> None:
    assert decode_error(text) == f"invalid JSON: {why}"


@given(st.text(alphabet='[]{},:"\\ u0019eE+-.ntrfalsu\n', max_size=12))
def test_decode_accepts_what_python_accepts(text: str) -> None:
    def strict(value: Any) -> Any:
        raise ValueError(value)

    try:
        expected = json.loads(text, parse_constant=strict)
        json.dumps(expected, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogates, nothing out of range
    except ValueError:
        assert decode_error(text).startswith("invalid JSON: ")
        return
    assert json.loads(round_trip(text.encode())) == expected


@given(st.binary())
def test_bytes_that_are_not_utf8_pass_through_a_decoded_string(value: bytes) -> None:
    plain = bytes(code for code in value if code >= 32 and code not in b'"\\')
    assert VM.execute(b"return json.decode(...)", b'"' + plain + b'"') == plain


def test_a_decoded_array_can_be_given_a_metatable_as_any_table() -> None:
    assert VM.execute(b"return (pcall(setmetatable, json.decode('[]'), {}))") is True


# --- sorted_pairs -----------------------------------------------------------------------------------------------------

WALK = b"""
    local seen = {}
    for key, value in json.sorted_pairs(t) do
        assert(rawequal(value, t[key]))
        seen[#seen + 1] = type(key) == 'string' and string.format('%q', key) or tostring(key)
    end
    return table.concat(seen, ' ')
"""


def test_keys_come_as_numbers_then_strings_then_false_and_true() -> None:
    keys = (
        b"t = {[true]=1, [false]=1, b=1, a=1, B=1, ['\\xff']=1, ['']=1, [3]=1, [1]=1, [-1]=1, [2.5]=1, [math.huge]=1}"
    )
    assert VM.execute(keys + WALK) == b'-1 1 2.5 3 inf "" "B" "a" "b" "\xff" false true'


def test_other_keys_come_last() -> None:
    assert VM.execute(b"local k = {} t = {[k]=1, [true]=1, a=1}" + WALK).startswith(b'"a" true table: ')


@given(st.lists(st.integers(-5, 5) | st.binary(max_size=3) | st.floats(-4, 4), unique_by=lambda key: (type(key), key)))
def test_the_order_does_not_depend_on_how_the_table_was_filled(keys: list[Any]) -> None:
    def walked(given: list[Any]) -> list[Any]:
        fill = b"local keys, t, seen = {...}, {}, {} for _, k in ipairs(keys) do t[k] = 1 end "
        walk = b"for k in json.sorted_pairs(t) do seen[#seen + 1] = k end return table.unpack(seen)"
        got = VM.execute(fill + walk, *given)
        return list(got) if isinstance(got, tuple) else [] if got is None else [got]

    numbers = sorted({key for key in keys if not isinstance(key, bytes)})
    expected = numbers + sorted({key for key in keys if isinstance(key, bytes)})
    assert walked(keys) == expected
    assert walked(keys[::-1]) == expected


def test_a_key_that_is_cleared_on_the_way_is_left_out() -> None:
    code = b"""
        local t, seen = {a = 1, b = 2, c = 3}, {}
        for key in json.sorted_pairs(t) do seen[#seen + 1] = key t.b = nil t.d = 4 end
        return table.concat(seen)
    """
    assert VM.execute(code) == b"ac"
