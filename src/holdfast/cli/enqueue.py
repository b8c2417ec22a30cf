"""`enqueue`: send a message to an agent, for a worker."""

from __future__ import annotations

import asyncio
import time

import click

from holdfast.agent.machine.messages import TextBlock
from holdfast.cli.engine import BY, open_engine
from holdfast.cli.errors import usage_error
from holdfast.cli.options import common, parse_json, read_stdin, settings
from holdfast.cli.output import print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode


@click.command("enqueue")
@click.argument("session", type=SessionType())
@click.argument("text")
@click.option("--id", "item_id", metavar="ID", help="The id of the item: sending it twice sends it once.")
@click.option("--boundary", is_flag=True, help="Let it join the running turn, at the next safe point.")
@click.option("--join", is_flag=True, help="Let it share a turn with other items sent with --join.")
@click.option("--after", type=click.FloatRange(min=0), metavar="SECONDS", help="Do not start it before this delay.")
@click.option("--command", is_flag=True, help="TEXT is the name of a command, which runs before all texts that wait.")
@click.option("--arguments", metavar="JSON|@FILE", help="With --command: its arguments.")
@common()
def enqueue_command(
    *,
    session: str,
    text: str,
    item_id: str | None,
    boundary: bool,
    join: bool,
    after: float | None,
    command: bool,
    arguments: str | None,
) -> int:
    """Send TEXT to an agent session, to be worked on when its turn comes; - reads it from standard input.

    A `holdfast worker` on the same store does the work. `holdfast queue SESSION` shows the result.
    """
    from holdfast.agent.machine.inbox import Command, Item
    from holdfast.agent.machine.mailbox import EnqueueMessage
    from holdfast.core.ids import check_id, new_item_id

    if arguments is not None and not command:
        raise usage_error("--arguments goes with --command")
    item = Item(
        id=check_id(item_id, "item id") if item_id is not None else new_item_id(),
        content=[] if command else [TextBlock(read_stdin("the text") if text == "-" else text)],
        command=Command(text, parse_json(arguments, "--arguments") if arguments else {}) if command else None,
        delivery="boundary" if boundary else "after_turn",
        slot="join" if join else "exclusive",
        available_at=round((time.time() + after) * 1000) if after is not None else 0,
    )

    async def send() -> tuple[str, bool]:
        async with open_engine() as hf:
            session_id = await find_session(hf.store, session)
            return session_id, (await hf.send(session_id, EnqueueMessage(item, BY))).replayed

    session_id, replayed = asyncio.run(send())
    if settings().json:
        print_json({"session_id": session_id, "item_id": item.id, "replayed": replayed})
    else:
        again = " (it was sent before)" if replayed else ""
        click.echo(f"sent {item.id} to {session_id}{again}; see `holdfast queue {session_id}`")
    return ExitCode.OK
