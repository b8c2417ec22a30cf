"""The interactive mode: a person at a terminal answers what a session asks, one query at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.cli.approval import approved_call, ask, attention
from holdfast.cli.event_text import is_of_chat, show_query, tell
from holdfast.cli.lookup import check_runs_here, opened
from holdfast.cli.options import settings
from holdfast.cli.output import dim, heading, plain
from holdfast.core.errors import AnswerConflictError, ExitCode, StaleQueryError
from holdfast.core.events import AcceptedEvent, Event, PausedEvent, RunningEvent
from holdfast.core.queries import HumanQuery, Query, ToolQuery
from holdfast.engine.minder import Minder
from holdfast.engine.sync import SyncHoldfast, open_sync

if TYPE_CHECKING:
    from holdfast.cli.run_model import Driven

LOOK_S = 0.2
"""Seconds between looks at a session that goes on by itself: short, so that Ctrl-C is heard, and nobody waits."""

_BLOCK = '"""'


def ask_all(begin: Callable[[SyncHoldfast], Event], driven: Driven | None = None) -> int:
    """Begin, then ask the person whatever the session and its children ask, until it ends or they leave.

    What they ask a model is not asked, where there is one to drive them.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing, and lines longer than the terminal's 4,096
    session_id = ""
    try:
        opened = driven.sync_engine() if driven else open_sync(settings().url(create=True), minder=Minder())
        with opened as hf:
            event = begin(hf)
            session_id = event.session_id
            with _held(driven):
                click.echo(f"{heading('Session')} {session_id}  {dim('(Ctrl-C leaves it waiting)')}\n")
            event = _converse(hf, session_id, event, driven)
        return tell_driven(event, driven)
    except (EOFError, KeyboardInterrupt) as left:
        if driven is not None and driven.calls.has_begun:
            session_id = driven.session_id  # it has asked already, so it is in the store
        if not session_id:
            raise
        by_model = " --model …" if driven else ""
        click.echo(
            f"\n\nLeft; session {session_id} waits, and nothing is lost. Go on with\n"
            f"  holdfast run --resume {session_id}{by_model}\n"
            f"  holdfast answer {session_id} TEXT"
        )
        return ExitCode.OK if isinstance(left, EOFError) else ExitCode.INTERRUPTED


def tell_driven(event: Event, driven: Driven | None) -> int:
    """Print an event, and what to do if the model failed; the exit code."""
    code = tell(event)
    if driven is None or settings().json:
        return code
    if isinstance(event, PausedEvent):
        click.echo(dim(f"The model goes on with: holdfast run --resume {event.session_id} --model …"))
    elif code != ExitCode.OK and (hint := driven.calls.hint()):
        click.echo(f"What to do: {hint}.", err=True)
    return code


def _held(driven: Driven | None) -> contextlib.AbstractContextManager[None]:
    return driven.calls.held() if driven is not None else contextlib.nullcontext()


def _converse(hf: SyncHoldfast, session_id: str, event: Event, driven: Driven | None) -> Event:
    told = ""
    while True:
        match event:
            case PausedEvent(queries=[query, *others]) if not is_of_chat(query):
                told = ""
                more = dim(f"  ({len(others)} more after this)") if others else ""
                with _held(driven):
                    click.echo(show_query(query) + more)
                    _answer(hf, session_id, query)
            case AcceptedEvent():
                pass
            case RunningEvent(waits_for=kinds):
                waits = f"Waiting for {', '.join(kinds) or 'the program'} …"
                if driven is not None and "llm" in kinds:
                    pass  # what is asked is shown
                elif waits != told:
                    click.echo(dim(waits))
                    told = waits
                    asyncio.run(_check(session_id))
                time.sleep(LOOK_S)
            case _:
                return event
        event = hf.resume(session_id, wait=0)


async def _check(session_id: str) -> None:
    async with opened() as store:
        await check_runs_here(store, session_id)


def _answer(hf: SyncHoldfast, session_id: str, query: Query) -> None:
    from holdfast.core.decide import Given
    from holdfast.core.queries import Value

    value = _read(query)
    try:
        hf.feed(session_id, Given(Value(value=value), query.id), by="person", wait=0)
    except (AnswerConflictError, InvalidDecisionError, StaleQueryError) as error:
        click.echo(f"{plain(str(error))}\n", err=True)  # if it still waits, it is asked again
    else:
        click.echo()


def _read(query: Query) -> Any:
    """An answer that fits the query."""
    if (call := approved_call(query)) is not None:
        with attention():
            return ask(call, input)
    while True:
        text = _read_text()
        if not text.strip():
            click.echo(dim(f"An answer, please; {_BLOCK} begins and ends one of several lines, Ctrl-D leaves."))
            continue
        if isinstance(query, HumanQuery) and query.choices:
            chosen = _choice(text.strip(), query.choices)
            if chosen is None:
                click.echo(dim(f"One of 1 to {len(query.choices)}, please, or the words of one."))
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


def _choice(text: str, choices: list[str]) -> str | None:
    if text in choices:
        return text
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return next((choice for choice in choices if choice.casefold() == text.casefold()), None)
