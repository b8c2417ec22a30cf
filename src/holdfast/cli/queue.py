"""`queue`: what was sent to an agent, and the results."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.agent.machine.messages import TextBlock
from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, date, one_line, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.machine.inbox import Item
    from holdfast.agent.queue import ItemOutcome

_RECENT = 20
"""Settled items that are shown without --all."""


@click.command("queue")
@click.argument("session", type=SessionType())
@click.option("--all", "show_all", is_flag=True, help="Also show what was settled long ago.")
@common()
def queue_command(*, session: str, show_all: bool) -> int:
    """Show what was sent to an agent session: what waits, what is worked on, and the results of the rest."""
    shown = asyncio.run(_read_items(session))
    if not show_all:
        settled = [outcome for _, outcome in shown if outcome.is_settled][-_RECENT:]
        shown = [(item, outcome) for item, outcome in shown if not outcome.is_settled or outcome in settled]
    if settings().json:
        for item, outcome in shown:
            print_json(_to_json(item, outcome))
    elif not shown:
        click.echo("Nothing was sent to it.")
    else:
        print_table(["item", "state", "what"], [_row(item, outcome) for item, outcome in shown], states=1)
    return ExitCode.OK


async def _read_items(id_or_prefix: str) -> list[tuple[Item, ItemOutcome]]:
    """All items of a session with their outcomes, in the order in which they were sent."""
    from holdfast.agent.conversations import read_conversation
    from holdfast.agent.machine.fold import agent_fold
    from holdfast.agent.machine.records import EnqueuedRecord
    from holdfast.agent.queue import outcome_of
    from holdfast.agent.results import result_of

    async with open_store() as store:
        session_id = await find_session(store, id_or_prefix)
        items = [
            entry.record.item async for entry in store.journal(session_id) if isinstance(entry.record, EnqueuedRecord)
        ]
        session = await store.load(session_id)
        conversation = await read_conversation(store, session_id)
    accepted = agent_fold(session).inbox.accepted
    found = []
    for item in items:
        if item.id not in accepted:
            continue  # sent to the session that this one was forked from, after the fork
        outcome = outcome_of(session, item.id)
        if outcome.status == "done" and outcome.turn is not None:
            result = result_of(conversation.turns[outcome.turn], replayed=True)
            outcome = msgspec.structs.replace(outcome, result=result)
        found.append((item, outcome))
    return found


def _row(item: Item, outcome: ItemOutcome) -> list[str]:
    return [item.id, _state(outcome), one_line(_description(item, outcome), 200)]


def _state(outcome: ItemOutcome) -> str:
    if outcome.result is not None and outcome.result.stopped is not None:
        return outcome.result.stopped.reason
    return outcome.status


def _description(item: Item, outcome: ItemOutcome) -> str:
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


def _to_json(item: Item, outcome: ItemOutcome) -> dict[str, Any]:
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
