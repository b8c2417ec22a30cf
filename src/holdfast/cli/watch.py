"""`watch`: the timeline of a session as it grows, and what the model is saying."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.display.live_block import LiveBlock, Renderer, can_redraw, no_echo
from holdfast.cli.display.timeline import timeline
from holdfast.cli.engine import open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, plain, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.observed_events import Draft, ObservedEvent
    from holdfast.agent.observer import Observer

_DRAFT_LINES = 12
"""Lines shown of a draft: the latest. The settled message is shown in full."""


@click.command("watch")
@click.argument("session", type=SessionType())
@click.option("--from", "from_", metavar="CURSOR", help="Show only what came after this cursor, or journal position.")
@common()
def watch_command(session: str, from_: str | None) -> int:
    """Follow a session: what has happened, then each new entry and what the model is saying, until it ends."""
    return asyncio.run(_watch(session, from_))


async def _watch(id_or_prefix: str, from_: str | None) -> int:
    from holdfast.agent.observer import Observers

    async with open_engine() as hf:
        session_id = await find_session(hf.store, id_or_prefix)
        observer = Observers(hf).observe(session_id, entries=True)
        cursor = await _find_cursor(observer, from_)
        show = _print_json if settings().json else _Screen(observer).show
        seen: ObservedEvent | None = None
        try:
            with no_echo() if can_redraw() else contextlib.nullcontext():
                async for seen in observer.subscribe_from(cursor):
                    show(seen)
        except asyncio.CancelledError:
            if seen is not None and not settings().json:
                click.echo(f"\nContinue with: holdfast watch {session_id} --from {seen.cursor}", err=True)
            raise
        row = await hf.store.session(session_id)
    return ExitCode.OK if row.summary.state == "completed" else ExitCode.ENDED_BADLY


async def _find_cursor(observer: Observer, from_: str | None) -> str | None:
    """The cursor for a cursor or position; a position past the end means the end."""
    from holdfast.core.cursors import Cursor, cursor_text, read_cursor

    if from_ is None or not from_.isdecimal():
        return from_
    here = read_cursor((await observer.current()).cursor, observer.session_id)
    return cursor_text(Cursor(here.session_id, here.born, min(int(from_), here.position)))


def _print_json(seen: ObservedEvent) -> None:
    from holdfast.agent.observed_events import EntryEvent, GapEvent, RedrawEvent

    match seen.event:
        case EntryEvent(entry=entry):
            fields: dict[str, Any] = msgspec.to_builtins(entry)
        case RedrawEvent(observation=observation) | GapEvent(observation=observation):
            fields = {"live": {"type": "redraw", "drafts": msgspec.to_builtins(observation.drafts)}}
        case event:
            fields = {"live": msgspec.to_builtins(event)}
    print_json({**fields, "cursor": seen.cursor})
    sys.stdout.flush()


class _Screen:
    """The timeline; below it, on a terminal, what the model is saying."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._block = LiveBlock()
        self._renderer = Renderer()
        self._is_live = can_redraw()

    def show(self, seen: ObservedEvent) -> None:
        from holdfast.agent.observed_events import EntryEvent, GapEvent

        is_printed = isinstance(seen.event, EntryEvent | GapEvent)
        if self._is_live and is_printed:
            self._block.show([])
            self._block.keep()
        match seen.event:
            case EntryEvent(entry=entry):
                for line in timeline(entry):
                    click.echo(line)
            case GapEvent():
                click.echo(dim("      another session has this id now; `holdfast show` prints it"))
            case _:
                pass
        if self._is_live:
            sys.stdout.flush()
            self._block.show([line for draft in self._observer.drafts for line in self._draft_lines(draft)])

    def _draft_lines(self, draft: Draft) -> list[str]:
        from rich.text import Text

        text = draft.text or draft.reasoning
        if not text:
            return []
        lines = self._renderer.lines(Text(plain(text), style="italic" if not draft.text else ""), indent=6)
        return [dim(f"      {draft.call or draft.model or 'the model'} …"), *lines[-_DRAFT_LINES:]]
