"""Reads what models write: JSON, lists, names, verdicts and numbers in prose. Also votes, chunks of text, and settings.

Pure functions, the same as the `alc.*` ones of Lua. The host also runs them on texts and values of sandboxed programs,
so each takes time in proportion to its input, or refuses what would take longer, and none recurses. An argument of a
wrong type raises a `TypeError`, one that is too large a `ValueError`; both are worded for the author of a strategy.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast.core.limits import MAX_INTEGER, MIN_INTEGER
from holdfast.core.values import Json
from holdfast.programs.similarity import WordSimilarity, words_of

MAX_TEXT_CHARS: Final = 10_000_000
"""Characters of a text to read: ten books, more than any model reads or writes at once. It takes seconds at most."""

MAX_BRACKETS: Final = 1_000_000
"""Braces, and likewise brackets, of a text that is searched for JSON: each pair takes 16 bytes. JSON that is the whole
text, or in a fence, may have more."""

MAX_JSON_DEPTH: Final = 128
"""Levels of nested JSON, as in Lua: what is read can be stored and written again."""

MAX_LISTED: Final = 100_000
"""Entries of a list that are returned: ten times as many as can be asked about in one pause."""

MAX_SEARCHED_CHARS: Final = 100_000_000
"""Characters that `match_enum` searches for candidates, counting the text once for each candidate: half a second."""

MAX_CANDIDATES: Final = 1_000
MAX_CANDIDATE_CHARS: Final = 50_000
"""Words that `match_enum` chooses from, and the characters of all of them together: nobody lists more in a prompt."""

MAX_COMPARED_CHARS: Final = 5_000_000
"""Characters that `match_enum` compares to find the most similar word: about a second. A text of 100,000 characters
with twenty candidates is far below this."""

_COMPARING: Final = 10
"""The fixed cost of looking at a word, or of comparing it with another, in characters."""

MAX_CHUNKS: Final = 100_000
"""Chunks of a text: ten times as many as can be asked about in one pause."""

MAX_LINES: Final = 1_000_000
"""Lines of a text that is cut by lines: all of them are in memory at once."""

MAX_WRITTEN_ITEMS: Final = 100_000
"""Answers to count, and items at all levels inside them: a list that occurs in others many times can mean billions."""

MAX_SETTINGS: Final = 10_000
"""Keys that `tuning` merges, at all levels together: a table may occur in another many times, or in itself."""

_BLANKS: Final = " \t\n\r\v\f"
_ENTRY: Final = re.compile(r"^[ \t]*(?:[0-9]+[.)]|[-*•])[ \t]([^\n]*)", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_NUMERAL: Final = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*")
_DIGITS: Final = re.compile(r"[0-9]+")
_WORD: Final = re.compile(r"[0-9A-Za-z]+")
_VERDICTS: Final = {
    **dict.fromkeys(["approved", "yes", "ok", "accept", "pass", "confirm", "agree", "true", "lgtm"], True),
    **dict.fromkeys(["rejected", "no", "deny", "block", "fail", "refuse", "disagree", "false"], False),
}
_encoder: Final = msgspec.json.Encoder(order="deterministic")


# --- JSON ---------------------------------------------------------------------------------------------------------


def json_extract(text: str) -> Any:
    """The first dict or list in what a model wrote, or None if there is none.

    It may be the whole text, a fenced block, or the first part in braces (otherwise in brackets) that is JSON. Integers
    of more than 64 bits are read as floats.
    """
    _check_text(text, "json_extract")
    return _extracted(text, "json_extract")


def _extracted(text: str, function: str) -> dict[str, Any] | list[Any] | None:
    for whole in (text, _fenced(text, "```json"), _fenced(text, "```")):
        if whole is not None and (value := _table(whole)) is not None:
            return value
    for opening, closing in ("{}", "[]"):
        for part in _balanced(text, opening, closing, function):
            if (value := _table(part)) is not None:
                return value
    return None


def _fenced(text: str, mark: str) -> str | None:
    """The content of the first fence that opens with `mark`."""
    opened = text.find(mark)
    closed = text.find("```", opened + len(mark)) if opened >= 0 else -1
    return text[opened + len(mark) : closed] if closed >= 0 else None


def _balanced(text: str, opening: str, closing: str, function: str) -> Iterator[str]:
    """The balanced parts of a text, from left to right, without those inside others."""
    if text.count(opening) + text.count(closing) > MAX_BRACKETS:
        raise ValueError(
            f"{function}: text has more than {MAX_BRACKETS} '{opening}' and '{closing}'; pass only the part with JSON"
        )
    waiting, begins, ends = array("q"), array("q"), array("q")
    for found in re.finditer(f"[{re.escape(opening + closing)}]", text):
        at = found.start()
        if text[at] == opening:
            waiting.append(at)
        elif waiting:
            begin = waiting.pop()
            while begins and begins[-1] > begin:
                begins.pop()
                ends.pop()
            begins.append(begin)
            ends.append(at)
    for begin, end in zip(begins, ends, strict=True):
        yield text[begin : end + 1]


def _table(text: str) -> dict[str, Any] | list[Any] | None:
    try:
        value = msgspec.json.decode(text.encode())
        return value if isinstance(value, dict | list) and _is_kept(value) else None
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, OverflowError):
        return None


def _is_kept(value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value is flat enough to store. Integers that are too long become floats in passing."""
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        inner: list[Any] = []
        for holder in level:
            for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
                if isinstance(item, dict | list):
                    inner.append(item)
                elif type(item) is int and not MIN_INTEGER <= item <= MAX_INTEGER:
                    holder[key] = float(item)
        if not inner:
            return True
        level = inner
    return False


