"""`cancel`: end a session, stop a turn, take back an item."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.event_text import tell
from holdfast.cli.lookup import SessionType, engine, find_session
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.cancellation import CancelReceipt
    from holdfast.core.events import Event

BY = "cli"
"""Who did it, in the journal."""

NOW = "now"
"""Instead of a turn's id: whichever is under way."""

_CODES = {
    "stopped": ExitCode.OK,
    "withdrawn": ExitCode.OK,
    "over": ExitCode.CONFLICT,
    "idle": ExitCode.CONFLICT,
    "not_found": ExitCode.NOT_FOUND,
}


@click.command("cancel")
@click.argument("session", type=SessionType())
@click.option("--turn", metavar="ID", help=f"Stop this turn of an agent, and no more; {NOW}: whichever is under way.")
@click.option("--item", metavar="ID", help="Take back what was sent to an agent; if a turn has it, stop that turn.")
@click.option("--reason", metavar="TEXT", help="Why; kept in the journal.")
@common()
def cancel_command(session: str, turn: str | None, item: str | None, reason: str | None) -> int:
    """End a session, and the children it waits for. It can still be shown, exported and forked.

    With --turn or --item the session goes on: only that turn is stopped, in whichever process it is worked on.
    """
    if turn is not None and item is not None:
        raise click.UsageError("--turn and --item are two ways to say what to stop", click.get_current_context())
    if turn is None and item is None:
        tell(asyncio.run(_end(session, reason)))
        return ExitCode.OK
    receipt = asyncio.run(_stop(session, turn if turn != NOW else None, item, reason))
    if settings().json:
        print_json(receipt)
    else:
        click.echo(plain(_told(receipt)))
    return _CODES[receipt.state]


async def _end(session: str, reason: str | None) -> Event:
    async with engine() as hf:
        return await hf.cancel(await find_session(hf.store, session), reason, by=BY)


async def _stop(session: str, turn: str | None, item: str | None, reason: str | None) -> CancelReceipt:
    from holdfast.agent.cancellation import CancelRequest, StoreEngine, cancelled
    from holdfast.agent.conversation_cache import ConversationCache

    async with engine() as hf:
        where = StoreEngine(hf.store, hf, ConversationCache(hf.store))
        return await cancelled(where, await find_session(hf.store, session), turn, item, CancelRequest(reason, BY))


def _told(receipt: CancelReceipt) -> str:
    what = f"item {receipt.item}" if receipt.item is not None else f"turn {receipt.turn}"
    match receipt.state:
        case "stopped":
            return f"{receipt.session_id}: {what} was stopped; the session goes on"
        case "withdrawn":
            return f"{receipt.session_id}: {what} was taken out of the inbox"
        case "over":
            came_to = msgspec.to_builtins(receipt.outcome)["type"] if receipt.outcome is not None else "cancelled"
            return f"{receipt.session_id}: {what} was over before ({came_to}); nothing was changed"
        case "idle":
            return f"{receipt.session_id}: no turn is under way; nothing was changed"
        case "not_found":
            return f"{receipt.session_id}: there is no {what}; nothing was changed"
