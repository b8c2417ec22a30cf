"""Messages of a transcript, in the JSON that fluers reads and writes: roles, content blocks, and the message itself.

A message has no id, no time and no usage; a tool's result travels as a message of its own, with the role `tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.values import Json

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "signal"]


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """Text, as said or written."""

    text: str


class ImageSource(msgspec.Struct, frozen=True):
    """A picture; its bytes are base64 on the wire."""

    media_type: str
    data: bytes


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    """A picture among the content."""

    image: ImageSource


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A model's call of a tool."""

    id: str
    name: str
    input: Json


class ToolResultBlock(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The result of the call with the id `tool_use_id`."""

    tool_use_id: str
    content: Json
    is_error: bool = False


class ReasoningBlock(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """A model's visible reasoning. fluers does not know this block, and is not sent it."""

    text: str
    signature: str | None = None
    """Some providers want this back with the text, to recognise it as their own."""


ContentBlock: TypeAlias = TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ReasoningBlock


def plain_text(content: Sequence[ContentBlock]) -> str | None:
    """The text of a content that is nothing else: the short form in which a journal keeps it. Otherwise None."""
    return content[0].text if len(content) == 1 and type(content[0]) is TextBlock else None


def with_content(value: Json) -> Json:
    """A stored value whose content may be a plain text, with its content as a list of blocks."""
    if type(value) is dict and type(text := value.get("content")) is str:
        return {**value, "content": [TextBlock(text)]}
    return value


class AgentMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message: who speaks, and what. Empty content is left out on the wire."""

    role: Role
    content: list[ContentBlock] = []

    @property
    def text(self) -> str:
        """Its text blocks, joined without anything between them."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))
