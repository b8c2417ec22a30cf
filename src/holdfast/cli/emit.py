"""`emit`: emit an event, which starts what its triggers start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import BY, open_engine
from holdfast.cli.options import common, parse_json, service_option, settings
from holdfast.cli.output import count, plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.triggers.triggers import EmitReceipt


@click.command("emit")
@click.argument("type")
@click.argument("key", default="")
@click.option("--payload", metavar="JSON|@FILE", help="What happened, as JSON.")
@click.option("--idempotency-key", metavar="ID", help="The event's own key: emitting it twice emits it once.")
@click.option("--declare", metavar="JSON|@FILE", help="First declare the type, with this JSON schema of its payloads.")
@service_option
@common()
def emit_command(*, type: str, key: str, payload: str | None, idempotency_key: str | None, declare: str | None) -> int:
    """Emit an event of a declared TYPE, about KEY. Each trigger that it concerns starts its work, once.

    The event is durable when this returns; a worker of the service starts the work.
    """
    value = parse_json(payload, "--payload") if payload is not None else None
    schema = parse_json(declare, "--declare") if declare is not None else None

    async def emit() -> EmitReceipt:
        from holdfast.agent.processes.processes import Processes
        from holdfast.agent.triggers.triggers import Triggers

        async with open_engine(create=schema is not None) as hf:
            triggers = Triggers(hf, Processes(hf))
            if schema is not None:
                await triggers.declare(type, schema)
            return await triggers.emit(type, key, value, idempotency_key=idempotency_key, by=BY)

    receipt = asyncio.run(emit())
    if settings().json:
        print_json(receipt)
        return ExitCode.OK
    again = " (it was emitted before)" if receipt.replayed else ""
    click.echo(f"emitted {receipt.occurrence}{again}; it concerns {count(len(receipt.processes), 'trigger')}")
    for trigger, process in receipt.processes.items():
        click.echo(plain(f"  {trigger} starts {process}"))
    return ExitCode.OK
