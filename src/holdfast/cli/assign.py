"""`assign`: say who answers the model questions of a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.display.events import print_event
from holdfast.cli.engine import BY, open_engine
from holdfast.cli.options import common
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.core.events import Event


@click.command("assign")
@click.argument("session", type=SessionType())
@click.option("--llm", required=True, metavar="host|any|MODEL", help="Who answers from now on.")
@common()
def assign_command(session: str, llm: str) -> int:
    """Say who answers the llm queries of a strategy from now on.

    `host` means that they wait for `holdfast answer` or whoever else answers from outside; `any` that any worker of the
    session's service may answer them; the name of a model, as a worker was given it with --model, that only such a
    worker does. Agents have their model from their own settings.
    """
    print_event(asyncio.run(_assign(session, llm)))
    return ExitCode.OK


async def _assign(session: str, llm: str) -> Event:
    async with open_engine() as hf:
        return await hf.assign(await find_session(hf.store, session), llm, by=BY)
