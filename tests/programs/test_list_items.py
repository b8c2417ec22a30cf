"""The entries of a list that a model wrote: the same in Python and in a real Lua VM."""

from __future__ import annotations

import json

from holdfast.programs import model_text as reading
from tests.alc.lua import scripted
from tests.tables import each_row

CASES: list[tuple[str, int | None, list[str]]] = [
    # lines with a mark in front
    ("1. a\n2. b", None, ["a", "b"]),
    ("1) a\n 2)  b \r\n", None, ["a", "b"]),
    ("- a\n* b\n• c", None, ["a", "b", "c"]),
    ("\t- a\t\n12. b\n\n", None, ["a", "b"]),
    ("So:\n- a\nand then\n- b\nIs that all?", None, ["a", "b"]),
    ("1.\ta\n-\tb", None, ["a", "b"]),
    ("1. 2. a\n- - b\n- [ ] c", None, ["2. a", "- b", "[ ] c"]),
    ("- é日👍\n- a  b", None, ["é日👍", "a  b"]),
    # what is no mark
    ("", None, []),
    ("no list", None, []),
    ("-\n- \n-  \n1.\n1. ", None, []),
    ("-a\n1.a\n1 a\n. a\n+ a\n– a\na - b\n1.5 a\n(1) a\n**1. a**", None, []),
    ("٣. a", None, []),
    ("x\r- a\u2028- b\v- c", None, []),
    # blanks are those of ASCII
    ("-\u00a0a", None, []),
    ("\u00a0- a", None, []),
    ("\v- a", None, []),
    ("- \u00a0a\u00a0\n- b\v\f", None, ["\u00a0a\u00a0", "b"]),
    # each once
    ("- a\n- b\n- a \n-  b", None, ["a", "b"]),
    ("- A\n- a", None, ["A", "a"]),
    # an array of JSON
    ('["a", " b ", "a", "", 5, null, ["c"]]', None, ["a", "b"]),
    ('So: ["a"]', None, ["a"]),
    ('```json\n["a"]\n```', None, ["a"]),
    ('["a\\n- b"]', None, ["a\n- b"]),
    ("[1]", None, []),
    ("[]", None, []),
    ('{"a": ["b"]}', None, []),
    ('{"1": "b"}', None, []),
    ('So: [{"a": 1}, "b"]', None, []),
    # lines go before an array, unless nothing stands in them
    ('- a\n["b"]', None, ["a"]),
    ('- \n["b"]', None, ["b"]),
    # at most so many
    ("1. a\n2. a\n3. b\n4. c", 0, []),
    ("1. a\n2. a\n3. b\n4. c", 1, ["a"]),
    ("1. a\n2. a\n3. b\n4. c", 2, ["a", "b"]),
    ("1. a\n2. a\n3. b\n4. c", 2**62, ["a", "b", "c"]),
    ('["a", "b"]', 0, []),
    ('["a", "b"]', 1, ["a"]),
]

LUA = """
    local results = {}
    for i, case in ipairs(ctx.cases) do results[i] = alc.json_encode(alc.list_items(case[1], case[2])) end
    return results
"""


@each_row(("text", "most", "entries"), CASES)
def test_the_entries_of_a_list_are_found(text: str, most: int | None, entries: list[str]) -> None:
    assert reading.list_items(text, most) == entries


def test_lua_finds_the_same() -> None:
    found = scripted.run(LUA, ctx={"cases": [[text, most] for text, most, _ in CASES]}).result
    assert [json.loads(each) for each in found] == [entries for _, _, entries in CASES]


def test_lua_says_what_is_no_text_at_the_line_of_the_call() -> None:
    told = "test:2: alc.list_items: text must be a string, got nil"
    assert scripted.run("\nalc.list_items(nil)").error == told


@each_row("text", [" " * 1_000_000, "9" * 1_000_000, "- \n" * 300_000, "[" * 1_000_000])
def test_lua_is_quick_on_hostile_texts(text: str) -> None:
    assert scripted.run("return #alc.list_items(ctx)", ctx=text).result == 0
