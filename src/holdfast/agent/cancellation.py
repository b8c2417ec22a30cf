"""Stops turns from any process: by turn, by item, or whichever turn is running."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.mailbox import StopMessage, WithdrawMessage
from holdfast.agent.machine.turn import StoppedOutcome, TurnOutcome
from holdfast.core.errors import HoldfastError
from holdfast.core.state import Session, State
from holdfast.store.session_rows import SessionFilter

if TYPE_CHECKING:
    from holdfast.agent.conversations import Conversations
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.engine.holdfast import Holdfast
    from holdfast.store.contract import Store

AGAIN_S = 1.0
"""Seconds after which a turn that has not stopped yet is told again."""

CancelState: TypeAlias = Literal["stopped", "not_begun", "withdrawn", "over", "idle", "not_found"]
"""The turn was stopped; it has not begun, and will end as soon as it begins; the item was removed from the inbox; the
turn or item had ended before; nothing was running; there is no such item, or no such turn in an ended session."""


class CancelRequest(msgspec.Struct, frozen=True):
    """Why something is cancelled, and by whom."""

    reason: str | None = None
    by: str | None = None


class StoreEngine(NamedTuple):
    """A store with an engine on it."""

    store: Store
    holdfast: Holdfast
    conversations: Conversations


class CancelReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a cancellation has done."""

    session_id: str
    state: CancelState
    turn: str | None = None
    item: str | None = None
    outcome: TurnOutcome | None = None
    """The outcome of the turn; if it was stopped, with who stopped it, when and why."""


async def cancel(
    mount: MountedStore | StoreEngine, session_id: str, turn: str | None, item: str | None, request: CancelRequest
) -> CancelReceipt:
    """Stop a turn or withdraw an item, and wait until that is durable."""
    if item is not None:
        return await _cancel_item(mount, session_id, item, request)
    session = await mount.holdfast.session(session_id)
    wanted = turn if turn is not None else agent_fold(session).turn
    if wanted is None:
        return CancelReceipt(session_id=session_id, state="idle")
    return await _cancel_turn(mount, session_id, wanted, request)


async def _cancel_item(
    mount: MountedStore | StoreEngine, session_id: str, item: str, request: CancelRequest
) -> CancelReceipt:
    state: CancelState = "over"
    while True:
        inbox = agent_fold(await mount.holdfast.session(session_id)).inbox
        known = inbox.accepted.get(item)
        if known is None:
            return CancelReceipt(session_id=session_id, state="not_found", item=item)
        if known.state == "cancelled":
            return CancelReceipt(session_id=session_id, state=state, item=item)
        if inbox.can_withdraw(item):
            await mount.holdfast.send(session_id, WithdrawMessage(item, request.reason, request.by))
            state = "withdrawn"
            continue
        assert known.turn is not None
        receipt = await _cancel_turn(mount, session_id, known.turn, request)
        return msgspec.structs.replace(receipt, item=item)


async def _cancel_turn(
    mount: MountedStore | StoreEngine, session_id: str, turn: str, request: CancelRequest
) -> CancelReceipt:
    has_asked = False
    with mount.holdfast.engine.watch(session_id) as changes:
        while True:
            session = await mount.holdfast.session(session_id)
            is_running = _is_running(session, turn)
            known = None if is_running else (await mount.conversations.get(session_id, fresh=True)).turns.get(turn)
            if known is not None and known.ended is not None:
                break
            if known is None and session.is_terminal:
                return CancelReceipt(session_id=session_id, state="not_found", turn=turn)
            if turn in agent_fold(session).stopped_ahead:
                return CancelReceipt(session_id=session_id, state="not_begun", turn=turn)
            message = StopMessage(turn, request.reason, request.by, ahead=known is None and not is_running)
            await mount.holdfast.send(session_id, message)
            has_asked = True
            if _is_running(await mount.holdfast.session(session_id), turn):
                await changes.changed(timeout=AGAIN_S)
    is_stopped = has_asked and isinstance(known.ended, StoppedOutcome) and known.ended.reason == "cancelled"
    if is_stopped:
        await _stop_children(mount, session_id, request)
    return CancelReceipt(
        session_id=session_id, state="stopped" if is_stopped else "over", turn=turn, outcome=known.ended
    )


def _is_running(session: Session, turn: str) -> bool:
    return agent_fold(session).turn == turn and not session.is_terminal


async def _stop_children(mount: MountedStore | StoreEngine, session_id: str, request: CancelRequest) -> None:
    """Stop the running turns of the session's children."""
    why = CancelRequest(f"the turn of its parent '{session_id}' was stopped: {request.reason}", request.by)
    where = SessionFilter(parent=session_id, states=[State.RUNNING, State.PAUSED])
    after: str | None = None
    while True:
        page = await mount.store.sessions(where, after=after)
        for row in page.rows:
            with contextlib.suppress(HoldfastError):
                child = await mount.holdfast.session(row.session_id)
                if agent_fold(child).task is not None:
                    await mount.holdfast.cancel(row.session_id, why.reason, by=why.by)  # and so those below it
                elif (running := agent_fold(child).turn) is not None:
                    await _cancel_turn(mount, row.session_id, running, why)
        if page.next is None:
            return
        after = page.next
