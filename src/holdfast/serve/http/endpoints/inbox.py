"""Endpoints about the inbox of an agent's session: send items, and learn what became of them."""

from __future__ import annotations

import contextlib

import msgspec

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import Delivery, Item, Slot
from holdfast.agent.machine.messages import ContentBlock, plain_text
from holdfast.agent.machine.records import EnqueuedRecord
from holdfast.agent.queue import ItemOutcome, outcome_of
from holdfast.agent.results import TurnResult
from holdfast.client.reports import PastItem, PastItemsPage
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    RequestBody,
    WaitParameters,
    checked_wait,
)
from holdfast.serve.http.endpoints.agents import opened
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import MAX_WAIT_S, PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path
from holdfast.store.contract import Store

endpoints = Endpoints()


class CommandCall(RequestBody, frozen=True, kw_only=True):
    """A command with its arguments."""

    name: str
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)


class ItemBody(RequestBody, frozen=True, kw_only=True):
    """What to put into the inbox, and when and how it becomes a turn."""

    input: str | list[ContentBlock] | None = None
    command: CommandCall | None = None
    id: str | None = None
    """The id of the item. The same id with the same content is the same item."""
    delivery: Delivery = "after_turn"
    slot: Slot = "exclusive"
    merge_key: str = ""
    after_s: float | None = None
    available_at: float | None = None
    output: dict[str, Json] | None = None
    plugin_inputs: dict[str, Json] = msgspec.field(default_factory=dict)


class ItemReport(msgspec.Struct, frozen=True):
    """An item that is durable."""

    session_id: str
    item_id: str
    cursor: str
    """From before the item: whoever follows the session from here misses nothing of it."""
    events_url: str
    replayed: bool = False


class PastItemsParameters(Parameters, frozen=True, kw_only=True):
    """Which items to list: those that were sent last, or before another one."""

    before: int | None = None
    """The position of an item; those before it are listed."""
    limit: int = PAGE_ROWS


class WithdrawParameters(Parameters, frozen=True, kw_only=True):
    """What may be cancelled."""

    only_waiting: bool = False
    """Leave a turn alone that has taken the item."""
    reason: str | None = None


class DrainBody(RequestBody, frozen=True, kw_only=True):
    """How many turns to run."""

    limit: int = 1
    wait_s: float = MAX_WAIT_S


@endpoints.add(
    "POST",
    "/sessions/{session_id}/items",
    "agents:run",
    body=ItemBody,
    reply=ItemReport,
    status=202,
    body_bytes=VALUE_BODY_BYTES,
)
async def send_item(call: ApiCall[NoParameters, ItemBody]) -> JsonReply:
    """Send an input or a command to the inbox of a session. Whoever works on the inbox makes a turn of it."""
    body = call.body
    session = await opened(call)
    if (body.input is None) == (body.command is None):
        raise InvalidValueError("body", "give an `input`, or a `command`")
    if body.command is not None:
        builder = session.enqueue_command(body.command.name, **body.command.arguments)
    else:
        assert body.input is not None
        builder = session.enqueue(body.input)
    key = call.headers.get("idempotency-key")
    if (item_id := body.id or derived_id("i-", call.principal, f"item {session.session_id}", key)) is not None:
        builder = builder.id(item_id)
    builder = builder.delivery(body.delivery).slot(body.slot, body.merge_key).by(call.principal.name)
    if body.available_at is not None:
        builder = builder.available_at(body.available_at)
    elif body.after_s is not None:
        builder = builder.after(body.after_s)
    if body.output is not None:
        builder = builder.output(body.output)
    for plugin, value in body.plugin_inputs.items():
        builder = builder.plugin_input(plugin, value)
    cursor = (await session.observe().current()).cursor
    receipt = await builder
    at = session_path(session.session_id)
    report = ItemReport(session.session_id, receipt.item_id, cursor, f"{at}/events?after={cursor}", receipt.replayed)
    headers = {"location": f"{at}/items/{receipt.item_id}"}
    if receipt.replayed:
        headers["idempotency-replayed"] = "true"
    return JsonReply(report, 200 if receipt.replayed else None, headers)