# --- lists --------------------------------------------------------------------------------------------------------


def list_items(text: str, most: int | None = None) -> list[str]:
    """The entries of a list that a model wrote, trimmed, each once, at most `most` of them.

    Entries are the lines that begin with a number (`1.` or `1)`), a dash, a star or a bullet; if there are none, the
    strings of the first JSON array. A text with neither has no entries.
    """
    _check_text(text, "list_items")
    if most is not None:
        _check_count(most, "list_items: most")
    entries = _distinct((found[1] for found in _ENTRY.finditer(text)), most)
    if entries or most == 0:
        return entries
    listed = _extracted(text, "list_items")
    return _distinct((item for item in listed if isinstance(item, str)), most) if isinstance(listed, list) else []


def _distinct(texts: Iterable[str], most: int | None) -> list[str]:
    kept: dict[str, None] = {}
    for text in texts:
        if len(kept) == most:
            break
        if entry := text.strip(_BLANKS):
            kept[entry] = None
        if len(kept) > MAX_LISTED:
            raise ValueError(f"list_items: text has more than {MAX_LISTED} entries; pass `most` to limit them")
    return list(kept)


# --- names, verdicts, numbers -------------------------------------------------------------------------------------


def match_enum(text: str, candidates: Sequence[str], *, threshold: float = 0.7) -> str | None:
    """The candidate that a text names, or None if it names none.

    Of the candidates that occur in the text, ignoring case, the one that occurs last; of several at one place, the
    first listed. If none occurs, the one most similar to a word of the text (Jaro-Winkler), if their similarity is at
    least `threshold`.

    Case, white space and letters are Unicode's, for all scripts: `STRASSE` is `straße`. Lua knows the case of Latin,
    Greek, Cyrillic and full-width letters only, one to one.
    """
    _check_text(text, "match_enum")
    _check_list(candidates, "match_enum: candidates", "str")
    _check_number(threshold, "match_enum: threshold")
    for position, candidate in enumerate(candidates, 1):
        _check_text(candidate, "match_enum", f"candidate {position}")
    if len(candidates) > MAX_CANDIDATES or sum(map(len, candidates)) > MAX_CANDIDATE_CHARS:
        raise ValueError(
            f"match_enum: at most {MAX_CANDIDATES} candidates with {MAX_CANDIDATE_CHARS} characters in all are allowed"
        )
    if len(candidates) * len(text) > MAX_SEARCHED_CHARS:
        raise ValueError(
            f"match_enum: text has {len(text)} characters, too many to search for {len(candidates)} candidates;"
            " pass only the part that names one"
        )
    folded, names = text.casefold(), [candidate.casefold() for candidate in candidates]
    # `find` in the reversed text, because `rfind` can take time in proportion to the product of both lengths.
    backwards = folded[::-1]
    found = ((backwards.find(name[::-1]), name, i) for i, name in enumerate(names))
    before_end = [(at + len(name), i) for at, name, i in found if at >= 0]
    best = min(before_end)[1] if before_end else _most_alike(folded, names, threshold)
    return None if best is None else candidates[best]


def _most_alike(text: str, names: list[str], threshold: float) -> int | None:
    """The first of the names that is most similar to a word of the text."""
    best, best_score, compared = None, 0.0, 0
    likenesses = [WordSimilarity(name) for name in names]
    seen: set[str] = set()
    for word in words_of(text):
        new = likenesses if word not in seen else []
        seen.add(word)
        compared += _COMPARING + sum(_COMPARING + len(word) + len(likeness.word) for likeness in new)
        if compared > MAX_COMPARED_CHARS:
            raise ValueError(
                "match_enum: text contains no candidate, and is too long to search for similar words;"
                " pass only the part that names one"
            )
        for i, likeness in enumerate(new):
            score = likeness.to(word)
            if score >= threshold and (best is None or score > best_score):
                best, best_score = i, score
    return best


