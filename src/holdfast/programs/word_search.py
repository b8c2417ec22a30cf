"""Finds things by words that people use for them: in any form of the word, and by words that mean nearly the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r"[a-z0-9]+")

_PASSED_OVER = frozenset(
    {
        *("a", "an", "and", "at", "by", "do", "for", "from", "how", "i", "in", "into", "is", "it", "its", "me", "my"),
        *("of", "on", "or", "some", "that", "the", "this", "to", "with"),
    }
)
"""Words that say nothing about what is looked for."""

_ENDINGS = (
    *("izations", "ization", "ations", "ation", "izing", "ising", "ings", "ing", "iers", "ier", "ies", "ied"),
    *("ers", "er", "ed", "es", "s", "e", "y"),
)

_SHORTEST_STEM = 3
_SHORTEST_BEGINNING = 4
"""Characters of a stem that counts as the beginning of another."""

_RELATED = (
    "verify check fact validate factual support hallucination",
    "summary summarize condense dense shorten digest",
    "improve refine revise polish rewrite edit correct criticise harden",
    "vote majority frequent consensus sample",
    "debate argue discuss panel moderator",
    "rank sort compare order prioritize",
    "long book large document chunk",
    "plan decompose outline skeleton step",
    "confidence calibrate certain uncertainty",
    "security attack red adversarial",
    "explore search tree bandit",
)
"""Words that whoever looks for a strategy uses for the same thing."""


def best_matches(texts: Mapping[str, str], search: str) -> list[str]:
    """The keys whose texts have the most of the words that are searched for, in the order of the mapping.

    All of them if nothing is searched for; none if no word is in any of them.
    """
    wanted = [_meanings(word) for word in _words(search)]
    if not wanted:
        return list(texts)
    scores = {}
    for key, text in texts.items():
        stems = {_stem(word) for word in _words(text)}
        scores[key] = sum(any(_is_same(stem, meaning) for stem in stems for meaning in each) for each in wanted)
    best = max(scores.values(), default=0)
    return [key for key, score in scores.items() if best and score == best]


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _PASSED_OVER]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


def _meanings(word: str) -> set[str]:
    """The stem of a word, and those of words that mean nearly the same."""
    stem = _stem(word)
    groups = ({_stem(each) for each in group.split()} for group in _RELATED)
    return {stem}.union(*(group for group in groups if any(_is_same(stem, each) for each in group)))


def _is_same(left: str, right: str) -> bool:
    if left == right:
        return True
    short, long = sorted((left, right), key=len)
    return len(short) >= _SHORTEST_BEGINNING and long.startswith(short)
