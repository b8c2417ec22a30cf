"""`enqueue` and `queue`: send something to an agent, to be worked by a worker, and see what became of it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.agent.machine.messages import TextBlock
from holdfast.cli.lookup import SessionType, engine, find_session, opened
from holdfast.cli.options import common, read_stdin, settings
from holdfast.cli.output import ago, date, one_line, print_json, print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.machine.inbox import Item
    from holdfast.agent.queue import ItemOutcome

BY = "cli"
"""Who sent it, in the journal."""


# --- enqueue -----------------------------------------------------------------------------------------


@click.command("enqueue")
@click.argument("session", type=SessionType())
@click.argument("text")
@click.option("--id", "item_id", metavar="ID", help="The id of the item: the same again is the same item.")
@click.option("--boundary", is_flag=True, help="Let it enter the turn that is under way, at the next safe point.")
@click.option("--join", is_flag=True, help="Let it share a turn with others that do.")
@click.option("--after", type=click.FloatRange(min=0), metavar="SECONDS", help="Not to be taken before that.")
@common()
def enqueue_command(
    *, session: str, text: str, item_id: str | None, boundary: bool, join: bool, after: float | None
) -> int:
    """Send TEXT to an agent session, to be worked when its turn comes; - reads it from standard input.

    A `holdfast worker` on the same store works it. `holdfast queue SESSION` shows what became of it.
    """
    from holdfast.agent.machine.inbox import Item
    from holdfast.agent.machine.mailbox import EnqueueMessage
    from holdfast.core.ids import check_id, new_item_id

    item = Item(
        id=check_id(item_id, "item id") if item_id is not None else new_item_id(),
        content=[TextBlock(read_stdin("the text") if text == "-" else text)],
        delivery="boundary" if boundary else "after_turn",
        slot="join" if join else "exclusive",
        available_at=round((time.time() + after) * 1000) if after is not None else 0,
    )

    async def send() -> tuple[str, bool]:
        async with engine() as hf:
            session_id = await find_session(hf.store, session)
            return session_id, (await hf.send(session_id, EnqueueMessage(item, BY))).replayed

    session_id, replayed = asyncio.run(send())
    if settings().json:
        print_json({"session_id": session_id, "item_id": item.id, "replayed": replayed})
    else:
        again = " (it was sent before)" if replayed else ""
        click.echo(f"sent {item.id} to {session_id}{again}; see `holdfast queue {session_id}`")
    return ExitCode.OK


# --- queue -------------------------------------------------------------------------------------------


@click.command("queue")
@click.argument("session", type=SessionType())
@click.option("--all", "show_all", is_flag=True, help="Also what was settled long ago.")
@common()
def queue_command(*, session: str, show_all: bool) -> int:
    """Show what was sent to an agent session: what waits, what is worked on, and what became of the rest."""
    shown = asyncio.run(_found(session))
    if not show_all:
        settled = [outcome for _, outcome in shown if outcome.is_settled][-RECENT:]
        shown = [(item, outcome) for item, outcome in shown if not outcome.is_settled or outcome in settled]
    if settings().json:
        for item, outcome in shown:
            print_json(_as_json(item, outcome))
    elif not shown:
        click.echo("Nothing was sent to it.")
    else:
        print_table(["item", "state", "what"], [_row(item, outcome) for item, outcome in shown], states=1)
    return ExitCode.OK


RECENT = 20
"""Settled items that are shown if not all are asked for."""


async def _found(given: str) -> list[tuple[Item, ItemOutcome]]:
    """All items of a session with what became of them, in the order in which they were sent."""
    from holdfast.agent.conversation_cache import ConversationCache
    from holdfast.agent.machine.fold import agent_fold
    from holdfast.agent.machine.records import EnqueuedRecord
    from holdfast.agent.queue import outcome_of
    from holdfast.agent.results import result_of

    async with opened() as store:
        session_id = await find_session(store, given)
        items = [
            entry.record.item async for entry in store.journal(session_id) if isinstance(entry.record, EnqueuedRecord)
        ]
        session = await store.load(session_id)
        conversation = await ConversationCache(store).get(session_id)
    accepted = agent_fold(session).inbox.accepted
    found = []
    for item in items:
        if item.id not in accepted:
            continue  # of a session that this one is a fork of, and sent to that after they parted
        outcome = outcome_of(session, item.id)
        if outcome.status == "done" and outcome.turn is not None:
            result = result_of(conversation, conversation.turns[outcome.turn], replayed=True)
            outcome = msgspec.structs.replace(outcome, result=result)
        found.append((item, outcome))
    return found


def _row(item: Item, outcome: ItemOutcome) -> list[str]:
    return [item.id, _state(outcome), one_line(_what(item, outcome), 200)]


def _state(outcome: ItemOutcome) -> str:
    if outcome.result is not None and outcome.result.stopped is not None:
        return outcome.result.stopped.reason
    return {"done": "completed"}.get(outcome.status, outcome.status)


def _what(item: Item, outcome: ItemOutcome) -> str:
    said = f"/{item.command.name}" if item.command is not None else _text(item)
    if outcome.cancelled is not None:
        by = f" by {outcome.cancelled.by}" if outcome.cancelled.by else ""
        return f"{said} (cancelled {ago(outcome.cancelled.at)}{by}: {outcome.cancelled.reason or 'no reason given'})"
    if outcome.status == "waiting" and item.available_at > time.time() * 1000:
        return f"{said} (not before {date(item.available_at)})"
    if outcome.result is not None:
        stopped = outcome.result.stopped
        return f"{said} → {stopped.detail if stopped is not None else outcome.result.text}"
    return said


def _text(item: Item) -> str:
    return " ".join(block.text for block in item.content if isinstance(block, TextBlock))


def _as_json(item: Item, outcome: ItemOutcome) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "item_id": item.id,
        "status": outcome.status,
        "text": _text(item),
        "delivery": item.delivery,
        "slot": item.slot,
    }
    if item.available_at:
        shown["available_at"] = item.available_at
    if item.command is not None:
        shown["command"] = msgspec.to_builtins(item.command)
    if outcome.turn is not None:
        shown["turn"] = outcome.turn
    if outcome.cancelled is not None:
        shown["cancelled"] = msgspec.to_builtins(outcome.cancelled)
    if outcome.result is not None:
        shown["outcome"] = msgspec.to_builtins(outcome.result.outcome)
        shown["answer"] = outcome.result.text
    return shown
