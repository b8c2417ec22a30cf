"""`schedule`: what is started by the clock: add, list, pause, resume, run and remove schedules, and their history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.engine import BY, open_engine
from holdfast.cli.errors import InputError, usage_error
from holdfast.cli.options import common, parse_json, service_option, settings
from holdfast.cli.output import date, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.triggers.history import RunReport
    from holdfast.agent.triggers.terms import Target
    from holdfast.agent.triggers.triggers import Triggers, TriggerView

T = TypeVar("T")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group("schedule", context_settings={"help_option_names": ["-h", "--help"]})
def schedule_command() -> None:
    """Start agents' turns, strategies and events by the clock. A worker of the service starts them."""


@schedule_command.command("add")
@click.argument("name")
@click.option("--cron", metavar="EXPR", help="Times as in cron: minute hour day month weekday.")
@click.option("--zone", default="UTC", show_default=True, metavar="NAME", help="The time zone of --cron.")
@click.option("--every", metavar="TIME", help="An interval: 90s, 15m, 6h, 1d.")
@click.option("--at", metavar="TIME", help="One time: 2026-07-01T09:00, in the local zone unless it says otherwise.")
@click.option("--turn", metavar="TEXT", help="Start a turn of an agent with this input; see --session.")
@click.option("--session", metavar="ID", help="With --turn: whose turn it is; otherwise a new session's.")
@click.option("--strategy", metavar="PROGRAM", help="Start a strategy: a name, FILE.lua, FILE.py or MODULE:NAME.")
@click.option("--ctx", metavar="JSON|@FILE", help="With --strategy: its input.")
@click.option("--tool", metavar="NAME", help="Call a tool of the workers.")
@click.option("--arguments", metavar="JSON|@FILE", help="With --tool: its arguments.")
@click.option("--emit", metavar="TYPE", help="Emit an event of this type.")
@click.option("--payload", metavar="JSON|@FILE", help="With --emit: its payload.")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "cancel"]),
    default="skip",
    show_default=True,
    help="If the run before is not over: leave the new one out, queue it, or cancel the older one.",
)
@click.option(
    "--missed",
    type=click.Choice(["none", "last", "all"]),
    default="last",
    show_default=True,
    help="Which runs to make up for that nobody could start in time.",
)
@click.option("--missed-limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="With --missed all.")
@service_option
@common()
def add_command(**given: Any) -> int:
    """Add a schedule: NAME, when (--cron, --every or --at), and what to start. The same again changes nothing."""
    target = _target(given)
    if sum(given[option] is not None for option in ("cron", "every", "at")) != 1:
        raise usage_error("say when: give one of --cron, --every and --at")
    every = _seconds(given["every"]) if given["every"] is not None else None
    at = _moment(given["at"]) if given["at"] is not None else None
    how = {name: given[name] for name in ("overlap", "missed", "missed_limit")}

    async def add(triggers: Triggers) -> TriggerView:
        return await triggers.schedule(
            given["name"], target, cron=given["cron"], zone=given["zone"], every=every, at=at, **how
        )

    view = _on_triggers(add, create=True)
    return _print_view(view, f"{view.name} is scheduled ({view.terms.source})")


@schedule_command.command("list")
@service_option
@common()
def list_command() -> int:
    """List schedules: when each is due, and what it starts."""
    views = _on_triggers(lambda triggers: triggers.list(clock=True))
    if settings().json:
        for view in views:
            print_json(view.to_json())
    elif not views:
        click.echo("No schedules. Add one: holdfast schedule add NAME --every 1h --turn TEXT")
    else:
        rows = [_row(view) for view in views]
        print_table(["SCHEDULE", "STATE", "WHEN", "NEXT", "STARTS", "LAST RUN"], rows, states=1)
    return ExitCode.OK


def _change_command(word: str, about: str, said: str, change: Callable[..., Awaitable[TriggerView]]) -> None:
    """Add a command that changes a schedule, if its revision is the one that was given."""

    @schedule_command.command(word, help=about)
    @click.argument("name")
    @click.option("--revision", type=int, help="Only if this is its revision.")
    @service_option
    @common()
    def command(name: str, revision: int | None) -> int:
        view = _on_triggers(lambda triggers: change(triggers, name, revision=revision, by=BY))
        return _print_view(view, f"{view.name} {said}")


_change_command(
    "pause",
    "Let a schedule start nothing, until it is resumed.",
    "is paused",
    lambda triggers, name, **fence: triggers.disable(name, **fence),
)
_change_command(
    "resume",
    "Let a paused schedule go on. Runs that came meanwhile are not made up for.",
    "goes on",
    lambda triggers, name, **fence: triggers.enable(name, **fence),
)
_change_command(
    "remove",
    "Remove a schedule. What it has started goes on.",
    "is removed",
    lambda triggers, name, **fence: triggers.remove(name, **fence),
)


@schedule_command.command("run")
@click.argument("name")
@click.option("--key", metavar="ID", help="The key of the run: asking for it twice asks for it once.")
@service_option
@common()
def run_command(name: str, key: str | None) -> int:
    """Ask for a run now, beside those that are due."""
    view = _on_triggers(lambda triggers: triggers.run(name, key=key, by=BY))
    return _print_view(view, f"a run of {view.name} is asked for; see `holdfast schedule history {view.name}`")


@schedule_command.command("history")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Runs to show.")
@service_option
@common()
def history_command(name: str, limit: int) -> int:
    """Show the latest runs of a schedule, or of any trigger: what was started, what was left out, and why."""
    runs = _on_triggers(lambda triggers: triggers.history(name, limit=limit))
    if settings().json:
        for run in runs:
            print_json(run)
    elif not runs:
        click.echo("It has not run yet.")
    else:
        rows = [[date(run.at), _planned(run), run.did, run.status, run.process, run.why] for run in runs]
        print_table(["WHEN", "FOR", "WHAT", "STATUS", "PROCESS", "WHY"], rows, states=3)
    return ExitCode.OK


def _on_triggers(do: Callable[[Triggers], Awaitable[T]], *, create: bool = False) -> T:
    async def done() -> T:
        from holdfast.agent.processes.processes import Processes
        from holdfast.agent.triggers.triggers import Triggers

        async with open_engine(create=create) as hf:
            return await do(Triggers(hf, Processes(hf)))

    return asyncio.run(done())


def _target(given: Mapping[str, Any]) -> Target:
    from holdfast.agent.processes.processes import strategy
    from holdfast.agent.processes.terms import EmitWork, ToolWork, TurnWork
    from holdfast.cli.served import load_served

    named = [name for name in ("turn", "strategy", "tool", "emit") if given[name] is not None]
    if len(named) != 1:
        raise usage_error("say what to start: one of --turn, --strategy, --tool and --emit")
    needs = {"session": "turn", "ctx": "strategy", "arguments": "tool", "payload": "emit"}
    for option, needed in needs.items():
        if given[option] is not None and named != [needed]:
            raise usage_error(f"--{option} goes with --{needed}")
    match named[0]:
        case "turn":
            return TurnWork(input=given["turn"], session=given["session"])
        case "strategy":
            load_served()
            return strategy(given["strategy"], _json(given, "ctx"))
        case "tool":
            return ToolWork(tool=given["tool"], arguments=_json(given, "arguments") or {})
        case _:
            return EmitWork(type=given["emit"], payload=_json(given, "payload"))


def _json(given: Mapping[str, Any], option: str) -> Any:
    return parse_json(given[option], f"--{option}") if given[option] is not None else None


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    try:
        return float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        raise InputError(f"--every: '{text}' is not an interval; write 90s, 15m, 6h or 1d") from None


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"--at: '{text}' is not a time; write 2026-07-01T09:00 or 2026-07-01T09:00+02:00") from None


def _print_view(view: TriggerView, sentence: str) -> int:
    if settings().json:
        print_json(view.to_json())
    else:
        click.echo(plain(sentence))
    return ExitCode.OK


def _row(view: TriggerView) -> list[str]:
    state = "failed" if view.failed else "running" if view.terms.enabled else "paused"
    when = date(view.next) if view.next is not None else ""
    starts = view.terms.target.title + (f" ({view.queued} queued)" if view.queued else "")
    return [view.name, state, str(view.terms.source), when, starts, view.last or ""]


def _planned(run: RunReport) -> str:
    return date(int(run.key)) if run.key.isdecimal() else run.key
