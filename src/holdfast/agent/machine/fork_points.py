"""Where an agent can be forked beyond its pauses: before a turn's input, and after anything that was said.

Before a turn's input the fork waits for that input, which may then be another one. After what a model or a tool said,
the fork continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import AgentMessage, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.tree import Frame, Node
from holdfast.core.fork_points import ForkPoints
from holdfast.core.records import Entry
from holdfast.core.values import encode


class AgentForkPoints:
    """Follows the conversation of a session, and places its turns and nodes."""

    def __init__(self, session_id: str) -> None:
        self._conversation = Conversation(session_id)
        self._unplaced: list[Node] = []
        """Nodes after which there was no sound place to fork yet."""

    def follow(self, points: ForkPoints, entry: Entry, before: int) -> None:
        conversation = self._conversation
        known = len(conversation.nodes)
        conversation.apply(entry)
        added = conversation.nodes.after(known)
        turn = conversation.running
        if turn is not None and turn.position == entry.position:
            points.add(before, "turn", turn.id, AgentMessage("user", turn.content).text)
            _add_nodes(points, added, before)
        elif points.is_ended:  # nothing can follow the end itself, so they are placed before it
            _add_nodes(points, [*self._unplaced, *added], before)
            self._unplaced = []
        else:
            self._unplaced += added
            if points.sound == entry.position:
                _add_nodes(points, self._unplaced, entry.position)
                self._unplaced = []


def _add_nodes(points: ForkPoints, nodes: Iterable[Node], position: int) -> None:
    for node in nodes:
        points.add(position, "node", node.id, _node_text(node))


def _node_text(node: Node) -> str:
    match node.payload:
        case AgentMessage(role=role):
            return f"{role}: {message_text(node.payload)}"
        case Frame(reason=reason, task=task, summary=summary):
            opening = task or summary
            return f"a new window ({reason})" + (f": {opening}" if opening else "")
        case _:
            assert_never(node.payload)


def message_text(message: AgentMessage) -> str:
    """Everything a message says, as text: its words, its calls and its results."""
    parts = [message.text] if message.text else []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            parts.append(f"calls {block.name} {encode(block.input).decode()}")
        elif isinstance(block, ToolResultBlock):
            parts.append(block.content if isinstance(block.content, str) else encode(block.content).decode())
    return "\n".join(parts)
