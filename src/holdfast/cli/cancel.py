"""`cancel`: end a session, stop a turn, or withdraw an item."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.display.events import print_event
from holdfast.cli.engine import BY, open_engine
from holdfast.cli.errors import usage_error
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.cancellation import CancelReceipt
    from holdfast.core.events import Event

NOW = "now"
"""Stands for the id of the running turn."""

_CODES = {
    "stopped": ExitCode.OK,
    "not_begun": ExitCode.OK,
    "withdrawn": ExitCode.OK,
    "over": ExitCode.CONFLICT,
    "idle": ExitCode.CONFLICT,
    "not_found": ExitCode.NOT_FOUND,
}


@click.command("cancel")
@click.argument("session", type=SessionType())
@click.option("--turn", metavar="ID", help=f"Stop only this turn of an agent; `{NOW}` means the running one.")
@click.option(
    "--item", metavar="ID", help="Withdraw what was sent to an agent; if a turn has taken it, stop that turn."
)
@click.option("--reason", metavar="TEXT", help="The reason, kept in the journal.")
@common()
def cancel_command(session: str, turn: str | None, item: str | None, reason: str | None) -> int:
    """End a session and the children it waits for. It can still be shown, exported and forked.

    With --turn or --item the session continues: only that turn is stopped, whichever process runs it.
    """
    if turn is not None and item is not None:
        raise usage_error("give --turn or --item, not both")
    if turn is None and item is None:
        print_event(asyncio.run(_end(session, reason)))
        return ExitCode.OK
    receipt = asyncio.run(_stop(session, turn if turn != NOW else None, item, reason))
    if settings().json:
        print_json(receipt)
    else:
        click.echo(plain(_summary_line(receipt)))
    return _CODES[receipt.state]


async def _end(session: str, reason: str | None) -> Event:
    async with open_engine() as hf:
        return await hf.cancel(await find_session(hf.store, session), reason, by=BY)


async def _stop(session: str, turn: str | None, item: str | None, reason: str | None) -> CancelReceipt:
    from holdfast.agent.cancellation import CancelRequest, StoreEngine, cancel
    from holdfast.agent.conversations import Conversations

    async with open_engine() as hf:
        where = StoreEngine(hf.store, hf, Conversations(hf.engine))
        return await cancel(where, await find_session(hf.store, session), turn, item, CancelRequest(reason, BY))


def _summary_line(receipt: CancelReceipt) -> str:
    what = f"item {receipt.item}" if receipt.item is not None else f"turn {receipt.turn}"
    match receipt.state:
        case "stopped":
            return f"{receipt.session_id}: {what} was stopped; the session continues"
        case "not_begun":
            return f"{receipt.session_id}: {what} has not begun; if it comes, it ends at once"
        case "withdrawn":
            return f"{receipt.session_id}: {what} was withdrawn from the inbox"
        case "over":
            outcome = msgspec.to_builtins(receipt.outcome)["type"] if receipt.outcome is not None else "cancelled"
            return f"{receipt.session_id}: {what} had already ended ({outcome}); nothing was changed"
        case "idle":
            return f"{receipt.session_id}: no turn is running; nothing was changed"
        case "not_found":
            return f"{receipt.session_id}: there is no {what}; nothing was changed"
