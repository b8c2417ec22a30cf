"""The timeline: what each entry of a journal says, as lines for a person."""

from __future__ import annotations

from typing import TypeAlias, assert_never

import click

from holdfast.cli.output import clock, dim, one_line, width
from holdfast.core.queries import (
    ChildQuery,
    Failure,
    HumanQuery,
    InputQuery,
    LlmQuery,
    Query,
    TimerQuery,
    ToolQuery,
    kind_of,
)
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    LoggedRecord,
    PausedRecord,
    ProgressedRecord,
    RefusedRecord,
    StartedRecord,
    StatRecord,
    TurnRecord,
)
from holdfast.core.turn import Stopped
from holdfast.core.values import encode

_WORD = 10
"""Columns of the word that says what happened."""

_MARGIN = 5 + 14 + _WORD + 2


def timeline(entry: Entry) -> list[str]:
    """The lines of one entry: its position, its time, and what happened."""
    lines = []
    for number, (word, colour, text) in enumerate(_told(entry)):
        place = f"{entry.position:>4}  {clock(entry.at)}" if number == 0 else " " * 18
        lines.append(f"{dim(place)}  {click.style(word.ljust(_WORD), fg=colour)} {text}".rstrip())
    return lines


def query_line(query: Query, columns: int) -> str:
    """A query on one line."""
    match query:
        case LlmQuery(iteration=int() as iteration):
            text = f"the conversation, call {iteration} of the turn"
        case LlmQuery(prompt=prompt):
            text = one_line(prompt, columns)
        case HumanQuery(prompt=prompt, choices=choices):
            text = one_line(prompt + (f" [{' | '.join(choices)}]" if choices else ""), columns)
        case ToolQuery(name=name, arguments=arguments):
            text = one_line(f"{name} {one_line(arguments, columns)}", columns)
        case TimerQuery(delay_ms=delay):
            text = f"{delay} ms"
        case ChildQuery(program=program, ctx=ctx):
            text = one_line(f"{program} {one_line(ctx, columns)}", columns)
        case InputQuery():
            text = "the next input"
        case _:
            assert_never(query)
    return f"{query.id:<5} {kind_of(query):<6} {text}"


Line: TypeAlias = tuple[str, str | None, str]
"""What happened in a word, its colour, and the rest."""


def _told(entry: Entry) -> list[Line]:
    record = entry.record
    room = max(20, width() - _MARGIN)
    match record:
        case StartedRecord(program=program, ctx=ctx, forked_from=fork):
            told = program.name + ("" if ctx is None else f"  {one_line(ctx, room - len(program.name) - 2)}")
            lines: list[Line] = [("started", None, told)]
            if fork is not None:
                lines.append(("", None, f"forked from {fork.session_id} at {fork.position}"))
            return lines
        case PausedRecord(queries=queries, withdrawn=withdrawn):
            lines = [("asked", "yellow", query_line(query, room - 13)) for query in queries]
            lines += [("withdrew", None, ", ".join(withdrawn))] if withdrawn else []
            return lines or [("waits", "yellow", "for the answers that are still open")]
        case RefusedRecord(queries=count, failure=failure):
            return [("refused", "red", one_line(f"{count} queries: {failure.message}", room))]
        case AttemptedRecord(query_id=asked, driver=driver):
            return [("attempt", "cyan", f"{asked:<5} {driver}")]
        case AnsweredRecord(query_id=asked, answer=Failure(message=message, code=code), by=by):
            return [("failed", "red", f"{asked:<5} {one_line(f'{message} ({code}){_by(by)}', room - 6)}")]
        case AnsweredRecord(query_id=asked, answer=answer, by=by):
            value = getattr(answer, "value", None)
            return [("answered", "green", f"{asked:<5} {one_line(value, room - 6 - len(_by(by)))}{dim(_by(by))}")]
        case LoggedRecord(message=message, level=level):
            return [("log", None, one_line(f"{level}: {message}", room))]
        case ProgressedRecord(step=step, total=total, message=message):
            return [("progress", None, one_line(f"{step} of {total}{f': {message}' if message else ''}", room))]
        case StatRecord(key=key, value=value):
            return [("stat", None, one_line(f"{key} = {one_line(value, room)}", room))]
        case TurnRecord(outcome=outcome):
            told = one_line(encode(outcome).decode(), room)
            return [("turn", "red" if isinstance(outcome, Stopped) else "green", told)]
        case CompletedRecord(result=result):
            return [("completed", "green", one_line(result, room))]
        case FailedRecord(error=error):
            return [("failed", "red", one_line(error, room))]
        case CancelledRecord(reason=reason, by=by):
            return [("cancelled", "magenta", one_line(f"{reason or 'no reason given'}{_by(by)}", room))]
        case ExpiredRecord(reason=reason):
            return [("expired", "magenta", one_line(reason, room))]
        case _:
            assert_never(record)


def _by(by: str | None) -> str:
    return f"  (by {by})" if by else ""
