"""The tree of a conversation: its nodes, the frames among them, the active leaf, and the window of the model there.

A frame is a fresh window. It begins with a task, or with a summary of what was said before, of which the latest
messages may be kept. A frame's node holds everything it was opened with, so the window at any node follows from the
tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic

import msgspec

from holdfast.agent.machine.compaction import tail_start
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from holdfast.agent.machine.archive import ArchivedNodes

    Payload_co = TypeVar("Payload_co", bound="AgentMessage | Frame", default="AgentMessage | Frame", covariant=True)
else:
    from typing import TypeVar

    Payload_co = TypeVar("Payload_co", covariant=True)


REMARKS = frozenset(("system", "signal"))
"""The roles of what the runtime remarks."""


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fresh window begins."""

    key: str
    reason: str
    task: str = ""
    """What the model is shown first, if the frame begins with a task."""
    summary: str = ""
    """What was said before, summed up."""
    kept: str | None = None
    """The first earlier message that stays in the window, with all after it; None if none stay."""
    asked: list[ContentBlock] = []
    """The input of the turn under way, verbatim, if it does not stay in the window."""


class Node(msgspec.Struct, Generic[Payload_co], frozen=True, array_like=True, gc=False):
    """A message or a frame, and the node it follows. There are many, and none can be part of a cycle."""

    id: str
    parent: str | None
    at: int
    payload: Payload_co


class Tree:
    """Everything that was said in a session, and its active leaf."""

    def __init__(self, nodes: ArchivedNodes) -> None:
        self.nodes = nodes
        self.leaf: str | None = None
        self._window: list[AgentMessage] | None = []
        """What the model is shown at the leaf; None if that has to be found in the tree."""
        self._has_remarks: bool | None = False
        """Whether there are remarks in the window; None if that has to be found out."""
        self.frame = NO_FRAME
        """The active frame."""
        self._opened_with = 0
        """How many messages of the window are not nodes, but what the frame began with."""
        self._summed: int | None = None
        """How many messages of the window are being summed up."""

    # --- growing -----------------------------------------------------------------------------------

    def append(self, node_id: str, at: int, message: AgentMessage) -> Node[AgentMessage]:
        """Add a message."""
        node = Node(node_id, self.leaf, at, message)
        self.nodes.add(node)
        self.leaf = node_id
        if self._window is not None:
            self._window.append(message)
        if message.role in REMARKS:
            self._has_remarks = True
        return node

    def begin_anew(self) -> None:
        """Give the next message a new root; earlier nodes stay."""
        self.leaf, self._window, self._opened_with, self.frame = None, [], 0, NO_FRAME
        self._has_remarks = False

    def open(self, node_id: str, at: int, frame: Frame) -> Node[Frame]:
        """Begin a frame."""
        begins = opening(frame)
        self._window, self._opened_with = [*begins, *self._since(frame.kept)], len(begins)
        self._has_remarks = None
        node = Node(node_id, self.leaf, at, frame)
        self.nodes.add(node)
        self.leaf, self.frame, self._summed = node_id, frame, None
        return node

    def sum_up(self, keep: int, turn: Sequence[AgentMessage] = ()) -> None:
        """Mark all but about `keep` tokens of the latest messages as being summed up. `turn` is as in `opened`."""
        said = self.window[self._opened_with :]
        start = tail_start(said, keep)
        given = {id(message) for message in turn if message.role == "user"}
        if all(id(message) in given for message in said[:start]):
            start = len(said)  # the turn's input is shown again anyway, so keeping it gains nothing
        self._summed = self._opened_with + start

    def opened(self, key: str, reason: str, summary: str, turn: Sequence[AgentMessage] = ()) -> Frame:
        """The frame that begins with the summary and keeps what was not summed up.

        `turn` holds the messages of the running turn. The model is shown the turn's input verbatim in any case.
        """
        left = len(self.window) - (len(self.window) if self._summed is None else self._summed)
        said = [node.id for node, _ in zip(self._messages_upwards(), range(left), strict=False)]
        gone = turn[: max(0, len(turn) - left)]
        asked = [block for message in gone if message.role == "user" for block in message.content]
        return Frame(key, reason, summary=summary, kept=said[-1] if said else None, asked=asked)

    def restore(self, leaf: str | None, frame: Frame, summed: int | None) -> None:
        """Continue at a leaf that is in the nodes already."""
        self.leaf, self.frame, self._summed = leaf, frame, summed
        self._window, self._opened_with, self._has_remarks = None, len(opening(frame)), None

    # --- reading -----------------------------------------------------------------------------------

    @property
    def window(self) -> list[AgentMessage]:
        """What the model is shown at the leaf."""
        if self._window is None:
            self._window = self.window_of(self.leaf)
        return self._window

    @property
    def has_remarks(self) -> bool:
        """Whether there are remarks of the runtime in the window."""
        if self._has_remarks is None:
            self._has_remarks = any(message.role in REMARKS for message in self.window)
        return self._has_remarks

    @property
    def being_summed(self) -> int | None:
        """How many messages of the window are being summed up, or None if none are."""
        return self._summed

    @property
    def summed(self) -> list[AgentMessage]:
        """The messages that are being summed up, without what the frame began with."""
        return self.window[self._opened_with : self._summed or 0]

    def path(self) -> list[Node]:
        """The nodes from the root to the leaf."""
        return [*self.upwards(self.leaf)][::-1]

    def upwards(self, leaf: str | None) -> Iterator[Node]:
        """The nodes from this one to its root."""
        while leaf is not None:
            node = self.nodes.here.get(leaf) or self.nodes[leaf]
            yield node
            leaf = node.parent

    def window_of(self, leaf: str | None) -> list[AgentMessage]:
        """What the model is shown at a node, computed from the tree."""
        said: list[AgentMessage] = []
        frame: Frame | None = None
        for node in self.upwards(leaf):
            if isinstance(node.payload, AgentMessage):
                said.append(node.payload)
            elif frame is None:
                frame = node.payload
            if frame is not None and frame.kept in (None, node.id):
                break
        return [*opening(frame or NO_FRAME), *reversed(said)]

    def _since(self, kept: str | None) -> list[AgentMessage]:
        """The messages from a node on."""
        said: list[AgentMessage] = []
        for node in self.upwards(self.leaf) if kept is not None else ():
            if isinstance(node.payload, AgentMessage):
                said.append(node.payload)
            if node.id == kept:
                break
        return said[::-1]

    def _messages_upwards(self) -> Iterator[Node]:
        return (node for node in self.upwards(self.leaf) if isinstance(node.payload, AgentMessage))


NO_FRAME = Frame("main", "initial")


def opening(frame: Frame) -> list[AgentMessage]:
    """What a fresh window begins with."""
    content: list[ContentBlock] = [TextBlock(frame.task)] if frame.task else []
    if frame.summary:
        content.append(TextBlock(f"{_REPLACED_BY_NOTES}\n\n<notes>\n{frame.summary}\n</notes>"))
    if frame.asked:
        content += [TextBlock(f"\n\n{_CURRENT_REQUEST}\n\n"), *frame.asked]
    return [AgentMessage("user", content)] if content else []


_REPLACED_BY_NOTES = "The earlier part of this conversation has been replaced by these notes:"

_CURRENT_REQUEST = "The request you are working on now, verbatim (the notes say what has been done about it so far):"
