"""The timeline: the entries of a journal as lines for a person."""

from __future__ import annotations

from typing import TypeAlias

import click

from holdfast.agent.machine.messages import ContentBlock, TextBlock
from holdfast.agent.machine.queries import ApprovalQuery, InputQuery, ReplyQuery, SummaryQuery
from holdfast.agent.machine.records import (
    CallRecord,
    ConfiguredRecord,
    DequeuedRecord,
    EnqueuedRecord,
    FrameRecord,
    JoinedRecord,
    StopRecord,
    TurnRecord,
)
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.cli.display.calls import call_line
from holdfast.cli.output import clock, dim, one_line, width
from holdfast.core.queries import ChildQuery, Failure, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery
from holdfast.core.records import (
    AdoptedRecord,
    AnsweredRecord,
    AssignedRecord,
    AttemptedRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    InterruptedRecord,
    LabelledRecord,
    LoggedRecord,
    PatchedRecord,
    PausedRecord,
    ProgressedRecord,
    RefusedRecord,
    StartedRecord,
    StatRecord,
    type_of,
)
from holdfast.core.values import Json, encode

_WORD = 10
"""Columns of the word that says what happened."""

_MARGIN = 5 + 14 + _WORD + 2


def timeline(entry: Entry) -> list[str]:
    """The lines of one entry: its position, its time, and what happened."""
    lines = []
    for number, (word, colour, text) in enumerate(_facts(entry)):
        place = f"{entry.position:>4}  {clock(entry.at)}" if number == 0 else " " * 18
        lines.append(f"{dim(place)}  {click.style(word.ljust(_WORD), fg=colour)} {text}".rstrip())
    return lines


def query_line(query: Query, columns: int) -> str:
    """A query on one line."""
    match query:
        case ReplyQuery(iteration=iteration):
            text = f"the conversation, call {iteration} of the turn"
        case SummaryQuery(prompt=prompt):
            text = one_line("to summarise the conversation" + (f": {prompt}" if prompt else ""), columns)
        case LlmQuery(prompt=prompt):
            text = one_line(prompt, columns)
        case ApprovalQuery(approves=call):
            text = call_line(call, columns)
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
            text = one_line(query.text, columns)
    return f"{query.id:<5} {query.kind:<6} {text}"


_Fact: TypeAlias = tuple[str, str | None, str]
"""What happened: a word, its colour, and the rest of the line."""


