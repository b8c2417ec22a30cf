"""Words as people see them: the words of a text, and how alike two words are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_WORD = re.compile(r"\S+")


def words_of(text: str) -> Iterator[str]:
    """The words of a text, without the signs at their ends."""
    for found in _WORD.finditer(text):
        if word := _stripped(found[0]):
            yield word


def _stripped(word: str) -> str:
    first, last = 0, len(word)
    while first < last and not _is_of_word(word[first]):
        first += 1
    while first < last and not _is_of_word(word[last - 1]):
        last -= 1
    return word[first:last]


def _is_of_word(char: str) -> bool:
    # Marks are: in many scripts vowels are marks. But selectors of variations only say how a picture looks.
    return unicodedata.category(char)[0] in "LMN" and not "\ufe00" <= char <= "\ufe0f"


class WordSimilarity:
    """How alike other words are to one word: Jaro-Winkler, 0 to 1."""

    def __init__(self, word: str) -> None:
        self.word = word
        self._places: dict[str, list[int]] = {}
        for at, char in enumerate(word):
            self._places.setdefault(char, []).append(at)

    def to(self, other: str) -> float:
        """Jaro with a bonus for a common beginning of up to four characters, given only above 0.7."""
        similarity = self._jaro(other)
        if similarity <= 0.7:
            return similarity
        common = 0
        while common < min(4, len(other), len(self.word)) and other[common] == self.word[common]:
            common += 1
        return similarity + 0.1 * common * (1.0 - similarity)

    def _jaro(self, other: str) -> float:
        """In one pass: what is in reach only moves on, so each place is looked at once."""
        if not other or not self.word:
            return float(other == self.word)
        reach = max(max(len(other), len(self.word)) // 2 - 1, 0)
        next_of: dict[str, int] = {}
        matched: list[str] = []
        taken: list[int] = []
        for at, char in enumerate(other):
            places = self._places.get(char)
            if places is None:
                continue
            i = next_of.get(char, 0)
            while i < len(places) and places[i] < at - reach:
                i += 1
            if i < len(places) and places[i] <= at + reach:
                matched.append(char)
                taken.append(places[i])
                i += 1
            next_of[char] = i
        matches = len(matched)
        if not matches:
            return 0.0
        out_of_place = sum(self.word[at] != char for at, char in zip(sorted(taken), matched, strict=True))
        return (matches / len(other) + matches / len(self.word) + (matches - out_of_place // 2) / matches) / 3.0
