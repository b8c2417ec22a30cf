"""What an event says, for a person; and the exit code it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import click

from holdfast.agent.machine.queries import ApprovalQuery, InputQuery, ReplyQuery
from holdfast.cli.approval import approved_call, call_lines, commands_for
from holdfast.cli.options import settings
from holdfast.cli.output import dim, duration, heading, plain, pretty, print_json, state
from holdfast.core.errors import ExitCode
from holdfast.core.events import (
    AcceptedEvent,
    CancelledEvent,
    CompletedEvent,
    ExpiredEvent,
    FailedEvent,
    PausedEvent,
    RunningEvent,
)
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery

if TYPE_CHECKING:
    from holdfast.core.events import Event


def tell(event: Event) -> int:
    """Print an event, and give back the exit code."""
    if settings().json:
        print_json(event.to_json())
    else:
        _tell(event)
    return exit_code(event)


def exit_code(event: Event) -> int:
    """0, unless the session ended without a result."""
    return ExitCode.ENDED_BADLY if isinstance(event, (FailedEvent, CancelledEvent, ExpiredEvent)) else ExitCode.OK


def _tell(event: Event) -> None:
    sid = event.session_id
    match event:
        case PausedEvent(queries=queries):
            click.echo(f"{sid}  {state('paused')}\n")
            for query in queries:
                click.echo(show_query(query) + "\n")
            click.echo(
                dim(
                    how_to_go_on(
                        sid,
                        queries[0].id,
                        len(queries),
                        of_chat=is_of_chat(queries[0]),
                        approval=approved_call(queries[0]) is not None,
                    )
                )
            )
        case AcceptedEvent(remaining=remaining):
            waits = f"waits for {', '.join(remaining)}" if remaining else "waits for nothing from you"
            click.echo(f"{sid}  accepted; {waits}")
        case RunningEvent(waits_for=kinds, why=why):
            click.echo(f"{sid}  {state('running')}" + (f"; waits for {', '.join(kinds)}" if kinds else ""))
            if why:
                click.echo(dim(plain(why)))
        case CompletedEvent(result=result, stats=stats):
            click.echo(f"{sid}  {state('completed')}  {dim(stats_line(stats))}")
            click.echo(pretty(result))
        case FailedEvent(error=error, stats=stats):
            click.echo(f"{sid}  {state('failed')}  {dim(stats_line(stats))}")
            click.echo(show_error(error))
        case CancelledEvent(reason=reason, stats=stats) | ExpiredEvent(reason=reason, stats=stats):
            click.echo(f"{sid}  {state(event.status)}  {dim(stats_line(stats))}")
            click.echo(plain(reason or "no reason was given"))
        case _:
            assert_never(event)


def how_to_go_on(sid: str, query_id: str, pending: int, *, of_chat: bool, approval: bool) -> str:
    """The command that answers a query of a session."""
    if of_chat:
        return f"Go on with: holdfast chat {sid}"
    if approval:
        return "Answer with: " + "\n         or: ".join(commands_for(sid, query_id))
    return f"Answer with: holdfast answer {sid}{f' --query {query_id}' if pending > 1 else ''} TEXT"


def is_of_chat(query: Query) -> bool:
    """Whether a query is that of an agent for its next input, or for its model's reply: `chat` knows how to answer."""
    return isinstance(query, InputQuery | ReplyQuery)


def show_error(error: str) -> str:
    """Why a strategy failed: what was wrong on the first line, and below it where, if that is told."""
    first, _, trace = plain(error).partition("\n")
    told = click.style(first, fg="red", bold=True)
    return f"{told}\n{dim(trace)}" if trace else told


def show_query(query: Query) -> str:
    """A query in full."""
    head = f"{heading(query.id)} {dim(query.kind)}"
    match query:
        case ReplyQuery(iteration=number):
            return f"{head} the model's reply, number {number} of the turn"
        case LlmQuery(prompt=prompt, system=system):
            lines = [f"{dim('system:')} {plain(system)}"] if system else []
            return "\n".join([head, *lines, plain(prompt)])
        case ApprovalQuery(approves=call):
            return "\n".join([head, *call_lines(call)])
        case HumanQuery(prompt=prompt, choices=choices):
            numbered = [f"  {number}. {plain(choice)}" for number, choice in enumerate(choices, 1)]
            return "\n".join([head, plain(prompt), *numbered])
        case ToolQuery(name=name, arguments=arguments):
            return f"{head} {plain(name)}\n{pretty(arguments)}"
        case TimerQuery(delay_ms=delay):
            return f"{head} {duration(delay)}"
        case ChildQuery(program=program, ctx=ctx):
            return f"{head} {plain(program)}" + ("" if ctx is None else f"\n{pretty(ctx)}")
        case InputQuery():
            return f"{head} the next input of the conversation"
        case _:
            return f"{head} {plain(query.text)}"


def stats_line(stats: dict[str, Any]) -> str:
    """The stats of an ended session on one line."""
    auto = stats.get("auto", {})
    tokens = auto.get("total_tokens", {})
    about = "about " if tokens.get("source") != "provided" else ""
    told = [
        f"{auto.get('llm_calls', 0)} llm calls",
        f"{auto.get('pauses', 0)} pauses",
        f"{about}{tokens.get('tokens', 0)} tokens",
        duration(auto.get("elapsed_ms", 0)),
    ]
    return " · ".join(told)
