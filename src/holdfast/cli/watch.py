"""`watch`: the timeline of a session as it grows, with what is said in it as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.lookup import SessionType, find_session, opened
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, plain, print_json
from holdfast.cli.tail import Pen, Tail, can_move, unechoed
from holdfast.cli.timeline import timeline
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.observed_events import Draft, ObservedEvent
    from holdfast.agent.observer import Observer

_DRAFT_LINES = 12
"""Lines of what is being said that are shown: the latest. It is told in full when it is settled."""


@click.command("watch")
@click.argument("session", type=SessionType())
@click.option("--from", "from_", metavar="CURSOR", help="Only what came after this cursor, or position of the journal.")
@common()
def watch_command(session: str, from_: str | None) -> int:
    """Follow a session: what has happened, then each new entry, and what is said meanwhile, until it ends."""
    return asyncio.run(_watch(session, from_))


async def _watch(given: str, from_: str | None) -> int:
    from holdfast.agent.observer import Observers

    async with opened() as store:
        session_id = await find_session(store, given)
        observers = Observers(store)
        observer = observers.observe(session_id, entries=True)
        cursor = await _cursor(observer, from_)
        show = _as_json if settings().json else _Screen(observer).show
        seen: ObservedEvent | None = None
        try:
            with unechoed() if can_move() else contextlib.nullcontext():
                async for seen in observer.subscribe_from(cursor):
                    show(seen)
        except asyncio.CancelledError:
            if seen is not None and not settings().json:
                click.echo(f"\nGo on with: holdfast watch {session_id} --from {seen.cursor}", err=True)
            raise
        finally:
            observers.close()
        row = await store.session(session_id)
    return ExitCode.OK if row.summary.state == "completed" else ExitCode.ENDED_BADLY


async def _cursor(observer: Observer, from_: str | None) -> str | None:
    """The cursor that is meant. A position past the end is the end."""
    from holdfast.core.cursors import Cursor, cursor_text, read_cursor

    if from_ is None or not from_.isdecimal():
        return from_
    here = read_cursor((await observer.current()).cursor, observer.session_id)
    return cursor_text(Cursor(here.session_id, here.born, min(int(from_), here.position)))


def _as_json(seen: ObservedEvent) -> None:
    from holdfast.agent.observed_events import EntryEvent, GapEvent, RedrawEvent

    match seen.event:
        case EntryEvent(entry=entry):
            told: dict[str, Any] = msgspec.to_builtins(entry)
        case RedrawEvent(observation=observation) | GapEvent(observation=observation):
            told = {"live": {"type": "redraw", "drafts": msgspec.to_builtins(observation.drafts)}}
        case event:
            told = {"live": msgspec.to_builtins(event)}
    print_json({**told, "cursor": seen.cursor})
    sys.stdout.flush()


class _Screen:
    """The timeline; below it, on a terminal, what is being said."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._tail = Tail()
        self._pen = Pen()
        self._moves = can_move()

    def show(self, seen: ObservedEvent) -> None:
        from holdfast.agent.observed_events import EntryEvent, GapEvent

        is_told = isinstance(seen.event, EntryEvent | GapEvent)
        if self._moves and is_told:
            self._tail.show([])
            self._tail.keep()
        match seen.event:
            case EntryEvent(entry=entry):
                for line in timeline(entry):
                    click.echo(line)
            case GapEvent():
                click.echo(dim("      the session under this id is another one by now; what it is stands in `show`"))
            case _:
                pass
        if self._moves:
            sys.stdout.flush()
            self._tail.show([line for draft in self._observer.drafts for line in self._lines(draft)])

    def _lines(self, draft: Draft) -> list[str]:
        from rich.text import Text

        said = draft.text or draft.reasoning
        if not said:
            return []
        lines = self._pen.lines(Text(plain(said), style="italic" if not draft.text else ""), indent=6)
        return [dim(f"      {draft.call or draft.model or 'the model'} …"), *lines[-_DRAFT_LINES:]]
