"""The tree of a conversation: its nodes, the frames among them, the active leaf, and the window of the model there.

A frame is a fresh window. It begins with a task, or with a summary of what was said before; of that, the latest
messages may stay. What a frame was opened with is all in its node, so the window at any node follows from the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.agent.machine.compaction import tail_start
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fresh window begins."""

    key: str
    reason: str
    task: str = ""
    """What the model is shown first, where it is given a task."""
    summary: str = ""
    """What was said before, summed up."""
    kept: str | None = None
    """The node from which on the messages before stay in the window; None: none do."""
    asked: list[ContentBlock] = []
    """What the turn that was under way was given, word for word, where that does not stay in the window."""


class Node(msgspec.Struct, frozen=True):
    """One thing that was said, and what it was said after."""

    id: str
    parent: str | None
    at: int
    payload: AgentMessage | Frame


class Tree:
    """All that was said in a session, and where it stands."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.leaf: str | None = None
        self.window: list[AgentMessage] = []
        """What the model is shown at the leaf."""
        self.frame = NO_FRAME
        """The active frame."""
        self._opened_with = 0
        """How many messages of the window are no nodes: what the frame began with."""
        self._summed: int | None = None
        """How many messages of the window are being summed up."""

    # --- growing -----------------------------------------------------------------------------------

    def append(self, node_id: str, at: int, message: AgentMessage) -> None:
        """Something is said."""
        self._add(node_id, at, message)
        self.window.append(message)

    def begin_anew(self) -> None:
        """What is said next has a new root; the nodes before stay."""
        self.leaf, self.window, self._opened_with, self.frame = None, [], 0, NO_FRAME

    def open(self, node_id: str, at: int, frame: Frame) -> None:
        """A frame begins."""
        begins = opening(frame)
        self.window, self._opened_with = [*begins, *self._since(frame.kept)], len(begins)
        self._add(node_id, at, frame)
        self.frame, self._summed = frame, None

    def sum_up(self, keep: int, turn: Sequence[AgentMessage] = ()) -> None:
        """All but about so many tokens of the latest messages is about to be summed up. `turn` as for `opened`."""
        said = self.window[self._opened_with :]
        start = tail_start(said, keep)
        given = {id(message) for message in turn if message.role == "user"}
        if all(id(message) in given for message in said[:start]):
            start = len(said)  # what was asked for is shown again: nothing would be gained
        self._summed = self._opened_with + start

    def opened(self, key: str, reason: str, summary: str, turn: Sequence[AgentMessage] = ()) -> Frame:
        """The frame that begins with the summary: what was not summed up stays. `turn` is what the running turn said.

        Whatever is summed up of it, the model is shown what the turn was asked for as it was asked.
        """
        left = len(self.window) - (len(self.window) if self._summed is None else self._summed)
        said = [node.id for node, _ in zip(self._messages_upwards(), range(left), strict=False)]
        gone = turn[: max(0, len(turn) - left)]
        asked = [block for message in gone if message.role == "user" for block in message.content]
        return Frame(key, reason, summary=summary, kept=said[-1] if said else None, asked=asked)

    def _add(self, node_id: str, at: int, payload: AgentMessage | Frame) -> None:
        self.nodes[node_id] = Node(node_id, self.leaf, at, payload)
        self.leaf = node_id

    # --- reading -----------------------------------------------------------------------------------

    @property
    def summed(self) -> list[AgentMessage]:
        """The messages that are being summed up, without what the frame began with."""
        return self.window[self._opened_with : self._summed or 0]

    def path(self) -> list[Node]:
        """The nodes from the root to the leaf."""
        return [*self.upwards(self.leaf)][::-1]

    def upwards(self, leaf: str | None) -> Iterator[Node]:
        """The nodes from one to its root."""
        while leaf is not None:
            node = self.nodes[leaf]
            yield node
            leaf = node.parent

    def window_of(self, leaf: str | None) -> list[AgentMessage]:
        """What the model is shown at a node: worked out from the tree, for any node of it."""
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
        content.append(TextBlock(f"{_PUT_AWAY}\n\n<notes>\n{frame.summary}\n</notes>"))
    if frame.asked:
        content += [TextBlock(f"\n\n{_ASKED}\n\n"), *frame.asked]
    return [AgentMessage("user", content)] if content else []


_PUT_AWAY = "What was said before in this conversation has been put away. These are the notes about it:"

_ASKED = "What is being worked on now was asked in these words; what was done about it so far is in the notes:"
