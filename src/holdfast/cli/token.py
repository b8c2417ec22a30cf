"""`token`: make, list and revoke tokens for the HTTP server."""

from __future__ import annotations

import asyncio
import time

import click

from holdfast.cli.engine import open_store
from holdfast.cli.errors import InputError
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

_SCOPES = ("sessions:read", "sessions:write", "answers:write", "agents:run", "strategies:read", "admin")


@click.group("token")
def token_command() -> None:
    """Tokens for `holdfast serve`. Each has a name, which the journal records, and scopes that say what it may do."""


@token_command.command("add")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(_SCOPES), required=True, help="Repeatable.")
@click.option("--id-prefix", default="", metavar="TEXT", help="Only sessions whose ids begin with this exist for it.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it counts.  [default: for ever]")
@common()
def add(*, name: str, scopes: tuple[str, ...], id_prefix: str, days: float | None) -> int:
    """Make a token. Its text is printed once, and kept nowhere."""

    async def make() -> tuple[str, dict[str, object]]:
        from holdfast.serve.http.tokens import Tokens

        async with open_store(create=True) as store:
            tokens = Tokens(store, _now, time.monotonic)
            expires_at = None if days is None else _now() + round(days * 86_400_000)
            text, stored = await tokens.create(name, scopes, id_prefix=id_prefix, expires_at=expires_at)
            return text, stored.to_json()

    text, stored = asyncio.run(make())
    if settings().json:
        print_json({**stored, "token": text})
    else:
        click.echo(text)
        click.echo("Keep it: it is shown this once.", err=True)
    return ExitCode.OK


@token_command.command("list")
@common()
def list_(*_: object) -> int:
    """List the tokens."""

    async def read() -> list[dict[str, object]]:
        from holdfast.serve.http.tokens import Tokens

        async with open_store() as store:
            return [each.to_json() for each in await Tokens(store, _now, time.monotonic).list()]

    found = asyncio.run(read())
    if settings().json:
        print_json(found)
    elif not found:
        click.echo("There are no tokens but that of this machine.")
    else:
        print_table(["id", "name", "scopes", "sessions", "made", "ends"], [_row(each) for each in found])
    return ExitCode.OK


@token_command.command("remove")
@click.argument("token_id", metavar="ID")
@common()
def remove(*, token_id: str) -> int:
    """Revoke a token. Servers notice within seconds, their open streams within a minute."""

    async def revoke() -> bool:
        from holdfast.serve.http.tokens import Tokens

        async with open_store() as store:
            return await Tokens(store, _now, time.monotonic).revoke(token_id)

    if not asyncio.run(revoke()):
        raise InputError(f"there is no token '{token_id}'; `holdfast token list` shows those that there are")
    if settings().json:
        print_json({"id": token_id, "removed": True})
    else:
        click.echo(f"Token {plain(token_id)} is revoked.")
    return ExitCode.OK


def _row(token: dict[str, object]) -> list[str]:
    ends = token.get("expires_at")
    prefix = str(token.get("id_prefix", ""))
    scopes = token["scopes"]
    assert isinstance(scopes, list)
    made_at = token["created_at"]
    assert isinstance(made_at, int)
    shown_end = "never" if not isinstance(ends, int) else "over" if ends <= _now() else ago(ends)
    return [
        str(token["id"]),
        plain(str(token["name"])),
        ", ".join(scopes),
        f"{plain(prefix)}*" if prefix else "all",
        ago(made_at),
        shown_end,
    ]


def _now() -> int:
    return time.time_ns() // 1_000_000
