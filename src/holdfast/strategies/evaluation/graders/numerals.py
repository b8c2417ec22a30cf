"""Numbers in texts, as models write them: `1,234.5`, `−3`, `4e-3`."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_NUMBER = re.compile(
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<=\d)\.\d+|(?<!\w)\.\d+)?(?:(?<=\d)[eE][+-]?\d+)?", re.ASCII
)


class Numeral(NamedTuple):
    """A number, and where it stands in a text."""

    value: float
    begin: int
    end: int


def numerals(text: str) -> list[Numeral]:
    """Every number in a text, in order."""
    found: list[Numeral] = []
    for match in _NUMBER.finditer(text):
        if not match[0] or not any(each.isdigit() for each in match[0]):
            continue
        before = text[max(0, match.start() - 2) : match.start()]
        # In `3-4` and `gpt-4` the dash is not a sign.
        negative = before.endswith("−") or (before.endswith("-") and not re.search(r"[\w.)]-$", before))
        value = float(match[0].replace(",", ""))
        found.append(Numeral(-value if negative else value, match.start(), match.end()))
    return found


def whole_number(text: str) -> float | None:
    """The number that a text consists of, or None."""
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def answer_number(text: str) -> float | None:
    """The number that an answer gives: the whole text if it is one, else the last one in it."""
    whole = whole_number(text)
    if whole is not None:
        return whole
    found = numerals(text)
    return found[-1].value if found else None