def match_bool(text: str) -> bool | None:
    """Yes or no, by the last whole word that means either, ignoring case; None if there is no such word.

    Yes: approved, yes, ok, accept, pass, confirm, agree, true, lgtm.
    No: rejected, no, deny, block, fail, refuse, disagree, false.
    """
    _check_text(text, "match_bool")
    verdict = None
    for word in _WORD.finditer(text):
        verdict = _VERDICTS.get(word[0].lower(), verdict)
    return verdict


def parse_score(text: str, default: float = 5) -> float:
    """A score from 1 to 10: the first digits in the text, limited to that range; `default` if there are none.

    Signs and decimals are not read.
    """
    _check_text(text, "parse_score")
    _check_number(default, "parse_score: default")
    found = _DIGITS.search(text)
    if found is None:
        return default
    digits = found[0].lstrip("0")
    return 10 if len(digits) > 2 else min(10, max(1, int(digits or 0)))


def parse_number(text: str, pattern: str | None = None) -> float | None:
    """A number in the text: the first one, or the first group of a regular expression; None if there is none.

    It is an int if it is written as one and has no more than 64 bits. A number too large for a float counts as none.
    """
    _check_text(text, "parse_number")
    if pattern is None:
        found = _NUMBER.search(text)
        return _number(found[0]) if found else None
    _check_text(pattern, "parse_number", "pattern")
    try:
        match = re.search(pattern, text)
    except re.error as error:
        raise ValueError(f"parse_number: pattern is not a regular expression: {error}") from None
    given = match and match[1 if match.re.groups else 0]
    numeral = given and _NUMERAL.fullmatch(given)
    return _number(numeral[1]) if numeral else None


def _number(numeral: str) -> int | float | None:
    # To read a long integer, Python takes time in proportion to the square of its digits.
    if len(numeral) <= 20 and numeral.lstrip("+-").isdigit():
        whole = int(numeral)
        return whole if MIN_INTEGER <= whole <= MAX_INTEGER else float(whole)
    number = float(numeral)
    return number if abs(number) != float("inf") else None


# --- votes, texts, settings ---------------------------------------------------------------------------------------


def vote(answers: Sequence[Any]) -> dict[str, Any]:
    """The most frequent answer, trimmed; in a tie, the one that came first.

    `{"winner": …, "count": how often it was given, "total": the number of answers}`; with no answers, None wins.
    A value that is not text counts as its JSON: None as `null`, True as `true`, a dict by its content.
    """
    _check_list(answers, "vote: answers")
    counts: dict[str, int] = {}
    left = _Left()
    for position, answer in enumerate(answers, 1):
        text = _written(answer, f"vote: answer {position}", left).strip(_BLANKS)
        counts[text] = counts.get(text, 0) + 1
    winner = max(counts, key=counts.__getitem__, default=None)
    return {"winner": winner, "count": counts[winner] if winner is not None else 0, "total": len(answers)}


def as_text(value: Json, what: str) -> str:
    """A value as text: text as it is, anything else as its JSON, with sorted keys. `what` names it in errors."""
    return value if isinstance(value, str) else _written(value, what, _Left())


class _Left:
    """How much more may be written as text."""

    def __init__(self) -> None:
        self.items, self.chars = MAX_WRITTEN_ITEMS, MAX_TEXT_CHARS


