"""The inbox of an agent session: what was sent to it and waits for a turn, and the one rule by which it is taken.

Rules of this file
------------------
- Items wait in the order in which they were accepted. One that is to come later (`available_at`) is passed over until
  then, and does not hold up the others.
- Between turns: a command goes first, and alone. Else the first item decides: an exclusive one is taken alone; one that
  joins is taken with those right behind it that join, have the same delivery and the same merge key, up to a limit.
- Within a turn: commands wait for its end. The first other item must want to enter a turn that is under way; then the
  same holds for it. What has entered and was not yet shown to the model keeps others out.
- An item that has entered a turn which ends before the model was shown it goes back to its place.

The rule is a pure function, `claim`. Whoever keeps sessions, and wherever, it is this one that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.messages import ContentBlock
from holdfast.agent.machine.policy import Policy
from holdfast.core.values import Json, fingerprint

INBOX = "inbox"
"""What an agent waits for between turns that has something in its inbox; and who answers then."""

MAX_JOINED = 16
"""Items that one turn takes together: more than people type while they wait, and few enough to be answered at once."""

MAX_WAITING = 10_000
"""Items that may wait in one session. Whoever sends more has a receiver that is gone, and is told."""

Delivery: TypeAlias = Literal["after_turn", "boundary"]
"""When an item may be taken: once the current turn is over, or already at the next safe point of it."""

Slot: TypeAlias = Literal["exclusive", "join"]
"""Whether it has a turn of its own, or shares one with others like it."""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a host wants done between two turns."""

    name: str
    arguments: dict[str, Json] = {}


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was sent to a session."""

    id: str
    """The sender's own: the same id again is the same item."""
    content: list[ContentBlock] = []
    command: Command | None = None
    delivery: Delivery = "after_turn"
    slot: Slot = "exclusive"
    merge_key: str = ""
    """Items that join do so with those of the same key."""
    available_at: int = 0
    """Not to be taken before (unix ms)."""
    output: dict[str, Json] | None = None
    """JSON schema of the value that its turn is to come to; only with a turn of its own."""
    policy: Policy | None = None
    """In force from its turn on, where it is not the one before."""


def claim(waiting: Iterable[Item], now: int, *, in_turn: bool, limit: int = MAX_JOINED) -> list[Item]:
    """The items that are taken now, of those that wait, in their order; none if it is not the time."""
    ready = [item for item in waiting if item.available_at <= now]
    if not in_turn and (command := next((item for item in ready if item.command is not None), None)) is not None:
        return [command]
    ready = [item for item in ready if item.command is None]
    if not ready or (in_turn and ready[0].delivery != "boundary"):
        return []
    head = ready[0]
    if head.slot == "exclusive":
        return [head]
    taken: list[Item] = []
    for item in ready[: max(1, limit)]:
        if (item.slot, item.delivery, item.merge_key) != (head.slot, head.delivery, head.merge_key):
            break
        taken.append(item)
    return taken


ItemPhase: TypeAlias = Literal["waiting", "taken", "cancelled"]


class ItemCancellation(msgspec.Struct, frozen=True):
    """Who took an item out of an inbox, when and why."""

    at: int
    reason: str | None = None
    by: str | None = None


class ItemState(msgspec.Struct):
    """What a session remembers of an item: enough to recognise it, and to say what became of it."""

    fingerprint: bytes
    number: int
    """Its place among all items."""
    state: ItemPhase = "waiting"
    turn: str | None = None
    """The turn that took it."""
    cancelled: ItemCancellation | None = None


class Inbox:
    """The items of a session, folded from its journal."""

    def __init__(self) -> None:
        self.waiting: dict[str, Item] = {}
        """In the order in which they were accepted."""
        self.accepted: dict[str, ItemState] = {}
        self.unseen: dict[str, Item] = {}
        """Items that have entered the turn under way, and that the model has not been shown."""

    def add(self, item: Item) -> None:
        self.accepted[item.id] = ItemState(item_fingerprint(item), len(self.accepted))
        self.waiting[item.id] = item

    def take(self, ids: Sequence[str], turn: str) -> None:
        """Items are the input of a turn that begins."""
        for item_id in ids:
            if self.waiting.pop(item_id, None) is not None:
                self._settle(item_id, turn)

    def enter(self, ids: Sequence[str], turn: str) -> None:
        """Items enter a turn that is under way."""
        for item_id in ids:
            item = self.waiting.pop(item_id, None)
            if item is not None:
                self.unseen[item_id] = item
                self._settle(item_id, turn)

    def show(self) -> None:
        """The model is asked: it is shown what has entered."""
        self.unseen.clear()

    def turn_over(self) -> None:
        """What has entered and was not shown waits again, where it was."""
        if not self.unseen:
            return
        for item_id in self.unseen:
            known = self.accepted[item_id]
            known.state, known.turn = "waiting", None
        merged = {**self.waiting, **self.unseen}
        self.waiting = {name: merged[name] for name in sorted(merged, key=lambda each: self.accepted[each].number)}
        self.unseen = {}

    def can_withdraw(self, item_id: str) -> bool:
        """Whether an item can still be taken out: the model has not been shown it."""
        return item_id in self.waiting or item_id in self.unseen

    def cancel(self, item_id: str, evidence: ItemCancellation) -> None:
        if self.can_withdraw(item_id):
            self.waiting.pop(item_id, None)
            self.unseen.pop(item_id, None)
            known = self.accepted[item_id]
            known.state, known.turn, known.cancelled = "cancelled", None, evidence

    def cancel_all(self, evidence: ItemCancellation) -> None:
        """Nothing that waits will be worked any more."""
        self.turn_over()
        for item_id in list(self.waiting):
            self.cancel(item_id, evidence)

    def next_due(self) -> int | None:
        """When the first item may be taken, if all that wait are to come later, or were when they were sent."""
        return min((item.available_at for item in self.waiting.values()), default=0) or None

    def _settle(self, item_id: str, turn: str) -> None:
        known = self.accepted[item_id]
        known.state, known.turn = "taken", turn


def item_fingerprint(item: Item) -> bytes:
    """Equal exactly when two items say the same. When they may be taken, and under which policy, is not part of that:
    who sends one again works both out anew."""
    return fingerprint(msgspec.to_builtins(msgspec.structs.replace(item, available_at=0, policy=None)))
