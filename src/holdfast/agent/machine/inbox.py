"""The inbox of an agent session: what was sent to it and waits for a turn, and the one rule by which turns take it.

Rules of this file
------------------
- Items wait in the order in which they were accepted. One that is due later (`available_at`) is skipped until then, and
  does not hold up the others.
- Between turns, a command goes first, and alone. Otherwise the first item decides: an exclusive one is taken alone; one
  that joins is taken with those right behind it that also join and have the same delivery and merge key, up to a limit.
- Within a turn, commands wait for its end. If the first other item may enter a turn under way (`boundary`), the same
  rule applies to it. Items that entered but were not yet shown to the model keep others out.
- If a turn ends before the model was shown an item that entered it, the item goes back to its place.

The rule is a pure function, `claim`, and every store and process uses this one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.messages import ContentBlock
from holdfast.core.values import Json, fingerprint

INBOX = "inbox"
"""What an agent with something in its inbox waits for between turns; also the name of who answers then."""

MAX_JOINED = 16
"""Items that one turn takes together: more than people type while they wait, and few enough to be answered at once."""

MAX_WAITING = 10_000
"""Items that may wait in one session. If there are more, nobody is taking them, and the sender gets an error."""

Delivery: TypeAlias = Literal["after_turn", "boundary"]
"""When an item may be taken: once the current turn is over, or at that turn's next safe point."""

Slot: TypeAlias = Literal["exclusive", "join"]
"""Whether it has a turn of its own, or shares one with others like it."""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that the host wants done between two turns."""

    name: str
    arguments: dict[str, Json] = {}


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was sent to a session."""

    id: str
    """Chosen by the sender: the same id again is the same item."""
    content: list[ContentBlock] = []
    command: Command | None = None
    delivery: Delivery = "after_turn"
    slot: Slot = "exclusive"
    merge_key: str = ""
    """Items join only others with the same key."""
    available_at: int = 0
    """When it may be taken at the earliest (unix ms)."""
    output: dict[str, Json] | None = None
    """JSON schema of the value that its turn must end with; only for a turn of its own."""


def claim(
    waiting: Collection[Item], now: int, *, in_turn: bool, has_commands: bool = True, limit: int = MAX_JOINED
) -> list[Item]:
    """Which of the waiting items are taken now, in their order; empty if none can be.

    It looks no further than it takes, unless there may be commands among them (`has_commands`): those come first.
    """
    if has_commands and not in_turn:
        for item in waiting:
            if item.command is not None and item.available_at <= now:
                return [item]
    head: Item | None = None
    taken: list[Item] = []
    for item in waiting:
        if item.available_at > now or item.command is not None:
            continue
        if head is None:
            if in_turn and item.delivery != "boundary":
                return []
            if item.slot == "exclusive":
                return [item]
            head = item
        elif len(taken) >= limit or (item.slot, item.delivery, item.merge_key) != (
            head.slot,
            head.delivery,
            head.merge_key,
        ):
            break
        taken.append(item)
    return taken


ItemPhase: TypeAlias = Literal["waiting", "taken", "cancelled"]


class ItemCancellation(msgspec.Struct, frozen=True):
    """Who took an item out of an inbox, when and why."""

    at: int
    reason: str | None = None
    by: str | None = None


class ItemState(msgspec.Struct, omit_defaults=True):
    """What a session remembers of an item: where it was accepted, and what happened to it."""

    position: int
    """The position of its record."""
    state: ItemPhase = "waiting"
    turn: str | None = None
    """The turn that took it."""
    cancelled: ItemCancellation | None = None


class Inbox(msgspec.Struct):
    """The items of a session, folded from its journal."""

    waiting: dict[str, Item] = {}
    """In the order in which they were accepted."""
    accepted: dict[str, ItemState] = {}
    unseen: dict[str, Item] = {}
    """Items that entered the turn under way, and that the model has not been shown yet."""
    commands: int = 0
    """How many of those that wait are commands."""

    def __post_init__(self) -> None:
        self.commands = sum(item.command is not None for item in self.waiting.values())

    def claim(self, now: int, *, in_turn: bool, only: Collection[str] | None = None) -> list[Item]:
        """Which items are taken now, in their order: of all, or of those with the ids `only`."""
        waiting = (
            self.waiting.values() if only is None else [self.waiting[each] for each in self.waiting if each in only]
        )
        return claim(waiting, now, in_turn=in_turn, has_commands=self.commands > 0)

    def add(self, item: Item, position: int) -> None:
        self.accepted[item.id] = ItemState(position)
        self.waiting[item.id] = item
        self.commands += item.command is not None

    def take(self, ids: Sequence[str], turn: str) -> None:
        """A turn begins with these items as its input."""
        for item_id in ids:
            if self._remove(item_id) is not None:
                self._settle(item_id, turn)

    def enter(self, ids: Sequence[str], turn: str) -> None:
        """These items enter a turn that is under way."""
        for item_id in ids:
            item = self._remove(item_id)
            if item is not None:
                self.unseen[item_id] = item
                self._settle(item_id, turn)

    def turn_over(self) -> None:
        """What entered but was not shown waits again, at its old place."""
        for item_id in self.unseen:
            known = self.accepted[item_id]
            known.state, known.turn = "waiting", None
        merged = {**self.waiting, **self.unseen}
        self.waiting = {name: merged[name] for name in sorted(merged, key=lambda each: self.accepted[each].position)}
        self.unseen = {}

    def can_withdraw(self, item_id: str) -> bool:
        """Whether an item can still be taken out, because the model has not been shown it."""
        return item_id in self.waiting or item_id in self.unseen

    def cancel(self, item_id: str, evidence: ItemCancellation) -> None:
        if self.can_withdraw(item_id):
            self._remove(item_id)
            self.unseen.pop(item_id, None)
            known = self.accepted[item_id]
            known.state, known.turn, known.cancelled = "cancelled", None, evidence

    def cancel_all(self, evidence: ItemCancellation) -> None:
        """Cancel everything that waits."""
        self.turn_over()
        for item_id in list(self.waiting):
            self.cancel(item_id, evidence)

    def next_due(self) -> int | None:
        """When the first of the items that wait may be taken; None if that is at any time."""
        first: int | None = None
        for item in self.waiting.values():
            if not item.available_at:
                return None
            first = item.available_at if first is None else min(first, item.available_at)
        return first

    def _remove(self, item_id: str) -> Item | None:
        item = self.waiting.pop(item_id, None)
        if item is not None and item.command is not None:
            self.commands -= 1
        return item

    def _settle(self, item_id: str, turn: str) -> None:
        known = self.accepted[item_id]
        known.state, known.turn = "taken", turn


def is_same_item(first: Item, second: Item) -> bool:
    """Whether two items say the same. When they may be taken does not count: a sender that tries again computes that
    anew."""
    return _content_fingerprint(first) == _content_fingerprint(second)


def _content_fingerprint(item: Item) -> bytes:
    return fingerprint(msgspec.to_builtins(msgspec.structs.replace(item, available_at=0)))
