"""`FoldedConversation`: what a checkpoint keeps of a conversation, beside its segments."""

from __future__ import annotations

from typing import Generic

import msgspec

from holdfast.agent.machine.archive import Part
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.tree import Frame
from holdfast.core.kinds import KindDecoder
from holdfast.core.queries import Usage
from holdfast.core.records import AskedQuery, any_query


class FoldedConversation(msgspec.Struct, Generic[AskedQuery], frozen=True, kw_only=True, omit_defaults=True):
    """All that is not in a segment, at a moment when no turn is under way. The fields are those of `Conversation`."""

    format: int
    position: int
    policy: Policy | None
    parent: str | None = None
    ended: str | None = None
    generation: int = 0
    input: str | None = None
    asked: list[AskedQuery] = []
    items: list[tuple[int, Item]] = []
    """The items of the inbox that are in no turn, each with the position at which it was accepted."""
    leaf: str | None = None
    frame: Frame
    summed: int | None = None
    segmented: int = 0
    in_segments: tuple[int, int]
    """How many nodes and turns are in the segments."""
    closed: tuple[int, int] = (0, 0)
    """How many nodes and turns were before the conversation last began anew."""
    gained: Part
    """The nodes and turns since the last segment."""
    background: dict[str, Usage] = {}


_decoder = KindDecoder(lambda: FoldedConversation[any_query()])  # type: ignore[misc]


def decode_folded_conversation(state: bytes) -> FoldedConversation:
    """What `Conversation.dump` returned. Raises `msgspec.MsgspecError` or `ValueError` if it cannot be read."""
    folded: FoldedConversation = _decoder.decode(state)
    return folded
