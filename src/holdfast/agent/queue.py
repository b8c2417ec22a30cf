"""The inbox of a session from outside: builds and sends items, runs turns made of them, and reports on both."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import msgspec

from holdfast.agent.errors import UnknownItemError, UnknownPluginError
from holdfast.agent.inbox_drains import HandDrain, is_of_drain
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Command, Delivery, Item, ItemCancellation, Slot, claim
from holdfast.agent.machine.mailbox import EnqueueMessage
from holdfast.agent.result_type import ResultType
from holdfast.agent.results import TurnResult, result_of
from holdfast.agent.turn_builder import Input, content_of, content_with
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id, new_item_id
from holdfast.core.state import Session

OWNER_LOOK_S = 1.0
"""Seconds between two checks whether the process that runs a turn is still alive."""

if TYPE_CHECKING:
    from holdfast.agent.session import AgentSession

ItemStatus: TypeAlias = Literal["waiting", "running", "done", "cancelled"]
"""Where an item is: in the inbox, in a running turn, in a turn that is over, or removed from the inbox."""


class ItemReceipt(msgspec.Struct, frozen=True):
    """Proof that an item is durable."""

    session_id: str
    item_id: str
    replayed: bool = False
    """Whether it had been accepted before."""


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of an item so far."""

    item_id: str
    status: ItemStatus
    turn: str | None = None
    """The turn that took it."""
    cancelled: ItemCancellation | None = None
    """Who removed it from the inbox, when and why."""
    result: TurnResult | None = None
    """The result of that turn, once it is over."""

    @property
    def is_settled(self) -> bool:
        """Whether this will not change any more."""
        return self.status in ("done", "cancelled")


class EnqueueBuilder:
    """An item that has not been sent. Awaiting the builder sends it, and returns a receipt once it is durable."""

    def __init__(self, session: AgentSession, content: Input, command: Command | None = None) -> None:
        self._session = session
        self._input = content_of(content)
        self._command = command
        self._id: str | None = None
        self._delivery: Delivery = "after_turn"
        self._slot: Slot = "exclusive"
        self._merge_key = ""
        self._available_at = 0
        self._output: dict[str, Any] | None = None
        self._by: str | None = None
        self._plugin_inputs: dict[str, Any] = {}

    def id(self, item_id: str) -> Self:
        """Name the item. The same id with the same content is the same item; with other content, a conflict."""
        self._id = check_id(item_id, "item id")
        return self

    def delivery(self, delivery: Delivery) -> Self:
        """`after_turn` (the default): once the running turn is over; `boundary`: at its next safe point."""
        self._delivery = delivery
        return self

    def slot(self, slot: Slot, merge_key: str = "") -> Self:
        """`exclusive` (the default): a turn of its own; `join`: one turn with others of the same key."""
        self._slot, self._merge_key = slot, merge_key
        return self

    def available_at(self, at: float) -> Self:
        """Hold the item back until this time (unix seconds)."""
        self._available_at = round(at * 1000)
        return self

    def after(self, seconds: float) -> Self:
        """Hold the item back for this many seconds."""
        return self.available_at(self._session.mount.holdfast.now() / 1000 + seconds)

    def output(self, wanted: Any) -> Self:
        """Make its turn return a value of a type, as `TurnBuilder.output` does."""
        self._output = ResultType.of(wanted).schema
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        """Give a plugin of the session its input for the turn."""
        if plugin_id not in self._session.plugins:
            raise UnknownPluginError(plugin_id, self._session.session_id, list(self._session.plugins))
        self._plugin_inputs[plugin_id] = value
        return self

    def by(self, sender: str) -> Self:
        """Who sends it; recorded."""
        self._by = sender
        return self

    def __await__(self) -> Generator[Any, None, ItemReceipt]:
        return self.send().__await__()

    async def send(self) -> ItemReceipt:
        """Send it; the same as awaiting the builder."""
        session = self._session
        self._id = self._id or new_item_id(session.mount.holdfast.engine.owner.random.randbytes)
        await session.record_settings()
        item = await self._item(self._id)
        event = await session.mount.holdfast.send(session.session_id, EnqueueMessage(item, self._by))
        return ItemReceipt(session.session_id, self._id, event.replayed)

    async def _item(self, item_id: str) -> Item:
        session = self._session
        content = self._input
        if self._command is None:
            content = content_with(session.plugins, self._input, self._plugin_inputs, session.session_id)
        try:
            item = Item(
                id=item_id,
                content=content,
                command=self._command,
                delivery=self._delivery,
                slot=self._slot,
                merge_key=self._merge_key,
                available_at=self._available_at,
                output=self._output,
            )
            return msgspec.convert(msgspec.to_builtins(item), Item)
        except msgspec.ValidationError as error:
            raise InvalidValueError("item", str(error)) from None


class QueuedTurns:
    """Turns made of what waits in the inbox."""

    def __init__(self, session: AgentSession, only: Collection[str] | None, drain_id: str | None) -> None:
        self._session = session
        self._only = only
        self._drain_id = drain_id

    async def run(self, *, limit: int | None = None, wait: float | None = None) -> list[TurnResult]:
        """Run turns with the items that wait now, in this process; at most `limit` of them. Returns their results.

        Items that are held back stay in the inbox, and so does what another process works on.
        """
        session, mount = self._session, self._session.mount
        session.check_runs(await session.conversation())
        await session.record_settings()
        conversation = await session.conversation(fresh=True)
        if drained := self._drained(conversation):
            return drained
        before, drain = len(conversation.turns), HandDrain(limit, self._only, self._drain_id)
        async with asyncio.timeout(wait):
            with mount.holdfast.engine.watch(session.session_id) as changes, session.draining(drain):
                while True:
                    await mount.holdfast.resume(session.session_id, wait=0)
                    conversation = await session.conversation(fresh=True)
                    new = [turn for turn in conversation.turns.after(before) if turn.items]
                    waiting = [item for item in await session.queued_work() if drain.may_take(item.id)]
                    left = claim(waiting, mount.holdfast.now(), in_turn=False)
                    if conversation.running is None and (not left or (limit is not None and len(new) >= limit)):
                        return [result_of(turn, replayed=False) for turn in new]
                    await changes.changed(timeout=OWNER_LOOK_S)

    def _drained(self, conversation: Conversation) -> list[TurnResult]:
        """The results of the turns that this drain has begun before, if it has a name."""
        if self._drain_id is None:
            return []
        turns = [turn for turn in conversation.turns.values() if is_of_drain(turn.id, self._drain_id)]
        return [result_of(turn, replayed=True) for turn in turns if turn.ended is not None]


def outcome_of(session: Session, item_id: str) -> ItemOutcome:
    """What has become of an item, without the result of its turn. Raises `UnknownItemError`."""
    agent = agent_fold(session)
    known = agent.inbox.accepted.get(item_id)
    if known is None:
        raise UnknownItemError(session.id, item_id)
    if known.state == "cancelled":
        return ItemOutcome(item_id=item_id, status="cancelled", cancelled=known.cancelled)
    if known.state == "waiting":
        return ItemOutcome(item_id=item_id, status="waiting")
    is_under_way = known.turn == agent.turn and not session.is_terminal
    return ItemOutcome(item_id=item_id, status="running" if is_under_way else "done", turn=known.turn)