@endpoints.add("GET", "/sessions/{session_id}/items", "sessions:read", reply=list[Item])
async def list_items(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List what waits in the inbox of a session, in order."""
    return JsonReply(await (await opened(call)).queued_work())


@endpoints.add(
    "GET", "/sessions/{session_id}/past-items", "sessions:read", query=PastItemsParameters, reply=PastItemsPage
)
async def list_past_items(call: ApiCall[PastItemsParameters, None]) -> JsonReply:
    """List what has left the inbox of a session: taken by turns, or withdrawn. The latest that was sent comes first."""
    limit, before = checked_limit(call.query.limit), call.query.before
    session = await call.door.holdfast.session(call.session_id)
    accepted = agent_fold(session).inbox.accepted
    left = [(id, known) for id, known in reversed(accepted.items()) if known.state != "waiting"]
    wanted = [each for each in left if before is None or each[1].position < before][: limit + 1]
    rows = [await _past_item(call.door.store, session, id, known.position) for id, known in wanted[:limit]]
    return JsonReply(PastItemsPage(rows, rows[-1].position if len(wanted) > limit else None))


async def _past_item(store: Store, session: Session, item_id: str, position: int) -> PastItem:
    outcome = outcome_of(session, item_id)
    (entry,) = await store.read(session.id, position - 1, 1)
    assert isinstance(entry.record, EnqueuedRecord)
    item = entry.record.item
    text = f"/{item.command.name}" if item.command is not None else plain_text(item.content) or ""
    return PastItem(
        id=item_id,
        position=position,
        at=entry.at,
        text=text[:PROMPT_PREVIEW_CHARS],
        status=outcome.status,
        turn=outcome.turn,
        cancelled=outcome.cancelled,
    )


@endpoints.add(
    "GET", "/sessions/{session_id}/items/{item_id}", "sessions:read", query=WaitParameters, reply=ItemOutcome
)
async def show_item(call: ApiCall[WaitParameters, None]) -> JsonReply:
    """Show what has become of an item, waiting for its end if asked to."""
    session, item_id = await opened(call), call.path["item_id"]
    wait_s = checked_wait(call.query.wait_s)
    if wait_s:
        with contextlib.suppress(TimeoutError):
            return JsonReply(await session.wait_for(item_id, timeout=wait_s))
    return JsonReply(await session.outcome(item_id))


@endpoints.add(
    "DELETE", "/sessions/{session_id}/items/{item_id}", "agents:run", query=WithdrawParameters, reply=ItemOutcome
)
async def cancel_item(call: ApiCall[WithdrawParameters, None]) -> JsonReply:
    """Remove an item from the inbox; if a turn has taken it, stop the turn, unless told otherwise."""
    session, item_id, query, by = await opened(call), call.path["item_id"], call.query, call.principal.name
    if query.only_waiting:
        return JsonReply(await session.cancel_queued_work(item_id, query.reason, by=by))
    await session.outcome(item_id)  # raises if there is no such item
    await session.cancel(item=item_id, reason=query.reason, by=by)
    return JsonReply(await session.outcome(item_id))


@endpoints.add("POST", "/sessions/{session_id}/drain", "agents:run", body=DrainBody, reply=list[TurnResult])
async def drain_inbox(call: ApiCall[NoParameters, DrainBody]) -> JsonReply:
    """Run turns with what waits in the inbox, here: for servers beside which no worker runs."""
    session = await opened(call)
    drain_id = derived_id("d-", call.principal, f"drain {session.session_id}", call.headers.get("idempotency-key"))
    queued = session.queued_turn(drain_id=drain_id)
    results: list[TurnResult] = []
    with contextlib.suppress(TimeoutError):  # a turn that has begun goes on
        results = await queued.run(limit=call.body.limit, wait=checked_wait(call.body.wait_s))
    return JsonReply(results)
