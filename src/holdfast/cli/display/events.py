"""Events and queries as text for a person, and the exit code of an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import click

from holdfast.agent.machine.queries import ApprovalQuery, InputQuery, ReplyQuery
from holdfast.cli.display.calls import approval_commands, call_lines, call_to_approve
from holdfast.cli.options import serve_words, settings
from holdfast.cli.output import count, dim, duration, heading, plain, pretty, print_json, state
from holdfast.core.errors import ExitCode
from holdfast.core.events import (
    AcceptedEvent,
    CancelledEvent,
    CompletedEvent,
    ExpiredEvent,
    FailedEvent,
    ImportedEvent,
    PausedEvent,
    RunningEvent,
    SentEvent,
)
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from holdfast.core.events import Event


def print_event(event: Event) -> int:
    """Print an event, and return the exit code."""
    if settings().json:
        print_json({**event.to_json(), **({"next": how_to_serve(event)} if _is_left(event) else {})})
    else:
        _print_text(event)
    return exit_code(event)


def exit_code(event: Event) -> int:
    """0, unless the session ended without a result."""
    return ExitCode.ENDED_BADLY if isinstance(event, (FailedEvent, CancelledEvent, ExpiredEvent)) else ExitCode.OK


def _print_text(event: Event) -> None:
    sid = event.session_id
    match event:
        case PausedEvent(queries=queries):
            click.echo(f"{sid}  {state('paused')}\n")
            for query in queries:
                click.echo(show_query(query) + "\n")
            click.echo(dim(how_to_answer_first(event)))
        case AcceptedEvent(remaining=remaining):
            waits = f"waits for {', '.join(remaining)}" if remaining else "waits for nothing from you"
            click.echo(f"{sid}  accepted; {waits}")
        case SentEvent(why=why) if _is_left(event):
            click.echo(f"{sid}  the answer is kept in the mailbox")
            click.echo(plain(why))
            click.echo(dim(f"Continue here with: {how_to_serve(event)}"))
        case SentEvent():
            click.echo(f"{sid}  sent; its owner has not taken it yet, and may still refuse it")
        case RunningEvent(waits_for=kinds, why=why):
            click.echo(f"{sid}  {state('running')}" + (f"; waits for {', '.join(kinds)}" if kinds else ""))
            if why:
                click.echo(dim(plain(why)))
                if {"llm", "tool"} & set(kinds):  # of an agent: whatever a strategy asks is shown to whoever answers
                    click.echo(dim(f"Continue with: holdfast chat {sid}"))
        case ImportedEvent():
            click.echo(f"{sid}  {state('imported')}; it does nothing until it is adopted")
            click.echo(dim(f"See what it would run, and let it: holdfast adopt {sid}"))
        case CompletedEvent(result=result, stats=stats):
            click.echo(f"{sid}  {state('completed')}  {dim(stats_line(stats))}")
            click.echo(pretty(result))
        case FailedEvent(error=error, stats=stats):
            click.echo(f"{sid}  {state('failed')}  {dim(stats_line(stats))}")
            click.echo(show_error(error))
        case CancelledEvent(reason=reason, stats=stats) | ExpiredEvent(reason=reason, stats=stats):
            click.echo(f"{sid}  {state(event.status)}  {dim(stats_line(stats))}")
            click.echo(plain(reason or "no reason given"))
        case _:
            assert_never(event)


def _is_left(event: Event) -> TypeIs[SentEvent]:
    """Whether an answer waits in the mailbox because the program is not here."""
    return isinstance(event, SentEvent) and bool(event.program or event.service)


def how_to_serve(event: SentEvent) -> str:
    """The command that takes an answer which waits for its program."""
    service = [f" --service {event.service}{serve_words()}"] if event.service else []
    program = [f" --serve {event.program if ':' in event.program else 'FILE'}"] if event.program else []
    return "".join([f"holdfast run --resume {event.session_id}", *service, *program])


def how_to_answer_first(event: PausedEvent) -> str:
    """The command that answers the first query of a pause."""
    first, is_approval = event.queries[0], call_to_approve(event.queries[0]) is not None
    return how_to_answer(
        event.session_id, first.id, len(event.queries), is_chat=is_chat_query(first), is_approval=is_approval
    )


def how_to_answer(sid: str, query_id: str, pending: int, *, is_chat: bool, is_approval: bool) -> str:
    """The command that answers a query of a session."""
    if is_chat:
        return f"Continue with: holdfast chat {sid}"
    if is_approval:
        return "Answer with: " + "\n         or: ".join(approval_commands(sid, query_id))
    return f"Answer with: holdfast answer {sid}{f' --query {query_id}' if pending > 1 else ''} TEXT{serve_words()}"


def is_chat_query(query: Query) -> bool:
    """Whether an agent asks for its next input or for its model's reply, which `chat` answers."""
    return isinstance(query, InputQuery | ReplyQuery)


def show_error(error: str) -> str:
    """Why a strategy failed: the message on the first line, and below it the traceback, if there is one."""
    first, _, trace = plain(error).partition("\n")
    message = click.style(first, fg="red", bold=True)
    return f"{message}\n{dim(trace)}" if trace else message


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
    facts = [
        count(auto.get("llm_calls", 0), "model call"),
        count(auto.get("pauses", 0), "pause"),
        f"{about}{count(tokens.get('tokens', 0), 'token')}",
        duration(auto.get("elapsed_ms", 0)),
    ]
    return " · ".join(facts)
