"""`cards`: the records of runs, in the store and in files. The work is in `holdfast.alc.cards`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, parse_json, settings
from holdfast.cli.output import count, dim, heading, one_line, plain, pretty, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.alc.cards import CardLibrary

T = TypeVar("T")


@click.group("cards")
def cards_command() -> None:
    """Cards: the records of runs; find, compare and export them.

    A card is in the session store, and in a file that algocline reads too. CARD is an id or an alias.
    """


def _on_cards(work: Callable[[CardLibrary], Awaitable[T]]) -> T:
    """Work on the cards of the store, and give back its result."""

    async def run() -> T:
        from holdfast.alc.cards.tool import own_library

        async with open_store(create=True) as store:
            return await work(own_library(store))

    return asyncio.run(run())


async def _card(library: CardLibrary, name: str) -> dict[str, Any]:
    from holdfast.alc.cards.errors import CardNotFoundError

    card = await library.get(name) or await library.get_by_alias(name)
    if card is None:
        raise CardNotFoundError("get", name)
    return card


@cards_command.command("list")
@click.option("--pkg", metavar="NAME", help="Only those of a package.")
@common()
def list_command(pkg: str | None) -> int:
    """List the cards, the newest first."""
    _print_rows(_on_cards(lambda library: library.list(pkg)))
    return ExitCode.OK


@cards_command.command("find")
@click.argument("where", required=False, metavar="[WHERE]")
@click.option("--pkg", metavar="NAME", help="Only those of a package.")
@click.option("--order", multiple=True, metavar="PATH", help="Sort by this; `-` before it is descending. Repeatable.")
@click.option("--limit", type=click.IntRange(min=0), help="How many at most.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over.")
@common()
def find_command(where: str | None, pkg: str | None, order: tuple[str, ...], limit: int | None, offset: int) -> int:
    """Find cards by what is in them.

    WHERE is JSON, or @FILE: '{"stats": {"pass_rate": {"gte": 0.8}}}'. Operators: eq ne lt lte gt gte in nin exists
    contains starts_with; _and, _or and _not join filters.
    """
    condition = None if where is None else parse_json(where, "WHERE")
    _print_rows(_on_cards(lambda library: library.find(pkg, condition, list(order) or None, limit, offset)))
    return ExitCode.OK


def _print_rows(rows: list[Any]) -> None:
    if settings().json:
        print_json(rows)
        return
    if not rows:
        click.echo("No cards.")
        return
    keys = ("card_id", "pkg", "model", "scenario", "pass_rate", "created_at")
    print_table(
        ("CARD", "PACKAGE", "MODEL", "SCENARIO", "PASSED", "MADE"),
        [[one_line(row[key], 80) if key in row else "-" for key in keys] for row in rows],
    )


@cards_command.command("show")
@click.argument("card")
@click.option("--samples", type=click.IntRange(min=0), metavar="N", help="Also show the first N samples.")
@common()
def show_command(card: str, samples: int | None) -> int:
    """Show a card, and its samples if asked."""

    async def read(library: CardLibrary) -> tuple[dict[str, Any], list[Any] | None, list[str]]:
        found = await _card(library, card)
        rows = None if samples is None else await library.read_samples(found["card_id"], 0, samples)
        aliases = [alias["name"] for alias in await library.alias_list() if alias["card_id"] == found["card_id"]]
        return found, rows, aliases

    found, rows, aliases = _on_cards(read)
    if settings().json:
        print_json({"card": found, "aliases": aliases, **({} if rows is None else {"samples": rows})})
        return ExitCode.OK
    click.echo(heading(plain(found["card_id"])) + (dim(f"  also {', '.join(map(plain, aliases))}") if aliases else ""))
    click.echo(pretty(found))
    for row in rows or ():
        click.echo(one_line(row, 400))
    return ExitCode.OK


@cards_command.command("lineage")
@click.argument("card")
@click.option("--direction", type=click.Choice(["up", "down", "both"]), default="both", show_default=True)
@click.option("--depth", type=click.IntRange(min=0), default=10, show_default=True, help="Steps in each direction.")
@common()
def lineage_command(card: str, direction: Any, depth: int) -> int:
    """Show which cards a card came from, and which came from it."""

    async def follow(library: CardLibrary) -> Any:
        from holdfast.alc.cards.lineage import LineageQuery

        return await library.lineage(LineageQuery((await _card(library, card))["card_id"], direction, depth))

    found = _on_cards(follow)
    if settings().json:
        print_json(found)
        return ExitCode.OK
    for node in sorted(found["nodes"], key=lambda node: node["depth"]):
        from_card = f"{node.get('prior_relation', '')} {node.get('prior_card_id', '')}".strip()
        relation = f"  ({plain(from_card)})" if from_card else ""
        stats = f"  {one_line(node['stats'], 80)}" if "stats" in node else ""
        mark = "*" if node["depth"] == 0 else " "
        click.echo(f"{node['depth']:+3d} {mark} {plain(node['card_id'])}{dim(relation)}{stats}")
    if found["truncated"]:
        click.echo(dim("There are more: --depth follows them further."))
    return ExitCode.OK


@cards_command.command("compare")
@click.argument("a")
@click.argument("b")
@common()
def compare_command(a: str, b: str) -> int:
    """Show where two cards differ."""

    async def read(library: CardLibrary) -> Any:
        from holdfast.alc.cards.comparison import compare_cards

        return compare_cards(await _card(library, a), await _card(library, b))

    compared = _on_cards(read)
    if settings().json:
        print_json(compared)
        return ExitCode.OK
    rows = [
        [
            each.path,
            "-" if each.only == "b" else one_line(each.a, 60),
            "-" if each.only == "a" else one_line(each.b, 60),
            "" if each.delta is None else f"{each.delta:+.4g}",
        ]
        for each in compared.differences
    ]
    if rows:
        print_table(("FIELD", compared.a, compared.b, ""), rows)
    click.echo(f"{count(len(rows), 'difference')}; {len(compared.same)} fields are the same.")
    return ExitCode.OK


@cards_command.command("export")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("cards", nargs=-1, metavar="[CARD]...")
@common()
def export_command(directory: Path, cards: tuple[str, ...]) -> int:
    """Write cards, by default all, into DIRECTORY as a collection.

    It has algocline's files: a TOML file for each card, samples beside it, and the aliases. `alc_card_install` and
    `holdfast cards install` read it.
    """
    from holdfast.alc.cards import CardBox
    from holdfast.alc.hub.card_collection import write_manifest

    async def write(library: CardLibrary) -> list[str]:
        ids = [(await _card(library, each))["card_id"] for each in cards]
        return list(await library.export(CardBox(directory), ids or None))

    written = _on_cards(write)
    write_manifest(directory)
    if settings().json:
        print_json({"directory": str(directory), "cards": written})
    else:
        click.echo(f"{count(len(written), 'card')} written to {plain(str(directory))}.")
    return ExitCode.OK


@cards_command.command("install")
@click.argument("source", metavar="URL|DIR")
@common()
def install_command(source: str) -> int:
    """Add the cards of a collection: a directory or a git repository with alc_cards.toml."""

    async def install(library: CardLibrary) -> Any:
        from holdfast.alc.hub.card_collection import install_cards

        return await install_cards(library, source, dict(os.environ))

    report = _on_cards(install)
    if settings().json:
        print_json(msgspec.to_builtins(report))
        return ExitCode.OK
    click.echo(f"{count(len(report.installed_cards), 'card')} installed, {len(report.skipped_cards)} there already.")
    for why in report.refused:
        click.echo(f"refused: {plain(why)}", err=True)
    return ExitCode.OK
