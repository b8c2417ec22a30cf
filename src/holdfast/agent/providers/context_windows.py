"""The context windows of common models, in tokens, by the beginning of their names.

The longest matching beginning counts. A window is only used to summarize conversations in time: if it is too large, the
service refuses the conversation, and it is summarized then.
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
    """The window of a model, or None if it is unknown. A path before the model's name is ignored."""
    name = model.rsplit("/", 1)[-1].lower()
    fitting = [begins for begins in windows if name.startswith(begins.lower()) or model == begins]
    return windows[max(fitting, key=len)] if fitting else None
