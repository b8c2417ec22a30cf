"""`worker`: work through the inboxes of agents, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import INBOX
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.machine.turn import StoppedOutcome, TurnOutcome
from holdfast.agent.machine.turn_input import input_of
from holdfast.agent.worker import DEFAULT_TURNS, DRAIN_S, Worker
from holdfast.cli.agent_runtime import agents_options, find_agents, make_runtime, model_names
from holdfast.cli.dispatch import dispatch_option, serving_dispatch
from holdfast.cli.errors import InputError
from holdfast.cli.limits import declared_limits, limit_option
from holdfast.cli.models import MODEL_VARIABLE, close_provider
from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import clock, dim, duration, one_line, print_json, width
from holdfast.cli.own_process import collect_seldom
from holdfast.cli.served import load_served, serve_option
from holdfast.cli.tools import find_commands, find_servers, find_tools
from holdfast.core.errors import ExitCode
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Record, StartedRecord

if TYPE_CHECKING:
    from holdfast.agent.model_driver import ModelDriver
    from holdfast.agent.runtime import Runtime
    from holdfast.core.queries import LlmQuery
    from holdfast.core.state import Session
    from holdfast.engine.drivers import Attempt, Effect


@click.command("worker")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="SERVICE:MODEL",
    help="A model of a service that the sessions use. Repeatable."
    f"  [default: env {MODEL_VARIABLE}, else that of holdfast.toml]",
)
@click.option("--base-url", metavar="URL", help="The URL of the server that has the model, as with `holdfast chat`.")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="MODULE:NAME",
    help="A function that the models can call; also FILE.py:NAME. Repeatable.",
)
@click.option(
    "--mcp",
    "servers",
    multiple=True,
    metavar="NAME=COMMAND|URL",
    help="An MCP server whose tools the models can call. Repeatable.",
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="MODULE:NAME",
    help="A function that can be sent to sessions as a command; also FILE.py:NAME. Repeatable.",
)
@agents_options
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=DEFAULT_TURNS,
    show_default=True,
    help="How many turns to run at a time.",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=DRAIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How long running turns may take to end when the worker stops.",
)
@limit_option
@dispatch_option
@click.option(
    "--listen",
    default="127.0.0.1:9080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where Restate brings work. Whatever reaches it is run, so keep it on a private network.",
)
@click.option("--register", metavar="URL", help="Restate's admin URL, to make the worker known to it.")
@click.option(
    "--advertise",
    metavar="URL",
    help="Where Restate finds the workers of this version: the balancer in front of them."
    "  [default: where this worker listens]",
)
@serve_option
@service_option
@common()
def worker_command(
    *,
    models: tuple[str, ...],
    base_url: str | None,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    commands: tuple[str, ...],
    agents: tuple[str, ...],
    no_agents: bool,
    turns: int,
    drain: float,
    limits: tuple[str, ...],
    dispatch: str | None,
    listen: str,
    register: str | None,
    advertise: str | None,
) -> int:
    """Work through what was sent to the sessions of a store, with `holdfast enqueue` or from Python.

    With --serve, it also continues the sessions of native strategies; a worker without a model does only that.

    Any number of workers can share a store; if one dies, the others resume its turns. After SIGTERM or Ctrl-C, a worker
    begins no more turns, and exits when those that are running have ended. A second signal ends it at once, and leaves
    its turns to other workers. `holdfast workers drain` ends it in the same way, from any machine.

    With --dispatch, work is brought to it by Restate, or taken from a queue of NATS, and it does not look for any in
    the store. --listen, --register and --advertise are for Restate.
    """
    names = model_names(models)
    if not load_served() and not names and not tools and not servers:
        raise InputError(
            f"no model is named: give --model, or set {MODEL_VARIABLE}; a worker without one needs --serve or --tool"
        )
    found = [*find_tools(tools), *find_servers(servers)]
    defined = find_agents(agents, none=no_agents)
    found_commands, declared = find_commands(commands), declared_limits(limits)
    served = serving_dispatch(dispatch, turns, listen=listen, register=register, advertise=advertise)
    url = settings().url(create=True)
    runtime = make_runtime(
        *(url, names, base_url, found, found_commands), agents=defined, limits=declared, dispatch=served
    )
    collect_seldom()
    return asyncio.run(_work(runtime, turns, drain))


async def _work(runtime: Runtime, turns: int, drain: float) -> int:
    from holdfast.agent.model_driver import ModelDriver

    import_module("holdfast.strategies.evaluation.programs")  # those of trials and judges, which workers take up
    await runtime.tools.refresh()
    try:
        async with runtime:
            holdfast = runtime.mount.holdfast
            log = _Log(holdfast.engine.at_hand, as_json=settings().json)
            holdfast.on_commit(log.committed)
            holdfast.drive("llm", log.answering(ModelDriver(runtime, runtime.mount)))
            worker = runtime.work(turns, drain_s=drain)
            worker.ends_process = True
            worker.on_drain = lambda request: log.draining(worker, f"asked by {request.by}")
            working = asyncio.create_task(worker.run())
            with _stopped_by_signals(worker, working, log):
                log.write("ready", f"working on {settings().url()}, up to {turns} turns at a time", turns=turns)
                try:
                    await working
                except asyncio.CancelledError:
                    log.write("left", f"{_turns(len(worker.active))} left to others", turns=len(worker.active))
                    return ExitCode.INTERRUPTED
            left = len(worker.active)
            log.write("stopped", f"{_turns(worker.begun)} begun, {left or 'none'} left to others", begun=worker.begun)
            return ExitCode.OK
    finally:
        for provider in runtime.providers.values():
            await close_provider(provider)


@contextlib.contextmanager
def _stopped_by_signals(worker: Worker, working: asyncio.Task[None], log: _Log) -> Iterator[None]:
    """The first signal lets the worker drain, the second ends it."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if worker.is_stopping:
            working.cancel()
            return
        worker.stop()
        log.draining(worker, "a second signal ends the worker at once")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