def _facts(entry: Entry) -> list[_Fact]:
    record = entry.record
    room = max(20, width() - _MARGIN)
    match record:
        case StartedRecord(program=program, ctx=ctx, forked_from=fork):
            text = program.name + ("" if ctx is None else f"  {one_line(ctx, room - len(program.name) - 2)}")
            lines: list[_Fact] = [("started", None, text)]
            if fork is not None:
                lines.append(("", None, f"forked from {fork.session_id} at {fork.position}"))
            return lines
        case PausedRecord(queries=queries, withdrawn=withdrawn, attempted=attempted):
            lines = [("asked", "yellow", query_line(query, room - 13)) for query in queries]
            lines += [("attempt", "cyan", query.id) for query in queries] if attempted else []
            lines += [("withdrew", None, ", ".join(withdrawn))] if withdrawn else []
            return lines or [("waits", "yellow", "for the answers that are still open")]
        case RefusedRecord(queries=count, failure=failure):
            return [("refused", "red", one_line(f"{count} queries: {failure.message}", room))]
        case AttemptedRecord(query_id=asked, driver=driver):
            return [("attempt", "cyan", f"{asked:<5} {driver}")]
        case InterruptedRecord(query_id=asked, was_begun=was_begun):
            why = "by a shutdown of its process" if was_begun else "before it was begun"
            return [("stopped", "magenta", f"{asked:<5} {why}")]
        case AnsweredRecord(query_id=asked, answer=Failure(message=message, code=code), by=by):
            return [("failed", "red", f"{asked:<5} {one_line(f'{message} ({code}){_by(by)}', room - 6)}")]
        case AnsweredRecord(query_id=asked, answer=answer, by=by):
            value = _readable(getattr(answer, "value", None))
            return [("answered", "green", f"{asked:<5} {one_line(value, room - 6 - len(_by(by)))}{dim(_by(by))}")]
        case AssignedRecord(llm=llm, by=by):
            return [("assigned", None, f"{one_line(f'its llm queries are answered by: {llm}', room)}{dim(_by(by))}")]
        case LabelledRecord(title=title, labels=labels, by=by):
            named = [*([title] if title is not None else []), *(f"#{label}" for label in labels or ())]
            return [("labelled", None, f"{one_line(' '.join(named) or 'without labels', room)}{dim(_by(by))}")]
        case AdoptedRecord(by=by):
            return [("adopted", None, f"it may run here{dim(_by(by))}")]
        case LoggedRecord(message=message, level=level):
            return [("log", None, one_line(f"{level}: {message}", room))]
        case ProgressedRecord(step=step, total=total, message=message):
            return [("progress", None, one_line(f"{step} of {total}{f': {message}' if message else ''}", room))]
        case StatRecord(key=key, value=value):
            return [("stat", None, one_line(f"{key} = {one_line(value, room)}", room))]
        case PatchedRecord(name=name):
            return [("patched", None, one_line(name, room))]
        case TurnRecord(outcome=outcome):
            text = one_line(encode(outcome).decode(), room)
            return [("turn", "red" if isinstance(outcome, StoppedOutcome) else "green", text)]
        case CallRecord(call_id=call_id, done=done):
            return [("call", "red", one_line(f"{call_id}: {one_line(done.content, room)}", room))]
        case FrameRecord(reason=reason, summary=summary):
            return [("frame", None, one_line(f"summarised ({reason}): {summary}", room))]
        case EnqueuedRecord(item=item, by=by):
            said = item.command.name if item.command is not None else "".join(_text(block) for block in item.content)
            return [("enqueued", None, one_line(f"{item.id}: {said}{_by(by)}", room))]
        case JoinedRecord(turn=turn, items=items):
            return [("joined", None, one_line(f"{', '.join(items)} joined {turn}", room))]
        case DequeuedRecord(item_id=item_id, reason=reason, by=by):
            return [("dequeued", "magenta", one_line(f"{item_id}: {reason or 'no reason given'}{_by(by)}", room))]
        case StopRecord(turn=turn, reason=reason, by=by):
            return [("stop", "magenta", one_line(f"{turn}: {reason or 'no reason given'}{_by(by)}", room))]
        case ConfiguredRecord(change=change, by=by):
            return [("configured", "magenta", one_line(f"{encode(change).decode()}{_by(by)}", room))]
        case CompletedRecord(result=result):
            return [("completed", "green", one_line(result, room))]
        case FailedRecord(error=error):
            return [("failed", "red", one_line(error, room))]
        case CancelledRecord(reason=reason, by=by):
            return [("cancelled", "magenta", one_line(f"{reason or 'no reason given'}{_by(by)}", room))]
        case ExpiredRecord(reason=reason):
            return [("expired", "magenta", one_line(reason, room))]
        case _:
            return [(type_of(record), None, one_line(encode(record).decode(), room))]


def _readable(value: Json) -> Json:
    """The text of a turn's input or of a model's reply; any other value as it is."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        return value
    texts = [str(block["text"]) for block in content if block["type"] == "text" and block.get("text")]
    calls = [f"calls {block.get('name')}" for block in content if block["type"] == "tool_use"]
    return ", ".join([*texts, *calls]) or value


def _by(by: str | None) -> str:
    return f"  (by {by})" if by else ""


def _text(block: ContentBlock) -> str:
    return block.text if isinstance(block, TextBlock) else "[a picture]"
