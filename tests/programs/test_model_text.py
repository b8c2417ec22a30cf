"""Reading what models write, in Python: what a real Lua VM gives for the same, and an end to whatever is hostile."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.programs import model_text as reading
from holdfast.programs.similarity import WordSimilarity, words_of
from tests.alc.lua import scripted
from tests.examples import examples
from tests.tables import each_row

Case = tuple[str, list[Any], dict[str, Any]]
"""A function, what it is given, and its options: keywords in Python, the last table in Lua."""

FUZZY = scripted.module("fuzzy")
LUA = """
    local results = {}
    for i, case in ipairs(ctx.cases) do
        local args = case[2]
        if next(case[3]) ~= nil then args[#args + 1] = case[3] end
        results[i] = alc.json_encode((alc[case[1]](table.unpack(args))))
    end
    return results
"""


def in_lua(cases: list[Case]) -> list[Any]:
    """What one VM gives for all of the cases."""
    return [json.loads(result) for result in scripted.run(LUA, ctx={"cases": cases}, null_is_nil=False).result]


def in_python(case: Case) -> Any:
    name, args, options = case
    result = getattr(reading, name)(*args, **options)
    if name == "vote" and result["winner"] is None:
        del result["winner"]  # a Lua table has no empty fields
    return result


def exactly(value: Any) -> Any:
    """A value that equals another one only if the types do too, but for integers and floats."""
    return [type(value) is bool, value]


def just(name: str, *texts: str) -> list[Case]:
    return [(name, [text], {}) for text in texts]


JSON = just(
    "json_extract",
    '{"a": 1}',
    " [1, 2] ",
    "\t\r\n{}\n",
    "[]",
    "",
    "7",
    '"text"',
    "null",
    "true",
    "nothing here",
    'Sure:\n```json\n{"a": 1}\n```\nDone.',
    "```python\nx\n```\n```json\n[1]\n```",
    "```\n[1]\n```",
    "```json\n[1]",
    "```json [1] ``` ```json [2] ```",
    "```json [1 ``` ```json [2] ```",
    "```JSON\n[1]\n```",
    '```\n{"a": 1}\n``` and ```json\n[2]\n```',
    '```json\n{broken\n```\nbut {"a": 2}',
    'first {not json} then {"a": {"b": 1}} and {"c": 1}',
    'a list [1, 2] and an object {"a": 1}',
    "only [x] and [1, 2]",
    '} { {"a": 1}',
    "text {} end",
    "{{}",
    "{}}",
    "}{",
    "{[}]",
    "[[1]",
    "[1]] [2]",
    "{a} [1]",
    '{"a": "}"}',
    'see {"a": "}"}',
    'see {"a": "{"} or {"b": 1}',
    "{'a': 1}",
    '{"a": 1,}',
    "[1,]",
    "[NaN]",
    "[Infinity]",
    "[1e999]",
    "[01]",
    "[1.]",
    "[.5]",
    "[+1]",
    "[-]",
    "[1e5, 1E+2, -1.5e-3, 0.0]",
    "[9223372036854775807, -9223372036854775808]",
    "[9223372036854775808, 99999999999999999999]",
    "[" + "9" * 400 + "] or [3]",
    '["\\u00e9\\n\\/\\ud83d\\ude00"]',
    '["\\ud83d"]',
    '["\\x"]',
    '["a\nb"]',
    '["é日"]',
    '{"a": 1, "a": 2}',
    '{"a": null}',
    "[null, true, false]",
    "{1: 2}",
    "\ufeff[1]",
    "\u00a0[1]\u00a0",
    "[1] // a comment",
    "[" * 128 + "]" * 128,
    "[" * 129 + "]" * 129,
    "[" * 2_000 + "]" * 2_000,
    "[" * 2_000,
    '{"a":' * 128 + "1" + "}" * 128,
    '{"a":' * 129 + "1" + "}" * 129,
)

ENUM: list[Case] = [
    ("match_enum", [text, candidates], {})
    for text, candidates in [
        ("Verdict: BLOCKED. Fix it.", ["PASS", "BLOCKED"]),
        ("verdict: pass", ["PASS", "BLOCKED"]),
        ("First BLOCKED, after review: PASS", ["PASS", "BLOCKED"]),
        ("PASS, then BLOCKED, then PASS", ["BLOCKED", "PASS"]),
        ("approve", ["app", "approve"]),
        ("approve", ["approve", "app"]),
        ("disapprove", ["approve", "disapprove"]),
        ("xaab", ["ab", "aab"]),
        ("aaa", ["aa", "a"]),
        ("bypass", ["pass"]),
        ("BLOKED", ["PASS", "BLOCKED"]),
        ("the verdict is (BLCKED!) for now", ["PASS", "BLOCKED"]),
        ("The weather is nice", ["PASS", "BLOCKED"]),
        ("", ["PASS"]),
        ("anything", []),
        ("---", ["PASS"]),
        ("anything", ["", "any"]),
        ("", [""]),
        ("abcx", ["abcy", "abcz"]),
        ("abcx", ["abcz", "abcy"]),
        ("abcx abcw abcx", ["abcz", "abcy"]),
        ("recieve or beleive", ["believe", "receive"]),
        ("Ergebnis: ÄNDERUNG", ["änderung", "keine"]),
        ("РЕШЕНИЕ: ДА", ["Нет", "Да"]),
        ("ΝΑΙ", ["όχι", "ναι"]),
        ("判定：ＰＡＳＳ。", ["ｐａｓｓ", "fail"]),
        ("結論：　「承認ず」　です", ["承認す"]),
        ("a %d+ b", ["%d+"]),
        ("a .* b", [".*", "b."]),
        ("new\nline", ["new line", "e\nl"]),
        ("élan vitâl", ["elan", "vital"]),
        ("«blocked»", ["blokced", "«bloked»"]),
        ("a_b-c", ["a b", "b-c"]),
        ("१२३", ["१२४"]),
        ("ok👍", ["okay"]),
    ]
] + [
    ("match_enum", ["BLOKED", ["BLOCKED"]], {"threshold": 0.99}),
    ("match_enum", ["BLOKED", ["BLOCKED"]], {"threshold": 0.9}),
    ("match_enum", ["zz", ["BLOCKED"]], {"threshold": 0}),
    ("match_enum", ["zz", ["BLOCKED"]], {"threshold": 1}),
    ("match_enum", ["zz blokc", ["BLOCKED", "block"]], {"threshold": 0}),
]

VERDICTS = just(
    "match_bool",
    "Approved. Looks good.",
    "rejected: no tests",
    "No issues found. Approved.",
    "Yes... on second thought, no",
    "I need more information",
    "a broken token",
    "bypass the passage, innovation, failed, blocks",
    "ok2",
    "2ok ok",
    "is_ok",
    "はいok、",
    "éno",
    "o\u212a",  # the sign for Kelvin, which is lower case `k` to Unicode
    "",
    "LGTM",
    "YES NO",
    "false, but true",
    "accept/deny",
    "confirm\nrefuse\nagree\tdisagree",
)

SCORES: list[Case] = [
    *just("parse_score", "Score: 7/10", "0", "00", "007", "99999999999999999999", "-3", "7.9", "none", "", "10", "11"),
    *just("parse_score", "v2: 9", "٣", "x1x", "9" * 500, "0" * 500, "100%"),
    ("parse_score", ["none", 3], {}),
    ("parse_score", ["none", 42], {}),
    ("parse_score", ["none", 2.5], {}),
    ("parse_score", ["8", 2], {}),
]

NUMBERS: list[Case] = [
    *just("parse_number", "Found 3 subtasks", "Score: 7.5/10", "at -2 degrees", "3. next", "none", "", "-", "-.5"),
    *just("parse_number", "--4", "1-2", "1.2.3", "1e5", "0x10", "+7", "007", "-0", "-0.0", "1,234.5", "٣ 4", "3."),
    *just("parse_number", "9223372036854775807", "9223372036854775808", "-9223372036854775808", ".5", "²5", "2.50"),
    *just("parse_number", "-9223372036854775809", "12345678901234567890123", "0.1", "0.30000000000000004"),
    *just("parse_number", "9" * 300, "9" * 400, "0" * 30 + "5"),
]

VOTES: list[Case] = [
    ("vote", [answers], {})
    for answers in [
        [],
        ["a"],
        [" yes", "no", "yes\n", "Yes"],
        ["b", "a", "a", "b"],
        ["", " ", "x"],
        [1, "1", 1.0, True],
        [True, "true", False],
        [None, "null", "x"],
        [0.5, "0.5", 2],
        ["\t\v\f\r\n x", "x"],
        ["\u00a0x", "x", "\u00a0x"],
        ["\u001cx", "x", "\u001cx"],
        ["É", "é", "É"],
        [-0.0, "-0.0"],
        [9007199254740993, "9007199254740993"],
    ]
]

CHUNKS: list[Case] = [
    ("chunk", [text], options)
    for text, options in list[tuple[str, dict[str, Any]]](
        [
            ("a\nb\nc\nd\ne", {"size": 2}),
            ("a\nb\nc\nd\ne", {"size": 3, "overlap": 1}),
            ("a\nb\nc", {"size": 2, "overlap": 5}),
            ("a\nb\nc", {"size": 2, "overlap": 2}),
            ("a\r\nb\r\n", {"size": 1}),
            ("a\r", {"size": 1}),
            ("a\r\r\nb", {"size": 1}),
            ("\r\n\r\n", {"size": 1}),
            ("a\n\nb", {"size": 1}),
            ("a\u2028b\u0085c\fd\ve", {"size": 1}),
            ("\n", {}),
            ("\n\n", {}),
            ("a\n", {}),
            ("", {}),
            ("abc", {"size": 0}),
            ("x\n" * 120, {}),
            ("abcde", {"mode": "chars", "size": 3}),
            ("abcdef", {"mode": "chars", "size": 4, "overlap": 2}),
            ("abcdef", {"mode": "chars", "size": 4, "overlap": 9}),
            ("あいうえお", {"mode": "chars", "size": 2}),
            ("👍👍🏽é", {"mode": "chars", "size": 1}),
            ("", {"mode": "chars"}),
            ("a\r\nb", {"mode": "chars", "size": 2}),
            ("a\nb", {"size": 2**63 - 1, "overlap": 2**63 - 1}),
            ("x" * 101, {"mode": "chars"}),
        ]
    )
]

FINGERPRINTS = just(
    "fingerprint",
    "",
    "  Fix \n the\tLogin Bug ",
    "fix the login bug",
    "x" * 5000,
    "É",
    "é",
    "a\u00a0b",
    "a\u001cb",
    "a\v\fb",
    "日本 語",
)

TUNINGS: list[Case] = [
    ("tuning", args, {})
    for args in list[list[Any]](
        [
            [{"a": 1, "b": 2}, {"a": 5, "extra": 1}],
            [{"a": 1}, None],
            [{"a": 1}, {}],
            [{}, {"a": 1}],
            [{"a": 1, "_schema": {"x": 1}}, {"_schema": 2}],
            [{"on": True}, {"on": False}],
            [{"e": {"x": 1, "y": 2}}, {"e": {"x": 9, "z": 3}}],
            [{"o": {"i": {"x": 1, "y": 2}, "k": 1, "_schema": 1}}, {"o": {"i": {"x": 9}}}],
            [{"l": [1, 2, 3]}, {"l": [9]}],
            [{"l": [1, 2, 3]}, {"l": {"x": 1}}],
            [{"l": [1, 2, 3]}, {"l": []}],
            [{"m": "auto"}, {"m": {"deep": 1}}],
            [{"m": {"x": 1}}, {"m": 42}],
            [{"m": {"x": 1}}, {"m": [5, 6]}],
            [{"m": {"x": 1}}, {"m": None}],
            [{"m": {}}, {"m": {"x": 1}}],
            [{"a": 1}, {"a": None}],
            [{"a": None}, {"a": 7}],
            [{"a": None}, {}],
            [{"l": [None, 1]}, {"l": [2]}],
        ]
    )
] + [
    ("tuning", [{"a": 1}, {"p": {"a": 2}, "a": 3}], {"prefix": "p"}),
    ("tuning", [{"a": 1}, {"p": {}, "a": 3}], {"prefix": "p"}),
    ("tuning", [{"a": 1}, {"a": 3}], {"prefix": "p"}),
    ("tuning", [{"a": 1}, {"p": "x", "a": 3}], {"prefix": "p"}),
    ("tuning", [{"a": 1}, {"p": None, "a": 3}], {"prefix": "p"}),
]

CASES = [*JSON, *ENUM, *VERDICTS, *SCORES, *NUMBERS, *VOTES, *CHUNKS, *FINGERPRINTS, *TUNINGS]


@pytest.fixture(scope="module")
def lua_results() -> list[Any]:
    return in_lua(CASES)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_python_reads_as_lua_does(number: int, lua_results: list[Any]) -> None:
    assert exactly(in_python(CASES[number])) == exactly(lua_results[number]), CASES[number]


WRITTEN = st.text(alphabet='{}[]",:1 ae\n`j\\-.', max_size=30) | st.sampled_from(
    ['{"a": [1, {"b": 2}]}', "```json", "```", "yes", "no", "OK", "-3.5", "BLOKED", "blocked", "7/10", "\n1. ", "\n- a"]
)
PROSE = st.lists(WRITTEN, max_size=6).map("".join)
WORDS = st.text(alphabet="abcdeABCé ,.", max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.sampled_from("abp"), inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(st.sampled_from("abp"), VALUES, max_size=3)
ANY_CASE: st.SearchStrategy[Case] = st.one_of(
    st.builds(
        lambda name, text: (name, [text], {}),
        st.sampled_from(["json_extract", "list_items", "match_bool", "parse_score", "parse_number", "fingerprint"]),
        PROSE,
    ),
    st.builds(
        lambda text, names, least: ("match_enum", [text, names], {"threshold": least}),
        WORDS,
        st.lists(WORDS, max_size=3),
        st.sampled_from([0.0, 0.5, 0.7, 0.9]),
    ),
    st.builds(
        lambda text, size, overlap, mode: ("chunk", [text], {"size": size, "overlap": overlap, "mode": mode}),
        st.text(alphabet="ab\n\ré", max_size=20),
        st.integers(0, 6),
        st.integers(0, 7),
        st.sampled_from(["lines", "chars"]),
    ),
    st.builds(lambda answers: ("vote", [answers], {}), st.lists(st.text("ab \n", max_size=3), max_size=6)),
    st.builds(lambda defaults, ctx: ("tuning", [defaults, ctx], {"prefix": "p"}), TABLES, TABLES),
)


@settings(max_examples=examples(15), deadline=None)  # every example makes a VM, for many cases
@given(st.lists(ANY_CASE, min_size=10, max_size=60))
def test_python_reads_as_lua_does_whatever_it_is(cases: list[Case]) -> None:
    for case, expected in zip(cases, in_lua(cases), strict=True):
        assert exactly(in_python(case)) == exactly(expected), case


# --- where Python differs from Lua --------------------------------------------------------------------------------


def in_both(case: Case) -> tuple[Any, Any]:
    return in_python(case), in_lua([case])[0]


@each_row(
    ("text", "candidates", "python", "lua"),
    [
        ("HAUPTSTRASSE", ["Hauptstraße", "xHAUPTSTRASSE"], "Hauptstraße", "xHAUPTSTRASSE"),
        ("ΝΑΙΣ και αλλο", ["ναις", "αλλοx"], "ναις", "αλλοx"),  # a final sigma is a sigma
        ("ԱՅՈ", ["այո", "ոչ"], "այո", None),  # Armenian
        ("noo\x1cyes1x", ["1yesx"], "1yesx", None),  # a separator of files is a blank
    ],
)
def test_names_are_matched_by_the_case_and_blanks_of_unicode_where_lua_knows_less(
    text: str, candidates: list[str], python: str | None, lua: str | None
) -> None:
    assert in_both(("match_enum", [text, candidates], {})) == (python, lua)


def test_marks_belong_to_words_and_variations_of_pictures_do_not() -> None:
    assert list(words_of("(हिन्दी) «пас»! ✅\ufe0f ok✅\ufe0f …")) == ["हिन्दी", "пас", "ok"]


@each_row(
    ("answers", "winner"),
    [
        ([{"b": 1, "a": [True]}, {"a": [True], "b": 1}, "x"], '{"a":[true],"b":1}'),
        ([[1, 2], [1, 2], [2, 1]], "[1,2]"),
        ([(1, 2), [1, 2], "x"], "[1,2]"),
        ([0.1 + 0.2, "0.30000000000000004", "0.3"], "0.30000000000000004"),
        ([1e15, 1e15], "1000000000000000.0"),
        ([math.nan, None], "null"),
    ],
)
def test_votes_that_are_not_text_count_as_their_json_where_lua_has_addresses_and_fourteen_digits(
    answers: list[Any], winner: str
) -> None:
    assert reading.vote(answers)["winner"] == winner


def test_an_empty_list_of_defaults_is_replaced_where_lua_takes_it_for_an_empty_table() -> None:
    assert in_both(("tuning", [{"l": []}, {"l": [1]}], {})) == ({"l": [1]}, {"l": {}})


@each_row(
    ("text", "python", "lua", "number"),
    [
        ("5 of 9 subtasks", r"(\d+)\s+subtask", "(%d+)%s+subtask", 9),
        ("5 of 9", r"x(\d+)", "x(%d+)", None),
        ("5 of nine", r"of (\w+)", "of (%a+)", None),
        ("a7b8", r"[a-z](\d)[a-z](\d)", "%a(%d)%a(%d)", 7),
        ("total: 12.5 EUR", r"total: ([\d.]+)", "total: ([%d.]+)", 12.5),
        ("total: 12.5.7 EUR", r"total: ([\d.]+)", "total: ([%d.]+)", None),
        ("x = 1e3;", r"= (.*);", "= (.*);", 1000.0),
        ("x =  -4 ;", r"=(.*);", "=(.*);", -4),
        ("x = +4;", r"= (.*);", "= (.*);", 4),
        ("x = .5;", r"= (.*);", "= (.*);", 0.5),
        ("x = ;", r"= (.*);", "= (.*);", None),
        ("x = 12;", r"\d+", "%d+", 12),  # no group: all of it
        ("x = nan;", r"= (.*);", "= (.*);", None),
        ("x = inf;", r"= (.*);", "= (.*);", None),
        ("x = 1_000;", r"= (.*);", "= (.*);", None),
        ("x = 1e999;", r"= (.*);", "= (.*);", None),
    ],
)
def test_a_number_is_found_by_a_regular_expression_as_in_lua_by_a_pattern(
    text: str, python: str, lua: str, number: float | None
) -> None:
    assert reading.parse_number(text, python) == number
    assert in_lua([("parse_number", [text, lua], {})]) == [number]


def test_a_group_that_took_no_part_is_no_number() -> None:
    assert reading.parse_number("b7", r"(?:a(\d)|b\d)") is None


@each_row(
    ("a", "b", "score"),
    [  # published values of Winkler's papers
        ("martha", "marhta", 0.961),
        ("dixon", "dicksonx", 0.813),
        ("Thorkel", "Thorgier", 0.868),
        ("", "", 1.0),
        ("", "a", 0.0),
    ],
)
def test_likeness_has_the_published_values(a: str, b: str, score: float) -> None:
    assert WordSimilarity(a).to(b) == pytest.approx(score, abs=0.001)


@given(st.text(alphabet="abcé", max_size=12), st.text(alphabet="abcé", max_size=12))
def test_likeness_in_one_pass_is_that_of_lua(a: str, b: str) -> None:
    of = {text: FUZZY[b"characters"](text.encode())[0] for text in (a, b)}
    assert WordSimilarity(b).to(a) == FUZZY[b"jaro_winkler"](of[a], of[b])