def _written(value: Json, what: str, left: _Left) -> str:
    level: list[Any] = [value]
    left.items -= 1
    for _ in range(MAX_JSON_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            parts = _parts(item, what)
            left.items -= len(parts)
            left.chars -= len(item) if isinstance(item, str) else 0
            if left.items < 0 or left.chars < 0:
                limits = f"{MAX_WRITTEN_ITEMS} items or {MAX_TEXT_CHARS} characters"
                raise ValueError(f"{what} exceeds the limit of {limits} in all")
            inner += parts
        if not inner:
            return value if isinstance(value, str) else _encoder.encode(value).decode()
        level = inner
    raise ValueError(f"{what} is nested deeper than {MAX_JSON_DEPTH} levels")


def _parts(item: object, what: str) -> Sequence[object]:
    """The parts of a list or dict; none for any other value."""
    if isinstance(item, list | tuple):
        return item
    if isinstance(item, dict):
        if not all(isinstance(key, str) for key in item):
            raise TypeError(f"{what} must be JSON, got a dict with keys that are not str")
        return [*item, *item.values()]
    if isinstance(item, int) and not MIN_INTEGER <= item <= MAX_INTEGER:
        raise ValueError(f"{what} contains an integer of more than 64 bits; make it text")
    if item is not None and not isinstance(item, str | int | float):
        raise TypeError(f"{what} must be JSON, got {type(item).__name__}")
    return ()


def chunk(text: str, *, mode: Literal["lines", "chars"] = "lines", size: int = 50, overlap: int = 0) -> list[str]:
    """A text in chunks of `size` lines or characters, each of which begins with the last `overlap` of the one before.

    A line ends with a newline, which may have a carriage return before it; chunks have plain newlines. An overlap of
    `size` or more counts as `size - 1`.
    """
    _check_text(text, "chunk")
    _check_count(size, "chunk: size")
    _check_count(overlap, "chunk: overlap")
    if mode not in ("lines", "chars"):
        raise ValueError(f"chunk: mode must be 'lines' or 'chars', got {mode!r}")
    units: Sequence[str] = text if mode == "chars" else _lines(text)
    if size == 0 or not units:
        return []
    step = max(size - overlap, 1)
    starts = range(0, max(len(units) - size, 0) + step, step)
    if len(starts) > MAX_CHUNKS:
        raise ValueError(f"chunk: {len(starts)} chunks are more than {MAX_CHUNKS}; use a larger size or less overlap")
    pieces: list[str] = []
    chars = 0
    for start in starts:
        cut = units[start : start + size]
        pieces.append(cut if isinstance(cut, str) else "\n".join(cut))
        chars += len(pieces[-1])
        if chars > 2 * MAX_TEXT_CHARS:
            raise ValueError("chunk: with this overlap, the chunks have too much text in all; use less overlap")
    return pieces


def _lines(text: str) -> list[str]:
    if text.count("\n") > MAX_LINES:
        raise ValueError(f"chunk: text has more than {MAX_LINES} lines; cut it by chars")
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()  # nothing follows the last newline, so there is no line
    return lines


def fingerprint(text: str) -> str:
    """8 hex digits, the same for texts that differ only in white space and in the case of ASCII letters.

    For finding repeats, and the same in every language of strategies; not for security or for keys that must not
    collide.
    """
    _check_text(text, "fingerprint")
    value = 5381
    for byte in b" ".join(text.encode("utf-8", "surrogatepass").lower().split()):
        value = (value * 33 + byte) & 0xFFFFFFFF
    return f"{value:08x}"


def tuning(defaults: dict[str, Any], ctx: dict[str, Any] | None, *, prefix: str | None = None) -> dict[str, Any]:
    """Settings: the defaults, overridden by the same keys in `ctx` (or in `ctx[prefix]`, if it exists).

    Dicts are merged, lists and single values replaced. `_schema` is left out. A `ctx[prefix]` that is not a dict is
    ignored. An empty list among the defaults is replaced, too; not so in Lua, where it is also an empty table.
    """
    _check_dict(defaults, "tuning: defaults")
    if ctx is not None:
        _check_dict(ctx, "tuning: ctx")
    source: Any = ctx or {}
    if prefix is not None:
        _check_text(prefix, "tuning", "prefix")
        source = source.get(prefix, source)
    result: dict[str, Any] = {}
    level, merged = [(defaults, source, result)], 0
    while level:
        wanted, given, into = level.pop()
        merged += len(wanted)
        if merged > MAX_SETTINGS:
            raise ValueError(f"tuning: defaults have more than {MAX_SETTINGS} keys, or contain themselves")
        for key, value in wanted.items():
            if key == "_schema":
                continue
            if not isinstance(given, dict) or key not in given:
                into[key] = value
            elif isinstance(value, dict) and isinstance(given[key], dict | list):
                into[key] = {}
                level.append((value, given[key], into[key]))
            else:
                into[key] = given[key]
    return result


# --- arguments ----------------------------------------------------------------------------------------------------


def _check_text(value: object, function: str, name: str = "text") -> None:
    if not isinstance(value, str):
        raise TypeError(f"{function}: {name} must be str, got {type(value).__name__}")
    if len(value) > MAX_TEXT_CHARS:
        raise ValueError(f"{function}: {name} has {len(value)} characters, more than {MAX_TEXT_CHARS}")


def _check_list(value: object, what: str, of: str = "values") -> None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{what} must be a list of {of}, got {type(value).__name__}")


def _check_dict(value: object, what: str) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{what} must be dict, got {type(value).__name__}")


def _check_number(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")


def _check_count(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be int, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{what} must be 0 or more, got {value}")
