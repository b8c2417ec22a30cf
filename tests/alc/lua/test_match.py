"""Reading what models write: names, verdicts, scores and numbers, and the words they are found in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alc.lua.scripted import call, module, run
from tests.tables import each_row

FUZZY = module("fuzzy")


def error(expression: str) -> str:
    return run(f"return {expression}").error


@each_row(
    ("text", "candidates", "winner"),
    [
        ("Verdict: BLOCKED. Fix it.", ["PASS", "BLOCKED"], "BLOCKED"),
        ("verdict: pass", ["PASS", "BLOCKED"], "PASS"),
        ("First BLOCKED, after review: PASS", ["PASS", "BLOCKED"], "PASS"),
        ("PASS, then BLOCKED, then PASS", ["BLOCKED", "PASS"], "PASS"),
        ("approve", ["app", "approve"], "app"),  # the same place: the first listed
        ("approve", ["approve", "app"], "approve"),
        ("bypass", ["pass"], "pass"),  # anywhere, not only whole words
        ("BLOKED", ["PASS", "BLOCKED"], "BLOCKED"),
        ("the verdict is (BLCKED!) for now", ["PASS", "BLOCKED"], "BLOCKED"),
        ("The weather is nice", ["PASS", "BLOCKED"], None),
        ("", ["PASS"], None),
        ("anything", [], None),
        ("---", ["PASS"], None),
        ("Ergebnis: ÄNDERUNG", ["änderung", "keine"], "änderung"),
        ("РЕШЕНИЕ: ДА", ["Нет", "Да"], "Да"),
        ("ΝΑΙ", ["όχι", "ναι"], "ναι"),
        ("判定：ＰＡＳＳ。", ["ｐａｓｓ", "fail"], "ｐａｓｓ"),
        ("結論：　「承認ず」　です", ["承認す"], "承認す"),
        ("a %d+ b", ["%d+"], "%d+"),  # patterns are plain text
    ],
)
def test_match_enum_takes_the_last_mention_or_else_the_most_alike_word(
    text: str, candidates: list[str], winner: str | None
) -> None:
    assert call("alc.match_enum(ctx.text, ctx.candidates)", text=text, candidates=candidates) == winner


def test_match_enum_keeps_the_first_of_equally_alike_candidates() -> None:
    assert call("alc.match_enum('abcx', {'abcy', 'abcz'})") == "abcy"
    assert call("alc.match_enum('abcx', {'abcz', 'abcy'})") == "abcz"


def test_match_enum_heeds_its_threshold() -> None:
    assert call("alc.match_enum('BLOKED', {'BLOCKED'}, {threshold = 0.99})") is None
    assert call("alc.match_enum('BLOKED', {'BLOCKED'}, {threshold = '0.9'})") == "BLOCKED"
    assert call("alc.match_enum('zz', {'BLOCKED'}, {threshold = 0})") == "BLOCKED"
    assert call("alc.match_enum('BLOKED', {'BLOCKED'}, {threshold = 'x'})") == "BLOCKED"


def test_match_enum_takes_numbers_as_text_and_refuses_the_rest() -> None:
    assert call("alc.match_enum(42, {4, 2})") == "2"
    assert "alc.match_enum: text must be a string, got nil" in error("alc.match_enum(nil, {})")
    assert "alc.match_enum: candidates must be an array, got string" in error("alc.match_enum('a', 'b')")
    assert "alc.match_enum: candidate 2 must be a string, got boolean" in error("alc.match_enum('a', {'x', true})")
    assert "alc.match_enum: opts must be a table, got number" in error("alc.match_enum('a', {'x'}, 1)")


def test_match_enum_bears_bytes_that_are_not_utf8() -> None:
    assert call("alc.match_enum('\\xff\\xe3\\x81 BLOKED\\xff', {'BLOCKED', '\\xfe'})") == "BLOCKED"


def characters(text: str) -> Any:
    chars, _count = FUZZY[b"characters"](text.encode())
    return chars


def jaro_winkler(a: str, b: str) -> float:
    score: float = FUZZY[b"jaro_winkler"](characters(a), characters(b))
    return score


@each_row(
    ("a", "b", "score"),
    [  # published values of strsim 0.11 and of Winkler's papers
        ("cheeseburger", "cheese fries", 0.866),
        ("Thorkel", "Thorgier", 0.868),
        ("Dinsdale", "D", 0.738),
        ("thequickbrownfoxjumpedoverx", "thequickbrownfoxjumpedovery", 0.985),
        ("martha", "marhta", 0.961),
        ("dixon", "dicksonx", 0.813),
        ("Friedrich Nietzsche", "Jean-Paul Sartre", 0.392),
        ("", "", 1.0),
        ("", "a", 0.0),
        ("a", "b", 0.0),
        ("testabctest", "testöঙ香test", 0.891),
    ],
)
def test_jaro_winkler_has_the_published_values(a: str, b: str, score: float) -> None:
    assert jaro_winkler(a, b) == pytest.approx(score, abs=0.001)
    assert jaro_winkler(a, a) == 1.0


@given(st.text(alphabet="abcé", max_size=8), st.text(alphabet="abcé", max_size=8))
def test_jaro_winkler_equals_a_plain_rendering_of_its_definition(a: str, b: str) -> None:
    def defined() -> float:
        if not a or not b:
            return float(a == b)
        reach = max(max(len(a), len(b)) // 2 - 1, 0)
        taken: list[int] = []
        mine: list[str] = []
        for i, char in enumerate(a):
            free = [j for j in range(len(b)) if abs(i - j) <= reach and b[j] == char and j not in taken]
            if free:
                taken.append(free[0])
                mine.append(char)
        m = len(mine)
        if m == 0:
            return 0.0
        swapped = sum(x != b[j] for x, j in zip(mine, sorted(taken), strict=True)) // 2
        jaro = (m / len(a) + m / len(b) + (m - swapped) / m) / 3
        if jaro <= 0.7:
            return jaro
        prefix = next((i for i in range(4) if a[i : i + 1] != b[i : i + 1] or i >= len(a)), 4)
        return jaro + 0.1 * prefix * (1 - jaro)

    assert jaro_winkler(a, b) == pytest.approx(defined(), abs=1e-12)


def test_lower_case_agrees_with_unicode_where_it_is_known() -> None:
    ranges = [(0, 0x12F), (0x131, 0x17F), (0x386, 0x3AB), (0x400, 0x4BF), (0x4D0, 0x52F), (0x1E00, 0x1E95)]
    for first, last in [*ranges, (0x1EA0, 0x1EFF), (0x3040, 0x30FF), (0x4E00, 0x4EFF), (0xFF00, 0xFF5E)]:
        text = "".join(map(chr, range(first, last + 1)))
        assert FUZZY[b"lower_case"](text.encode()).decode() == "".join(map(str.lower, text))


@given(st.binary(max_size=40))
def test_characters_lose_nothing_of_any_text(text: bytes) -> None:
    chars, count = FUZZY[b"characters"](text)
    parts = [chars[i] for i in range(1, count + 1)]
    assert b"".join(parts) == text
    assert all(len(part) == 1 or len(part.decode()) == 1 for part in parts)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_characters_of_valid_text_are_its_code_points(text: str) -> None:
    chars, count = FUZZY[b"characters"](text.encode())
    assert [chars[i].decode() for i in range(1, count + 1)] == list(text)


@given(st.text(alphabet="aZ9é日 \t\n\u3000\u00a0.,(!)「」—", max_size=30))
def test_words_are_split_at_blanks_and_stripped_of_signs(text: str) -> None:
    def stripped(word: str) -> str:
        while word and not word[0].isalnum():
            word = word[1:]
        while word and not word[-1].isalnum():
            word = word[:-1]
        return word

    found = FUZZY[b"words"](text.encode())
    words = [b"".join(word.values()).decode() for word in found.values()]
    assert words == [word for word in map(stripped, text.split()) if word]


TRUE = ["approved", "yes", "ok", "accept", "pass", "confirm", "agree", "true", "lgtm"]
FALSE = ["rejected", "no", "deny", "block", "fail", "refuse", "disagree", "false"]


def test_match_bool_knows_its_words_in_any_case() -> None:
    code = "local out = {} for i, w in ipairs(ctx.words) do out[i] = alc.match_bool(w:upper() .. '.') end return out"
    assert run(code, ctx={"words": TRUE}).result == [True] * len(TRUE)
    assert run(code, ctx={"words": FALSE}).result == [False] * len(FALSE)


@each_row(
    ("text", "verdict"),
    [
        ("Approved. Looks good.", True),
        ("rejected: no tests", False),
        ("No issues found. Approved.", True),
        ("Yes... on second thought, no", False),
        ("I need more information", None),
        ("a broken token", None),
        ("bypass the passage, innovation, failed, blocks", None),
        ("ok2", None),
        ("is_ok", True),  # an underscore ends a word
        ("はいok、", True),  # and so does what is not ASCII
        ("éno", False),
        ("", None),
    ],
)
def test_match_bool_takes_the_last_whole_word(text: str, verdict: bool | None) -> None:
    assert call("alc.match_bool(ctx.text)", text=text) == verdict


def test_match_bool_refuses_what_is_no_text() -> None:
    assert "alc.match_bool: text must be a string, got nil" in error("alc.match_bool()")
    assert call("alc.match_bool(1)") is None


@each_row(
    ("arguments", "score"),
    [
        ("'Score: 7/10'", 7),
        ("'0'", 1),
        ("'99999999999999999999'", 10),
        ("'-3'", 3),
        ("'7.9'", 7),
        ("'none'", 5),
        ("'none', 3", 3),
        ("nil", 5),
        ("nil, 2", 2),
        ("8", 8),
        ("'none', 42", 42),
    ],
)
def test_parse_score_is_the_first_run_of_digits_from_one_to_ten(arguments: str, score: int) -> None:
    result = call(f"alc.parse_score({arguments})")
    assert (result, type(result)) == (score, int)


@each_row(
    ("arguments", "number"),
    [
        ("'Found 3 subtasks'", 3),
        ("'Score: 7.5/10'", 7.5),
        ("'at -2 degrees'", -2),
        ("'3. next'", 3.0),
        ("'none'", None),
        ("7", None),
        ("nil", None),
        ("'5 of 9 subtasks', '(%d+)%s+subtask'", 9),
        ("'5 of 9', 'x(%d+)'", None),
        ("'5 of nine', 'of (%a+)'", None),
        ("'a7b8', '%a(%d)%a(%d)'", 7),
    ],
)
def test_parse_number_is_the_first_number_or_the_first_capture(arguments: str, number: float | None) -> None:
    result = call(f"alc.parse_number({arguments})")
    assert (result, type(result)) == (number, type(number))
