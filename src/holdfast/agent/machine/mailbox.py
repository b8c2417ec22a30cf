"""What others may send to an agent: an item, requests to withdraw one or to stop a turn, a change of its policy, and
what a process of it has spent."""

from __future__ import annotations

from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.policy import PolicyChange
from holdfast.core.decide import KindMessage
from holdfast.core.queries import Usage


class EnqueueMessage(KindMessage, frozen=True, tag="enqueue"):
    """An item for an agent, which is worked on when its turn comes."""

    item: Item
    by: str | None = None


class WithdrawMessage(KindMessage, frozen=True, tag="withdraw"):
    """A request to withdraw an item. It has an effect as long as no turn has taken the item."""

    item_id: str
    reason: str | None = None
    by: str | None = None


class StopMessage(KindMessage, frozen=True, tag="stop"):
    """A request to stop a turn. If that turn is over, neither it nor a later one is affected."""

    turn: str
    reason: str | None = None
    by: str | None = None
    ahead: bool = False
    """Whether it is also for a turn that has not begun: that will end as soon as it begins."""


class ConfigureMessage(KindMessage, frozen=True, tag="configure"):
    """A change of the policy, from the next turn on. What it does not name stays."""

    change: PolicyChange
    by: str | None = None


class SpentMessage(KindMessage, frozen=True, tag="spent"):
    """What a process has spent on behalf of the agent. The same process again is the same report."""

    process: str
    usage: Usage


AGENT_MESSAGES: tuple[type[KindMessage], ...] = (
    EnqueueMessage,
    WithdrawMessage,
    StopMessage,
    ConfigureMessage,
    SpentMessage,
)
