"""`CellHost`: what a runtime has for the cells of its sessions: projections, and what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agent.conversations import read_conversation
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.rlm.projections import Projection
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.rlm.workers import CellEvent
    from holdfast.agent.runtime import Runtime


class CellHost:
    """The services of one store's sessions."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._runtime = runtime
        self._mount = mount

    def projections(self, session_id: str) -> dict[str, Projection]:
        """The projections that are bound here, by name."""
        return self._runtime.projections.get(session_id, {})

    async def publish(self, session_id: str, event: CellEvent) -> None:
        """Show an event to watchers."""
        taking = self._mount.live_events.take(session_id, event)
        if taking is not None:
            await taking

    async def history(self, session_id: str, position: int) -> list[Json]:
        """What was said before a position of the journal, the oldest first.

        The session itself is not asked: it waits for the cell.
        """
        conversation = self._mount.conversations.at_hand(session_id)
        if conversation is None or conversation.position < position - 1:
            conversation = await read_conversation(self._mount.store, session_id)
        return [
            {"role": node.payload.role, "text": node.payload.text}
            for node in conversation.path()
            if isinstance(node.payload, AgentMessage) and _position(node.id) < position
        ]


def _position(node_id: str) -> int:
    return int(node_id.removeprefix("n-").split(".", maxsplit=1)[0])
