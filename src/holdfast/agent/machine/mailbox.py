"""What others may send to an agent: an item for its inbox, and the wish to withdraw one or to stop a turn."""

from __future__ import annotations

from holdfast.agent.machine.inbox import Item
from holdfast.core.decide import KindMessage


class EnqueueMessage(KindMessage, frozen=True, tag="enqueue"):
    """An item for an agent, to be worked when its turn comes."""

    item: Item
    by: str | None = None


class WithdrawMessage(KindMessage, frozen=True, tag="withdraw"):
    """The wish that an item is not worked. It counts as long as no turn has taken the item."""

    item_id: str
    reason: str | None = None
    by: str | None = None


class StopMessage(KindMessage, frozen=True, tag="stop"):
    """The wish that a turn ends. A turn that is over is not affected, nor is the one after it."""

    turn: str
    reason: str | None = None
    by: str | None = None


AGENT_MESSAGES: tuple[type[KindMessage], ...] = (EnqueueMessage, WithdrawMessage, StopMessage)
