"""What the tests of checkpoints of conversations share: folding a journal with and without them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from holdfast.agent.machine.conversation import Conversation
from holdfast.core.records import Entry


def folded(entries: Sequence[Entry], *, keep_all: bool = True) -> Conversation:
    """The conversation of a journal."""
    conversation = Conversation("s-1", keep_all=keep_all)
    for entry in entries:
        conversation.apply(entry)
    return conversation


def description(conversation: Conversation) -> dict[str, Any]:
    """All that can be seen of a conversation. The window comes first, and the rest is decoded after that."""
    return {
        "counts": (len(conversation.nodes), len(conversation.turns)),
        "window": list(conversation.window),
        "frame": conversation.tree.frame,
        "summed": conversation.tree.summed,
        "path": conversation.path(),
        "turn ids": list(conversation.turns),
        "latest": [turn.id for turn in conversation.turns.backwards()],
        "nodes": list(conversation.nodes.items()),
        "turns": list(conversation.turns.items()),
        "messages": conversation.messages,
        "running": conversation.running,
        "queue": list(conversation.queue.items()),
        "asked": conversation.asked,
        "state": (
            conversation.session_id,
            conversation.position,
            conversation.policy,
            conversation.parent,
            conversation.ended,
            conversation.generation,
            conversation.input,
            conversation.leaf,
        ),
    }


class SegmentedConversation:
    """A conversation that is put into segments again and again while a journal is folded, and dropped and restored."""

    def __init__(self, *, every: int, keep_all: bool, is_dropped: bool) -> None:
        self.conversation = Conversation("s-1", keep_all=keep_all)
        self.segments: list[bytes] = []
        self._every = every
        self._keep_all = keep_all
        self._is_dropped = is_dropped

    def apply(self, entry: Entry) -> None:
        self.conversation.apply(entry)
        if entry.position % self._every == 0 and (segment := self.conversation.segment()) is not None:
            assert segment.position == entry.position
            self.segments.append(segment.data)
        state = self.conversation.dump()
        assert (state is None) == (self.conversation.running is not None)
        if state is not None:
            restored = Conversation.restore("s-1", state, self.segments, keep_all=self._keep_all)
            assert restored is not None
            if self._is_dropped:
                self.conversation = restored


def check_segments(entries: Sequence[Entry]) -> None:
    """However a journal is cut into segments, the conversation in them is that of the journal."""
    for keep_all in (True, False):
        expected = description(folded(entries, keep_all=keep_all))
        for every, is_dropped in product((1, 4, 15, 1_000), (True, False)):
            segmented = SegmentedConversation(every=every, keep_all=keep_all, is_dropped=is_dropped)
            for entry in entries:
                segmented.apply(entry)
            found = description(segmented.conversation)
            for what, value in expected.items():
                assert found[what] == value, (what, every, keep_all, is_dropped)
