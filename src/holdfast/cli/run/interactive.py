"""The interactive mode: a person at a terminal answers what a session asks, one query at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.cli.approval import ask_decision, attention
from holdfast.cli.display.calls import call_to_approve
from holdfast.cli.display.events import how_to_answer_first, is_chat_query, print_event, show_query
from holdfast.cli.engine import open_store
from holdfast.cli.models import MODEL_VARIABLE
from holdfast.cli.options import serve_words, settings
from holdfast.cli.output import dim, heading, plain
from holdfast.cli.session_lookup import check_runs_here
from holdfast.core.errors import AnswerConflictError, ExitCode, StaleQueryError
from holdfast.core.events import AcceptedEvent, Event, PausedEvent, RunningEvent, SentEvent
from holdfast.core.queries import HumanQuery, LlmQuery, Query, ToolQuery
from holdfast.engine.sync import SyncHoldfast, open_sync
from holdfast.engine.upkeep import Upkeep

if TYPE_CHECKING:
    from holdfast.cli.run.model import SessionModel

POLL_S = 0.2
"""Seconds between looks at a session that runs by itself: short, so that Ctrl-C works and nobody waits."""

_BLOCK = '"""'


def ask_person(begin: Callable[[SyncHoldfast], Event], model: SessionModel | None = None) -> int:
    """Begin, then ask the person whatever the session and its children ask, until it ends or the person leaves.

    If there is a model, it answers the llm queries.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing, and lines longer than the terminal's 4,096
    session_id, event = "", None
    try:
        engine = model.sync_engine() if model else _open_engine()
        with engine as hf:
            begun = event = begin(hf)
            session_id = begun.session_id
            with _display_held(model):
                click.echo(f"{heading('Session')} {session_id}  {dim('(Ctrl-C leaves it waiting)')}")
                click.echo(dim(_who_answers(begun)) + "\n" if model is None else "")
            for latest in _conversation(hf, begun, model):
                event = latest  # what the session waits for if the person leaves now
        return print_event_with_hint(event, model)
    except (EOFError, KeyboardInterrupt) as left:
        if model is not None and model.calls.has_begun:
            session_id = model.session_id  # it has asked something, so it is in the store
        if not session_id:
            raise
        by_model = " --model SERVICE:MODEL" if model else ""
        click.echo(f"\n\nSession {session_id} waits; nothing is lost.")
        click.echo(f"Continue with: holdfast run --resume {session_id}{by_model}{serve_words()}")
        if isinstance(event, PausedEvent):
            click.echo(how_to_answer_first(event))
        return ExitCode.OK if isinstance(left, EOFError) else ExitCode.INTERRUPTED


def _who_answers(event: Event) -> str:
    """What to say before the first question for a model if there is none."""
    if not isinstance(event, PausedEvent) or not any(isinstance(each, LlmQuery) for each in event.queries):
        return ""
    return (
        f"No model is named, so its questions come to you. --model SERVICE:MODEL, {MODEL_VARIABLE} or model in"
        " holdfast.toml lets one answer."
    )


def _open_engine() -> SyncHoldfast:
    return open_sync(settings().url(create=True), upkeep=Upkeep(), service=settings().services)


def print_event_with_hint(event: Event, model: SessionModel | None) -> int:
    """Print an event, and what to do if the model failed; return the exit code."""
    code = print_event(event)
    if settings().json:
        return code
    if isinstance(event, PausedEvent) and (
        model is not None or any(isinstance(each, LlmQuery) for each in event.queries)
    ):
        whose = "the model continue" if model is not None else "a model answer"
        click.echo(
            dim(f"Let {whose} with: holdfast run --resume {event.session_id} --model SERVICE:MODEL{serve_words()}")
        )
    elif model is not None and code != ExitCode.OK and (hint := model.calls.hint()):
        click.echo(f"What to do: {hint}.", err=True)
    return code


def _display_held(model: SessionModel | None) -> contextlib.AbstractContextManager[None]:
    return model.calls.held() if model is not None else contextlib.nullcontext()


def _conversation(hf: SyncHoldfast, event: Event, model: SessionModel | None) -> Iterator[Event]:
    """Ask the person at each event; the last event is that with which there is nothing more to ask here."""
    session_id, shown = event.session_id, ""
    while True:
        yield event
        match event:
            case PausedEvent(queries=[query, *others]) if not is_chat_query(query):
                shown = ""
                more = dim(f"  ({len(others)} more after this)") if others else ""
                with _display_held(model):
                    click.echo(show_query(query) + more)
                    left = _answer(hf, session_id, query)
                if left is not None:
                    yield left
                    return
            case AcceptedEvent():
                pass
            case RunningEvent(waits_for=kinds, why=why):
                waits = f"Waiting for {', '.join(kinds) or 'the program'} …"
                if model is not None and "llm" in kinds:
                    pass  # the calls are shown
                elif waits != shown:
                    click.echo(dim(waits))
                    shown = waits
                    asyncio.run(_check_runs_here(session_id))
                if why:
                    return
                time.sleep(POLL_S)
            case _:
                return
        event = hf.resume(session_id, wait=0)


async def _check_runs_here(session_id: str) -> None:
    async with open_store() as store:
        await check_runs_here(store, session_id)


def _answer(hf: SyncHoldfast, session_id: str, query: Query) -> SentEvent | None:
    """Ask the person, and answer the query; gives the event if the answer waits for a process that has the program."""
    from holdfast.core.decide import GivenAnswer
    from holdfast.core.queries import Value

    value = _read_answer(query)
    try:
        event = hf.feed(session_id, GivenAnswer(Value(value=value), query.id), by="person", wait=0)
    except (AnswerConflictError, InvalidDecisionError, StaleQueryError) as error:
        click.echo(f"{plain(str(error))}\n", err=True)  # if the query still waits, it is asked again
        return None
    click.echo()
    return event if isinstance(event, SentEvent) and (event.program or event.service) else None


def _read_answer(query: Query) -> Any:
    """An answer that fits the query."""
    if (call := call_to_approve(query)) is not None:
        with attention():
            return ask_decision(call, input)
    while True:
        text = _read_text()
        if not text.strip():
            click.echo(dim(f"Please type an answer; {_BLOCK} begins and ends one of several lines, Ctrl-D leaves."))
            continue
        if isinstance(query, HumanQuery) and query.choices:
            chosen = _find_choice(text.strip(), query.choices)
            if chosen is None:
                click.echo(dim(f"Please type a number from 1 to {len(query.choices)}, or the words of a choice."))
                continue
            return chosen
        if isinstance(query, ToolQuery):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return text


def _read_text() -> str:
    text = input("> ")
    if text.strip() != _BLOCK:
        return text
    lines: list[str] = []
    while (line := input("… ")).strip() != _BLOCK:
        lines.append(line)
    return "\n".join(lines)


def _find_choice(text: str, choices: list[str]) -> str | None:
    if text in choices:
        return text
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return next((choice for choice in choices if choice.casefold() == text.casefold()), None)
