"""How many tokens models take at once: what is known of common ones, by how their names begin.

The longest beginning that fits counts. It is only used to sum up conversations in time: a number that is too large is
found out by the service, which refuses, and the conversation is summed up then.
"""

from __future__ import annotations

from collections.abc import Mapping

KNOWN_WINDOWS: Mapping[str, int] = {
    "claude-": 200_000,
    "deepseek-": 128_000,
    "gemini-": 1_000_000,
    "gpt-3.5": 16_000,
    "gpt-4": 8_000,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_000_000,
    "gpt-5": 400_000,
    "llama-3": 8_000,
    "llama-3.": 128_000,
    "mistral-large": 128_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "qwen": 128_000,
}


def window_of(model: str, windows: Mapping[str, int] = KNOWN_WINDOWS) -> int | None:
    """The window of a model; None if nothing is known of it. A path before its name does not matter."""
    name = model.rsplit("/", 1)[-1].lower()
    fitting = [begins for begins in windows if name.startswith(begins.lower()) or model == begins]
    return windows[max(fitting, key=len)] if fitting else None
