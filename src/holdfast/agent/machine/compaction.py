"""The window of a model: how full it is, when a conversation is summed up, and what of it is kept as it was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.core.values import Json, encode

MAX_RESERVE = 20_000
"""Tokens left free in a window for the next reply and its tools: as many as the longest usual replies take."""

KEEP_TOKENS = 8_000
"""Tokens of the latest messages that are kept as they were said: a few exchanges."""

IMAGE_TOKENS = 1_200
"""What a picture is counted as; services differ, and few count more."""

BYTES_PER_TOKEN = 4
"""Of usual text. Too many tokens are guessed for some languages, which sums up early rather than late."""

GAIN = 8
"""What was said since the last summary must be at least this part of the window (1/8) before there is another one:
where the rest of a request fills the window, summing up again and again would cost much and help little."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When and how a conversation is summed up."""

    auto: bool = True
    """Whether it is done before the window is full. Where it overflows nevertheless, it is done in any case."""
    reserve: int | None = None
    """Tokens to leave free; None: a fitting part of the window."""
    keep: int = KEEP_TOKENS
    """Tokens of the latest messages that are kept, at most: where that would be all of them, it is half."""
    instructions: str = ""
    """What whoever sums up is to heed."""


def threshold(window: int, compaction: Compaction) -> int:
    """How many tokens may be in a window before it is summed up."""
    reserve = compaction.reserve
    if reserve is None:
        reserve = MAX_RESERVE if window // 2 > MAX_RESERVE else window // 3
    return max(1, window - reserve)


class WindowUsage:
    """How full a window is: what the service counted in the last call, and what is guessed of all since."""

    def __init__(self) -> None:
        self.tokens = 0
        """All that the model is shown."""
        self._said = 0
        """What of it is the conversation, as it is guessed here."""
        self._base = 0
        """What that was when the window was fresh."""
        self._fixed: int | None = None
        """What of it is none: the system text, and the tools; None until a service has counted."""

    def began(self, tokens: int) -> None:
        """The conversation begins anew, with so many tokens."""
        self._said, self._base = tokens, 0
        self.tokens = tokens + (self._fixed or 0)

    def changed(self) -> None:
        """The model is another one, or is told other things: what was counted says little now."""
        self._fixed = None

    def said(self, tokens: int) -> None:
        """Something was said."""
        self._said += tokens
        self.tokens += tokens

    def counted(self, sent: int) -> None:
        """The service says how many tokens it was sent."""
        beyond = max(0, sent - self._said)
        # Guesses are too low for some texts, the more the longer they are; system text and tools do not grow.
        self._fixed = beyond if self._fixed is None else min(self._fixed, beyond)
        self.tokens = sent

    def opened(self, summary: int, keep: int) -> None:
        """A fresh window begins, with a summary and about so many tokens of what was said."""
        self._said = self._base = summary + min(keep, self._said)
        self.tokens = self._said + (self._fixed or 0)

    def is_full(self, window: int, compaction: Compaction) -> bool:
        """Whether the conversation is to be summed up, and that helps."""
        most = threshold(window, compaction)
        if self.tokens <= most or (self._fixed or 0) >= most:
            return False
        return self._said - self._base > most // GAIN

    def keep(self, window: int | None, compaction: Compaction) -> int:
        """How many tokens of the latest messages are kept: as was wished, but not more than half of the room."""
        if window is None:
            return compaction.keep
        return max(0, min(compaction.keep, (threshold(window, compaction) - (self._fixed or 0)) // 2))


def content_tokens(content: Iterable[ContentBlock]) -> int:
    """About how many tokens a message is."""
    return sum(map(_block_tokens, content))


def value_tokens(value: Json) -> int:
    """About how many tokens a value is, as a model is shown it."""
    size = len(value.encode(errors="replace")) if isinstance(value, str) else len(encode(value))
    return (size + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN


def _block_tokens(block: ContentBlock) -> int:
    match block:
        case ImageBlock():
            return IMAGE_TOKENS
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return value_tokens(text)
        case ToolUseBlock(input=given):
            return value_tokens(given)
        case _:
            return value_tokens(block.content)


def tail_start(messages: Sequence[AgentMessage], keep: int) -> int:
    """Where the latest messages begin that are kept: at most `keep` tokens of them, and half if that would be all.

    A tool's result is never without its call: the tail begins where all its results have theirs. What this gives is
    part of what a journal means, which has only `keep`: another rule needs another field in the record.
    """
    start = _tail_within(messages, keep)
    if start:
        return start
    return _tail_within(messages, sum(content_tokens(message.content) for message in messages) // 2)


def _tail_within(messages: Sequence[AgentMessage], keep: int) -> int:
    start, tokens = len(messages), 0
    without: Counter[str] = Counter()
    """Results in the tail whose calls are not, by the id of the call."""
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        tokens += content_tokens(message.content)
        if tokens > keep:
            break
        for block in reversed(message.content):
            if isinstance(block, ToolResultBlock):
                without[block.tool_use_id] += 1
            elif isinstance(block, ToolUseBlock) and without[block.id]:
                without[block.id] -= 1
        if message.role != "tool" and not any(without.values()):
            start = number
    return start
