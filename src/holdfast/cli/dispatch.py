"""`dispatch`: how the dispatcher of a fleet gets on with its workers, and moving what is stuck to the latest ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from holdfast.cli.errors import InputError
from holdfast.cli.options import json_option, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.engine.dispatch import Dispatch
    from holdfast.engine.nats.report import QueueReport
    from holdfast.engine.nats.settings import NatsSettings
    from holdfast.engine.restate.admin import AdminClient, DispatchReport

ADMIN_PORT = 9070
"""The port of the dispatcher's admin API, unless it is named."""

F = TypeVar("F", bound=Callable[..., Any])


def dispatch_option(function: F) -> F:
    """Add `--dispatch`."""
    return click.option(
        "--dispatch",
        metavar="URL",
        envvar="HOLDFAST_DISPATCH",
        help="What brings work to a fleet on PostgreSQL: restate+http://host:8080 or nats://host:4222, with commas"
        " between several hosts, and ?service=NAME to keep fleets apart."
        "  [env: HOLDFAST_DISPATCH; default: the store]",
    )(function)


def serving_dispatch(url: str | None, turns: int, **options: str | None) -> Dispatch | None:
    """The dispatcher that brings work to a worker, up to so many sessions at a time; None if the store does."""
    if url is None:
        return None
    from holdfast.engine.dispatch import check_installed, is_nats

    if is_nats(url):
        return _pulling_dispatch(url, turns, **options)
    from holdfast.engine.restate.dispatch import SENDS, SERVES, RestateDispatch
    from holdfast.engine.restate.settings import RestateSettings

    check_installed("restate", *SENDS, *SERVES)
    return RestateDispatch(RestateSettings.parse(url).with_options(options), turns)


def _pulling_dispatch(url: str, turns: int, **options: str | None) -> Dispatch:
    """The dispatcher of a worker that takes its work from NATS. `DispatchError` if that refuses it."""
    from holdfast.engine.nats.dispatch import NatsDispatch
    from holdfast.engine.nats.report import check_queue

    if given := [f"--{name}" for name in ("register", "advertise") if options[name]]:
        raise InputError(
            f"NATS is not told where workers are, as they take work from it: leave out {' and '.join(given)}"
        )
    found = _nats(url).to_pull(turns)
    asyncio.run(check_queue(found))
    return NatsDispatch(found)


def _nats(url: str) -> NatsSettings:
    from holdfast.engine.dispatch import check_installed
    from holdfast.engine.nats.dispatch import PACKAGE
    from holdfast.engine.nats.settings import NatsSettings

    found = NatsSettings.parse(url)
    check_installed("nats", PACKAGE)
    return found


def _admin_options(function: F) -> F:
    admin = click.option(
        "--admin",
        metavar="URL",
        help=f"Restate's admin URL.  [default: the dispatcher's first host, port {ADMIN_PORT}]",
    )
    return dispatch_option(admin(json_option(function)))


@click.group("dispatch")
def dispatch_command() -> None:
    """The dispatcher of a fleet on PostgreSQL: what it brings to which workers."""


@dispatch_command.command("status")
@_admin_options
def status(*, dispatch: str | None, admin: str | None) -> int:
    """Show where work is brought, how much is under way, and what does not get through.

    With Restate, that is what is tried again and again, was paused, or is bound to workers of an older version. With
    NATS, it is how many sessions wait in the queue, are worked on, or were brought more than once.
    """
    if (queue := _queue_of(dispatch, admin)) is not None:
        from holdfast.engine.nats.report import queue_report

        found = asyncio.run(queue_report(queue))
        print_json(found) if settings().json else _show_queue(found)
        return ExitCode.OK
    client, service = _admin(dispatch, admin)
    report = asyncio.run(client.report(service))
    print_json(report) if settings().json else _show(report)
    return ExitCode.OK


@dispatch_command.command("move")
@_admin_options
def move(*, dispatch: str | None, admin: str | None) -> int:
    """Move what is bound to workers of an older version, or was paused, to the latest ones.

    Nothing is done twice by that: the session's lease decides who works on it. With NATS, nothing is bound to workers.
    """
    if _queue_of(dispatch, admin) is not None:
        raise InputError("NATS binds no work to workers, so there is nothing to move")

    async def move_all() -> list[str]:
        client, service = _admin(dispatch, admin)
        found = [
            each for each in (await client.report(service)).troubled if each.status == "paused" or not each.is_latest
        ]
        for each in found:
            await client.move(each)
        return [each.session_id for each in found]

    moved = asyncio.run(move_all())
    if settings().json:
        print_json({"moved": moved})
    else:
        click.echo(f"{len(moved)} moved." if moved else "There is nothing to move.")
    return ExitCode.OK


def _queue_of(dispatch: str | None, admin: str | None) -> NatsSettings | None:
    """The queue of the dispatcher, if it is NATS."""
    from holdfast.engine.dispatch import is_nats

    if dispatch is None or not is_nats(dispatch):
        return None
    if admin is not None:
        raise InputError("NATS has no admin URL: leave out --admin")
    return _nats(dispatch)


def _show_queue(report: QueueReport) -> None:
    click.echo(f"{report.service}: at {report.server}")
    if report.stream is None:
        click.echo("There is no queue yet: the first worker makes it, or the first process that sends something.")
        return
    copies = "1 copy" if report.replicas == 1 else f"{report.replicas} copies"
    click.echo(f"queue: {report.stream}, {copies}, {report.messages} messages, {report.scheduled} of them for later")
    if not report.has_schedules:
        click.echo("The stream has no message schedules (NATS 2.12): what is due is found by the sweep.")
    if not report.consumers:
        click.echo("No worker has come yet.")
        return
    rows = [
        [each.name, str(each.pending), str(each.taken), str(each.redelivered), str(each.waiting)]
        for each in report.consumers
    ]
    print_table(["CONSUMER", "PENDING", "TAKEN", "REDELIVERED", "WORKERS WAITING"], rows)


def _admin(dispatch: str | None, admin: str | None) -> tuple[AdminClient, str]:
    """The admin API of the dispatcher, and the name that it knows the fleet by."""
    if dispatch is None:
        raise InputError("no dispatcher is named: give --dispatch, or set HOLDFAST_DISPATCH")
    from holdfast.engine.dispatch import check_installed
    from holdfast.engine.restate.admin import AdminClient
    from holdfast.engine.restate.dispatch import SENDS
    from holdfast.engine.restate.settings import RestateSettings

    check_installed("restate", *SENDS)
    found = RestateSettings.parse(dispatch)
    first = urlsplit(found.ingresses[0])
    host = f"[{first.hostname}]" if ":" in (first.hostname or "") else first.hostname
    return AdminClient(admin or f"{first.scheme}://{host}:{ADMIN_PORT}"), found.service


def _show(report: DispatchReport) -> None:
    if report.deployment is None:
        click.echo(f"No workers of '{report.service}' are registered: start one with --register.")
        return
    click.echo(f"{report.service}: brought to {report.deployment}")
    for other in report.others:
        click.echo(f"older workers: {other}")
    under_way = ", ".join(f"{number} {name}" for name, number in sorted(report.nudges.items()))
    click.echo(f"under way: {under_way or 'nothing'}")
    if report.troubled:
        rows = [
            [
                each.session_id,
                each.status,
                str(each.tries),
                "" if each.is_latest else each.deployment or "",
                plain(each.why),
            ]
            for each in report.troubled
        ]
        print_table(["SESSION", "STATUS", "TRIES", "BOUND TO", "WHY"], rows, states=1)
    else:
        click.echo("Everything gets through.")