class _Log:
    """What a worker does, one line for each event."""

    def __init__(self, at_hand: Callable[[str], Session | None], *, as_json: bool) -> None:
        """`at_hand` gives a session as it is known in this process."""
        self._at_hand = at_hand
        self._as_json = as_json
        self._turns: dict[str, str] = {}
        """By session, the turn that was under way here at the last commit."""
        self._running: dict[str, tuple[str, int]] = {}
        """By session, the turn that was begun here, and when."""

    def write(self, what: str, text: str, **more: object) -> None:
        if self._as_json:
            print_json({"type": what, **more})
        else:
            click.echo(f"{what}: {text}")

    def draining(self, worker: Worker, why: str) -> None:
        """It begins nothing more."""
        running = len(worker.active)
        self.write("draining", f"{_turns(running)} running; {why}", turns=running)

    def answering(self, driver: ModelDriver) -> Effect:
        """The driver, with a line for every question that it answers."""

        async def answer(query: LlmQuery, attempt: Attempt) -> Any:
            text = f"{attempt.session_id}  {query.id}  {query.text}"
            at = time.time_ns() // 1_000_000
            self._line("answering", at, text, session_id=attempt.session_id, query_id=query.id, attempt=attempt.number)
            return await driver(query, attempt)

        return answer

    def committed(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Log the turns that begin or end with a commit, and those that others began."""
        self._note_takeover(session_id, entries)
        outcome: TurnOutcome | None = None
        for entry in entries:
            match entry.record:
                case AnsweredRecord(by=by, answer=answer) if by == INBOX:
                    begun = input_of(answer)
                    self._running[session_id] = begun.turn, entry.at
                    text = f"{session_id}  {begun.turn}  {', '.join(begun.items)}"
                    self._line("begun", entry.at, text, session_id=session_id, turn=begun.turn, items=begun.items)
                case TurnRecord(outcome=outcome):
                    pass
                case PausedRecord(queries=[InputQuery(), *_]) if session_id in self._running:
                    turn, began = self._running.pop(session_id)
                    result = _outcome_text(outcome)
                    text = f"{session_id}  {turn}  {result} after {duration(entry.at - began)}"
                    self._line("ended", entry.at, text, session_id=session_id, turn=turn, outcome=result)
                    outcome = None
                case _:
                    pass

    def _note_takeover(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Log a turn that is under way here, and did not begin here."""
        session = self._at_hand(session_id)
        turn = agent_fold(session).turn if session is not None else None
        if turn is None:
            self._turns.pop(session_id, None)
        elif self._turns.get(session_id) != turn:
            self._turns[session_id] = turn
            if not any(_begins_turn(entry.record, turn) for entry in entries):
                at = entries[0].at
                self._running[session_id] = turn, at
                self._line("taken_over", at, f"{session_id}  {turn}", session_id=session_id, turn=turn)

    def _line(self, what: str, at: int, text: str, **more: object) -> None:
        if self._as_json:
            print_json({"type": what, "at": at, **more})
        else:
            click.echo(f"{dim(clock(at))}  {what.replace('_', ' ')}  {one_line(text, max(40, width() - 22))}")


def _begins_turn(record: Record, turn: str) -> bool:
    match record:
        case AnsweredRecord(answer=Value(value={"turn": begun})):
            return bool(begun == turn)
        case _:
            return isinstance(record, StartedRecord)


def _outcome_text(outcome: TurnOutcome | None) -> str:
    if isinstance(outcome, StoppedOutcome):
        return f"stopped: {outcome.reason}{f' ({outcome.detail})' if outcome.detail else ''}"
    return "answered"
