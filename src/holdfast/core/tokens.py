"""Counting tokens: the estimate for text nobody counted, and how far a count can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

TokenSource: TypeAlias = Literal["estimated", "provided", "definite"]
"""From weakest to strongest. A sum is only as good as its weakest part; a sum of nothing is definite."""


def estimate_tokens(text: str) -> int:
    """A quarter of the ASCII characters plus two thirds of the others, each rounded up."""
    if text.isascii():
        return (len(text) + 3) // 4
    plain = len(text.encode("ascii", "ignore"))
    others = len(text) - plain
    return (plain + 3) // 4 + (2 * others + 2) // 3


def measure_text(text: str) -> tuple[int, int, int]:
    """Characters, UTF-8 bytes and estimated tokens of a text."""
    chars = len(text)
    if text.isascii():
        return chars, chars, (chars + 3) // 4
    return chars, len(text.encode("utf-8", "surrogatepass")), estimate_tokens(text)


@dataclass(slots=True)
class TokenCount:
    """A running sum of tokens that knows how many of its parts were only estimated."""

    tokens: int = 0
    estimated: int = 0
    provided: int = 0

    def add(self, tokens: int) -> None:
        """Count an estimate."""
        self.tokens += tokens
        self.estimated += 1

    def correct(self, estimate: int, tokens: int) -> None:
        """Replace an estimate with the count of whoever answered."""
        self.tokens += tokens - estimate
        self.estimated -= 1
        self.provided += 1

    @property
    def source(self) -> TokenSource:
        if self.estimated:
            return "estimated"
        return "provided" if self.provided else "definite"
