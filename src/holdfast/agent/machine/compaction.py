"""Compaction: how full a model's window is, when a conversation is summed up, and which messages are kept verbatim."""

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
"""Tokens left free in a window for the next reply and its tools: as many as a long reply usually takes."""

KEEP_TOKENS = 8_000
"""Tokens of the latest messages that are kept verbatim: a few exchanges."""

IMAGE_TOKENS = 1_200
"""Tokens that an image is counted as. Services differ, and few count more."""

BYTES_PER_TOKEN = 4
"""Of usual text. For some languages the estimate is too high, so their conversations are summed up early, not late."""

GAIN = 8
"""What was said since the last summary must fill at least this fraction of the window (1/8) before the next summary:
if the rest of a request fills the window, repeated summaries would cost much and help little."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When and how a conversation is summed up."""

    auto: bool = True
    """Whether to do it before the window is full. If the window overflows, it is done in any case."""
    reserve: int | None = None
    """Tokens to leave free; if None, a suitable part of the window."""
    keep: int = KEEP_TOKENS
    """At most how many tokens of the latest messages are kept. If that would be all of them, half are kept."""
    instructions: str = ""
    """What the summary should pay attention to."""


def threshold(window: int, compaction: Compaction) -> int:
    """How many tokens may be in a window before the conversation is summed up."""
    reserve = compaction.reserve
    if reserve is None:
        reserve = MAX_RESERVE if window // 2 > MAX_RESERVE else window // 3
    return max(1, window - reserve)


class WindowUsage(msgspec.Struct):
    """How full a window is: what the service counted in the last call, plus an estimate of everything since."""

    tokens: int = 0
    """Tokens of everything that the model is shown."""
    _said: int = 0
    """The conversation's part of it, as estimated here."""
    _base: int = 0
    """What that part was when the window was fresh."""
    _fixed: int | None = None
    """The remaining part: the system text and the tools; None until a service has counted."""
    names_told: bool = False
    """Whether the model was told in this window which names its cells can read. What cells change is told as well."""

    def began(self, tokens: int) -> None:
        """The conversation begins anew, with this many tokens."""
        self._said, self._base, self.names_told = tokens, 0, False
        self.tokens = tokens + (self._fixed or 0)

    def changed(self) -> None:
        """The model, its system text or its tools changed: earlier counts say little now."""
        self._fixed, self.names_told = None, False

    def said(self, tokens: int) -> None:
        """Something was said."""
        self._said += tokens
        self.tokens += tokens

    def counted(self, sent: int) -> None:
        """The service says how many tokens it was sent."""
        beyond = max(0, sent - self._said)
        # Estimates are too low for some texts, increasingly so the longer they are; system text and tools do not grow.
        self._fixed = beyond if self._fixed is None else min(self._fixed, beyond)
        self.tokens = sent

    def opened(self, summary: int, keep: int) -> None:
        """A fresh window begins, with a summary and about `keep` tokens of the latest messages."""
        self._said = self._base = summary + min(keep, self._said)
        self.tokens, self.names_told = self._said + (self._fixed or 0), False

    def is_full(self, window: int, compaction: Compaction) -> bool:
        """Whether the conversation should be summed up, and doing so would help."""
        most = threshold(window, compaction)
        if self.tokens <= most or (self._fixed or 0) >= most:
            return False
        return self._said - self._base > most // GAIN

    def keep(self, window: int | None, compaction: Compaction) -> int:
        """How many tokens of the latest messages are kept: as configured, but no more than half of the room."""
        if window is None:
            return compaction.keep
        return max(0, min(compaction.keep, (threshold(window, compaction) - (self._fixed or 0)) // 2))


def content_tokens(content: Iterable[ContentBlock]) -> int:
    """About how many tokens a message takes."""
    tokens = 0
    for block in content:
        tokens += value_tokens(block.text) if type(block) is TextBlock else _block_tokens(block)
    return tokens


def value_tokens(value: Json) -> int:
    """About how many tokens a value takes when a model is shown it."""
    if not isinstance(value, str):
        size = len(encode(value))
    else:
        size = len(value) if value.isascii() else len(value.encode(errors="replace"))
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
    """The index at which the kept messages begin: at most `keep` tokens of the latest, or half if that would be all.

    A tool's result is never kept without its call: the tail begins where every result in it has its call. A journal
    records only `keep`, so this rule is part of what a journal means: another rule needs another field in the record.
    """
    start = _tail_within(messages, keep)
    if start:
        return start
    return _tail_within(messages, sum(content_tokens(message.content) for message in messages) // 2)


def _tail_within(messages: Sequence[AgentMessage], keep: int) -> int:
    start, tokens = len(messages), 0
    without: Counter[str] = Counter()
    """Results in the tail whose calls are not in it, by the id of the call."""
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
