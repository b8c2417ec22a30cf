"""The records that agents add to the journal of a session: turns, refused calls, windows, what is sent to them, changes
of their policy, and what their processes have spent."""

from __future__ import annotations

from typing import Literal

from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.policy import PolicyChange
from holdfast.agent.machine.turn import CellOutcome, ToolCallOutcome, TurnOutcome
from holdfast.agent.rlm.variables import Bindings
from holdfast.core.queries import Usage
from holdfast.core.records import KindRecord


class TurnRecord(KindRecord, frozen=True, tag="turn"):
    """A turn ended other than with a message of the model. Such a message is itself the record of its turn's end."""

    outcome: TurnOutcome


class CallRecord(KindRecord, frozen=True, tag="call"):
    """A tool call got its result without running, because it was refused."""

    call_id: str
    done: ToolCallOutcome


class FrameRecord(KindRecord, frozen=True, tag="frame"):
    """A fresh window of the conversation begins, with the summary that was just asked for.

    The latest messages are kept verbatim; the query for the summary says how many.
    """

    key: str
    reason: Literal["threshold", "overflow", "manual"]
    summary: str


class LeavesRecord(KindRecord, frozen=True, tag="leaves"):
    """Values that a cell of an rlm agent has left, which would make the record of its end too long. That one follows,
    and refers to them."""

    values: dict[str, str]
    """The JSON of each, by the name of its variable."""


class BoundRecord(KindRecord, frozen=True, tag="bound"):
    """A cell of an rlm agent ended: what it left behind, and what the model is told. It is never run again."""

    cell: int
    """Its number in the turn, from 1."""
    bindings: Bindings = Bindings()
    remark: str = ""
    """The feedback, as the model reads it."""
    printed: str = ""
    """What it printed, if the feedback has only a part of that."""
    end: CellOutcome = CellOutcome()
    llm_calls: int = 0
    """Calls of models in all cells of the turn so far."""


class EnqueuedRecord(KindRecord, frozen=True, tag="enqueued"):
    """An item was sent to the agent, and waits in its inbox."""

    item: Item
    by: str | None = None


class JoinedRecord(KindRecord, frozen=True, tag="joined"):
    """Items of the inbox entered the running turn; the model is shown them when it is asked next."""

    turn: str
    items: list[str]


class DequeuedRecord(KindRecord, frozen=True, tag="dequeued"):
    """Somebody took an item out of the inbox before a turn did."""

    item_id: str
    reason: str | None = None
    by: str | None = None


class StopRecord(KindRecord, frozen=True, tag="stop"):
    """Somebody stopped the running turn; everything that it waited for failed with this.

    If it names another turn, that one had not begun, and will end as soon as it begins.
    """

    turn: str
    reason: str | None = None
    by: str | None = None


class ConfiguredRecord(KindRecord, frozen=True, tag="configured"):
    """Somebody changed the policy, from the next turn on."""

    change: PolicyChange
    by: str | None = None


class SpentRecord(KindRecord, frozen=True, tag="spent"):
    """A process of the agent is over, and has spent this."""

    process: str
    usage: Usage

    @property
    def background_usage(self) -> Usage:
        return self.usage


AGENT_RECORDS: tuple[type[KindRecord], ...] = (
    TurnRecord,
    CallRecord,
    FrameRecord,
    LeavesRecord,
    BoundRecord,
    EnqueuedRecord,
    JoinedRecord,
    DequeuedRecord,
    StopRecord,
    ConfiguredRecord,
    SpentRecord,
)
