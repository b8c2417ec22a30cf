"""`hub`: search packages, and publish a collection. The work is in `holdfast.alc.hub`."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, json_option, settings
from holdfast.cli.output import count, dim, heading, one_line, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode


@click.group("hub")
def hub_command() -> None:
    """The hub: search packages, index and document a collection.

    A source is a directory, the URL of a git repository, or the address of a hub_index.json.
    """


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        click.echo(f"{click.style('warning:', fg='yellow')} {plain(warning)}", err=True)


@hub_command.command("search")
@click.argument("query", required=False, default="")
@click.option("--category", help="Only this category.")
@click.option("--installed", is_flag=True, help="Only what is installed here.")
@click.option("--source", "sources", multiple=True, metavar="URL|DIR", help="Also look here. Repeatable.")
@click.option("--limit", type=int, default=50, show_default=True, help="How many at most; 0 for all.")
@common()
def search_command(query: str, category: str | None, installed: bool, sources: tuple[str, ...], limit: int) -> int:
    """Find packages and strategies by text: in the name, description, category or docstring."""

    async def search() -> tuple[list[Any], list[str], list[str]]:
        from holdfast.alc.hub.search import Hub, matching
        from holdfast.alc.packages.directories import PackageDirectories

        async with open_store(create=True) as store:
            hub = Hub(store, PackageDirectories(), sources)
            found = matching((await hub.entries()).values(), query, category, installed)
        return sorted(found, key=lambda each: (not each.installed, each.name)), hub.sources, hub.warnings

    found, asked, warnings = asyncio.run(search())
    shown = found[: limit if limit > 0 else None]
    if settings().json:
        rows = msgspec.to_builtins(shown)
        print_json({"results": rows, "total": len(found), "sources": asked, "warnings": warnings})
        return ExitCode.OK
    if shown:
        rows = [
            [each.name, each.version or "-", each.category or "-", "yes" if each.installed else "", each.description]
            for each in shown
        ]
        table = [[one_line(cell, 200) for cell in row] for row in rows]
        print_table(("NAME", "VERSION", "CATEGORY", "HERE", "ABOUT"), table)
    if len(shown) < len(found):
        click.echo(dim(f"{len(found) - len(shown)} more; --limit 0 shows all."))
    if not found:
        click.echo("Nothing found.")
    _warn(warnings)
    return ExitCode.OK


@hub_command.command("info")
@click.argument("name")
@common()
def info_command(name: str) -> int:
    """Show all that is known of a package: what it says of itself, its cards, and how it was evaluated."""

    async def read() -> dict[str, Any]:
        from holdfast.alc.hub.search import Hub
        from holdfast.alc.packages.directories import PackageDirectories

        async with open_store(create=True) as store:
            return await Hub(store, PackageDirectories()).info(name)

    found = asyncio.run(read())
    if settings().json:
        print_json(found)
        return ExitCode.OK
    about, stats = found["pkg"], found["stats"]
    click.echo(f"{heading(plain(about['name']))} {plain(about['version'])}  {plain(about['description'])}")
    where = "installed" if about["installed"] else "not installed"
    category, source = about["category"] or "no category", about["source"] or "no known source"
    click.echo(dim(f"{where}; {plain(category)}; {plain(source)}"))
    best = "" if stats["best_pass_rate"] is None else f", best pass rate {stats['best_pass_rate']:.3g}"
    click.echo(f"{count(stats['card_count'], 'card')}, {count(stats['eval_count'], 'evaluation')}{best}")
    for alias in found["aliases"]:
        click.echo(f"  {plain(alias['name'])} -> {plain(alias['card_id'])}")
    _warn(found.get("warnings", []))
    return ExitCode.OK


@hub_command.command("reindex")
@click.argument("source", required=False, metavar="[URL|DIR]")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; without SOURCE, in Holdfast's directory.")
@common()
def reindex_command(source: str | None, output: str | None) -> int:
    """Write the index of a collection, or of what is installed here. No package is run."""
    from holdfast.alc.hub.publication import reindex

    report = reindex(source, output, dict(os.environ)) if source is not None else asyncio.run(_index_installed(output))
    if settings().json:
        print_json(msgspec.to_builtins(report))
    else:
        place = f", written to {plain(report.output_path)}" if report.output_path else "; -o writes it to a file"
        click.echo(f"{count(report.package_count, 'package')}{place}.")
    return ExitCode.OK


async def _index_installed(output: str | None) -> Any:
    from holdfast.alc.hub.index import INDEX_FILE, index_of_installed
    from holdfast.alc.hub.publication import write_index
    from holdfast.alc.hub.search import Hub
    from holdfast.alc.packages.directories import PackageDirectories
    from holdfast.alc.packages.package_list import listing

    where = PackageDirectories()
    async with open_store(create=True) as store:
        index = index_of_installed(listing(where), await Hub(store, where).cards())
    where.home.mkdir(parents=True, exist_ok=True)
    return write_index(index, output or str(where.home / INDEX_FILE), None)


_DOCUMENT_OPTIONS = (
    click.argument("source", metavar="URL|DIR"),
    click.option("--out", metavar="DIR", help="Where to write; docs/ in the collection by default."),
    click.option("--projection", "projections", multiple=True, metavar="NAME", help="What to make. Repeatable."),
    click.option("--config", metavar="FILE", help="A .toml file with [hub.context7], [hub.devin] and presets."),
    click.option("--strict", is_flag=True, help="Findings of lint are an error."),
    click.option("--preset", metavar="NAME", help="A set of projections: publish, or one of the configuration."),
)


def _with_documents(function: Any) -> Any:
    for option in reversed(_DOCUMENT_OPTIONS):
        function = option(function)
    return function


def _order(given: dict[str, Any]) -> Any:
    from holdfast.alc.hub.publication import DocumentOrder

    return DocumentOrder(
        given["source"],
        given["out"],
        list(given["projections"]) or None,
        given["config"],
        given["strict"],
        given["preset"],
    )


@hub_command.command("docs")
@_with_documents
@json_option
def docs_command(**given: Any) -> int:
    """Make pages, type stubs and lists from the files of a collection. No package is run.

    Projections: hub, narrative, llms (the default), luacats, context7, devin, lint, lint_only.
    """
    from holdfast.alc.hub.publication import gendoc

    report = gendoc(_order(given), dict(os.environ))
    if settings().json:
        print_json(msgspec.to_builtins(report))
        return ExitCode.OK
    click.echo(f"{count(len(report.files), 'file')} written to {plain(report.out_dir or 'nowhere')}.")
    _warn(report.warnings)
    return ExitCode.OK


@hub_command.command("dist")
@_with_documents
@click.option("-o", "--output", metavar="FILE", help="Where to write the index; hub_index.json in the collection.")
@json_option
def dist_command(output: str | None, **given: Any) -> int:
    """Write the index of a collection, and make its documents."""
    from holdfast.alc.hub.publication import dist

    made = dist(_order(given), output, dict(os.environ))
    if settings().json:
        print_json(made)
        return ExitCode.OK
    index, documents = made["reindex"], made["gendoc"]
    click.echo(f"{count(index['package_count'], 'package')} in {plain(index['output_path'] or 'no file')}.")
    click.echo(f"{count(len(documents['files']), 'file')} written to {plain(documents['out_dir'] or 'nowhere')}.")
    _warn(documents["warnings"])
    return ExitCode.OK
