"""`limits`: how many calls all processes on a store make at once, or in a time; also the option `--limit`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.errors import InputError
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode, InvalidValueError

if TYPE_CHECKING:
    from holdfast.engine.fleet_limits import Limit, LimitReport

F = TypeVar("F", bound=Callable[..., Any])

_MOST_COUNTERS = 20
"""Counters of one limit that are shown to a person, the fullest first; `--json` has all."""


def limit_option(function: F) -> F:
    """Add `--limit`; `declared_limits` reads its values."""
    return click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="SUBJECT=COUNT",
        help="A limit that all processes on the store keep to: service:billing=20 calls at once, model:NAME=60/m a"
        " minute, key:customer=2 for each value of that label. Repeatable.  [also: [limits] in holdfast.toml]",
    )(function)


def declared_limits(options: tuple[str, ...]) -> list[str]:
    """The limits of the project's file, and those of `--limit`, which count if both are on the same."""
    from holdfast.cli.served import limits_in_config

    found = {limit.name: limit for limit in [*limits_in_config(), *map(_parse, options)]}
    return [str(limit) for limit in found.values()]


def _parse(text: str) -> Limit:
    from holdfast.engine.fleet_limits import parse_limit

    try:
        return parse_limit(text)
    except InvalidValueError as error:
        raise InputError(str(error)) from None


@click.group("limits", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@common()
@click.pass_context
def limits_command(context: click.Context) -> int | None:
    """Show the limits that all processes on a store keep to, how much of each is in use, and what waits for it.

    A limit is SUBJECT=COUNT for calls of models and tools at once, or SUBJECT=COUNT/PERIOD for calls in a time (60/m,
    10/s, 1000/h). Subjects are service:NAME, program:NAME, model:NAME, tool:NAME, and key:NAME for each value of the
    label NAME=VALUE; `*` as a name stands for each. Several, joined by commas, count together.
    """
    if context.invoked_subcommand is not None:
        return None
    reports = asyncio.run(_reports())
    if settings().json:
        print_json({"limits": msgspec.to_builtins(reports)})
    elif not reports:
        click.echo("No limits. `holdfast limits set service:default=20` declares one.")
    else:
        print_table(("LIMIT", "MOST", "IN USE", "WAITING"), [line for each in reports for line in _lines(each)])
        if hidden := sum(max(0, len(each.counters) - _MOST_COUNTERS) for each in reports):
            click.echo(dim(f"… and {count(hidden, 'counter')} more; --json has all."))
    return ExitCode.OK


@limits_command.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="SUBJECT=COUNT…")
@common()
def set_command(limits: tuple[str, ...]) -> int:
    """Declare limits, or change them. All processes on the store keep to them within ten seconds."""
    changed = asyncio.run(_set([_parse(text) for text in limits]))
    if settings().json:
        print_json({"changed": changed})
    else:
        click.echo(f"declared: {plain(', '.join(changed))}" if changed else "All of that was declared already.")
    return ExitCode.OK


@limits_command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="SUBJECT…")
@common()
def remove_command(names: tuple[str, ...]) -> int:
    """Remove limits by what they are on, as `holdfast limits` names it: service:billing, model:NAME/m."""
    removed = asyncio.run(_remove(names))
    if missing := [name for name in names if name not in removed]:
        raise InputError(f"there is no limit on {', '.join(missing)}; `holdfast limits` lists those that there are")
    if settings().json:
        print_json({"removed": removed})
    else:
        click.echo(f"removed: {plain(', '.join(removed))}")
    return ExitCode.OK


async def _reports() -> list[LimitReport]:
    from holdfast.engine.fleet_limits import limit_reports

    async with open_store() as store:
        return await limit_reports(store)


async def _set(limits: list[Limit]) -> list[str]:
    from holdfast.engine.fleet_limits import declare_limits

    async with open_store() as store:
        return [str(limit) for limit in await declare_limits(store, limits)]


async def _remove(names: tuple[str, ...]) -> list[str]:
    from holdfast.engine.fleet_limits import remove_limits

    async with open_store() as store:
        return await remove_limits(store, names)


def _lines(report: LimitReport) -> list[tuple[str, str, str, str]]:
    """A limit, and below it the counters of one that has several."""
    waiting = sum(each.waiting for each in report.counters)
    most = str(report.most)
    if [each.counter for each in report.counters] in ([], [report.name]):
        taken = sum(each.taken for each in report.counters)
        return [(report.name, most, str(taken), str(waiting or ""))]
    fullest = sorted(report.counters, key=lambda each: (-each.waiting, -each.taken, each.counter))[:_MOST_COUNTERS]
    below = [(f"  {each.counter}", "", str(each.taken), str(each.waiting or "")) for each in fullest]
    return [(report.name, f"{most} each", "", str(waiting or "")), *below]
