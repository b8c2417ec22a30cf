"""`top`: the sessions at work, on one screen that keeps itself up to date."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.display.keys import on_keys
from holdfast.cli.display.live_block import LiveBlock, Renderer, can_redraw
from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, duration, plain, print_json, print_rich, state_colour, width
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.core.queries import Query
    from holdfast.core.state import Session
    from holdfast.engine.waits import Wait
    from holdfast.store.contract import Store
    from holdfast.store.session_rows import SessionRow
    from holdfast.store.watch import Watch

REFRESH_S = 0.5
"""Seconds between two looks at the store while it changes: faster than anybody reads."""

IDLE_S = 2.0
"""Seconds after which ages are redrawn although nothing has changed."""

MOST_ROWS = 200
"""Sessions shown at most: each is read from its journal when it changes."""

_ORDERS = ("newest", "updated", "tokens", "program")
"""The orders of the list."""


@click.command("top")
@click.option("--once", is_flag=True, help="Print them once, and exit.")
@click.option("--sort", type=click.Choice(_ORDERS), default="newest", show_default=True, help="Their order.")
@click.option("--all", "all_", is_flag=True, help="Include sessions that have ended.")
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), help="Sessions shown.  [default: as many as fit]")
@common()
def top_command(once: bool, sort: str, all_: bool, limit: int | None) -> int:
    """See the sessions at work: their program, their owner, what they wait for, their inbox and their tokens.

    On a terminal, s changes the order and q leaves. Without one they are printed once; with --json, as one line each
    time something changes.
    """
    try:
        asyncio.run(_top(once or not (settings().json or can_redraw()), sort, all_, limit))
    except KeyboardInterrupt:
        return ExitCode.OK  # the usual way to leave
    return ExitCode.OK


async def _top(once: bool, order: str, all_: bool, limit: int | None) -> None:
    async with open_store() as store:
        reader = _RowReader(store, all_, limit)
        if once:
            rows, more = await reader.rows()
            _print(_as_trees(rows, order), more)
            return
        with store.watch() as changes:
            if settings().json:
                while True:
                    rows, more = await reader.rows()
                    _print(_as_trees(rows, order), more)
                    sys.stdout.flush()
                    await changes.changed()
                    await asyncio.sleep(REFRESH_S)
            screen = _Screen(order)
            refreshing = asyncio.ensure_future(_refresh(screen, reader, changes))
            screen.on_quit = refreshing.cancel
            with on_keys(screen.press), contextlib.suppress(asyncio.CancelledError):
                await refreshing


async def _refresh(screen: _Screen, reader: _RowReader, changes: Watch) -> None:
    while True:
        screen.show(*await reader.rows())
        await changes.changed(timeout=IDLE_S)
        await asyncio.sleep(REFRESH_S)


class _Screen:
    """The list on a terminal, which is drawn anew when the sessions change, or a key is pressed."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._rows: list[_Row] = []
        self._more = False
        self._block, self._renderer = LiveBlock(), Renderer()
        self.on_quit: Callable[[], object] = lambda: None

    def show(self, rows: list[_Row], more: bool) -> None:
        self._rows, self._more = rows, more
        self._draw()

    def press(self, key: str) -> None:
        match key:
            case "q":
                self.on_quit()
            case "s":
                self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
                self._draw()
            case _:
                pass

    def _draw(self) -> None:
        rows = _as_trees(self._rows, self._order)
        table = self._renderer.lines(_table(rows, self._renderer.width), is_cut=True)
        keys = f"q quits, s sorts; now: {self._order}" if rows else "q quits"
        foot = " ".join(filter(None, [_note(rows, self._more), keys]))
        self._block.show([*table, dim(foot[: self._renderer.width])])


class _Row:
    """What is shown of a session."""

    def __init__(self, row: SessionRow, session: Session, wait: Wait | None, limits: list[str]) -> None:
        from holdfast.agent.machine.fold import agent_fold
        from holdfast.agent.machine.queries import InputQuery

        summary = row.summary
        self.session_id = row.session_id
        self.state = str(summary.state)
        self.program = summary.program
        self.owner = row.owner
        self.created_at, self.updated_at = summary.created_at, summary.updated_at
        pending = [each.query for each in session.pending.values()]
        self.waits = [_awaited(query) for query in pending if not isinstance(query, InputQuery)]
        self.is_between_turns = any(isinstance(query, InputQuery) for query in pending)
        self.missing = wait.missing if wait is not None and wait.is_stuck and row.owner is None else []
        self.limits = limits
        """The limits of the fleet that calls of it wait for."""
        self.queue = len(agent_fold(session).inbox.waiting)
        self.tokens = session.metrics.total_tokens
        self.cost = session.metrics.cost
        self.parent = summary.parent
        self.depth = 0
        """How many of its ancestors are shown above it."""

    @property
    def name(self) -> str:
        """Its id; below its parent, what that adds to the parent's."""
        if not self.depth:
            return self.session_id
        return "  " * (self.depth - 1) + "└ " + self.session_id.removeprefix(f"{self.parent}")

    def place_in(self, order: str) -> tuple[str, int]:
        """What an order sorts by."""
        match order:
            case "updated":
                return "", -self.updated_at
            case "tokens":
                return "", -self.tokens
            case "program":
                return self.program, -self.created_at
            case _:
                return "", -self.created_at

    def to_json(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "parent": self.parent,
            "state": self.state,
            "program": self.program,
            "owner": self.owner,
            "waits_for": self.waits,
            "between_turns": self.is_between_turns,
            "missing": self.missing,
            "limits": self.limits,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "queue": self.queue,
            "tokens": self.tokens,
            "cost": self.cost,
        }


class _RowReader:
    """Reads the rows. Sessions that have not changed are not read again."""

    def __init__(self, store: Store, all_: bool, limit: int | None) -> None:
        self._store = store
        self._all = all_
        self._limit = limit
        self._known: dict[str, Session] = {}

    async def rows(self) -> tuple[list[_Row], bool]:
        """The rows, and whether there are more."""
        from holdfast.core.state import State
        from holdfast.engine.process_rows import processes
        from holdfast.engine.waits import messages_left, wait_of
        from holdfast.store.session_rows import SessionFilter

        where = None if self._all else SessionFilter(states=[State.RUNNING, State.PAUSED, State.IMPORTED])
        page = await self._store.sessions(where, limit=self._limit or _rows_that_fit())
        here, now = await processes(self._store), int(time.time() * 1000)
        read = [(row, session) for row in page.rows if (session := await self._read(row)) is not None]
        mail = {
            row.session_id: await messages_left(self._store, row.session_id)
            for row, session in read
            if row.owner is None and not session.is_terminal
        }
        limits: dict[str, dict[str, None]] = {}
        for each in await self._store.permit_waits([row.session_id for row, _ in read]) if read else []:
            limits.setdefault(each.session_id, {})[each.counter] = None
        rows = [
            _Row(row, session, wait_of(session, here, now, mail.get(session.id, 0)), [*limits.get(session.id, ())])
            for row, session in read
        ]
        shown = {row.session_id for row in rows}
        self._known = {session_id: session for session_id, session in self._known.items() if session_id in shown}
        return rows, page.next is not None

    async def _read(self, row: SessionRow) -> Session | None:
        """The session, or None if it is deleted or damaged; `doctor` reports damage."""
        from holdfast.core.errors import HoldfastError
        from holdfast.core.state import Session

        session = self._known.get(row.session_id) or Session(row.session_id)
        try:
            if session.position < row.position:
                async for entry in self._store.journal(row.session_id, session.position):
                    session.apply(entry)
        except HoldfastError:
            return None
        self._known[row.session_id] = session
        return session


def _as_trees(rows: list[_Row], order: str) -> list[_Row]:
    """The rows in an order, with children below their parents, where those are shown as well."""
    by_id = {row.session_id: row for row in rows}
    below: dict[str, list[_Row]] = {}
    for row in reversed(rows):  # the oldest child first
        if row.parent in by_id:
            below.setdefault(row.parent, []).append(row)

    def tree(row: _Row, depth: int) -> list[_Row]:
        row.depth = depth
        return [row, *(each for child in below.get(row.session_id, []) for each in tree(child, depth + 1))]

    tops = sorted((row for row in rows if row.parent not in by_id), key=lambda row: row.place_in(order))
    return [each for row in tops for each in tree(row, 0)]


def _rows_that_fit() -> int:
    """How many rows fit on the terminal, with a heading above and a line below."""
    return max(1, min(MOST_ROWS, shutil.get_terminal_size().lines - 4)) if can_redraw() else MOST_ROWS


def _awaited(query: Query) -> str:
    """What a session waits for, in a word or two."""
    from holdfast.agent.machine.queries import ApprovalQuery
    from holdfast.core.queries import ChildQuery, ToolQuery

    match query:
        case ToolQuery(name=name):
            return f"tool {name}"
        case ApprovalQuery(approves=call):
            return f"approval of {call.tool}"
        case ChildQuery(program=program):
            return f"child {program}"
        case _:
            return query.kind


def _print(rows: list[_Row], more: bool) -> None:
    if settings().json:
        print_json({"sessions": [row.to_json() for row in rows], "more": more})
        return
    if rows:
        print_rich(_table(rows, width()))
    if note := _note(rows, more):
        click.echo(dim(note))


def _note(rows: list[_Row], more: bool) -> str:
    if not rows:
        return "No sessions at work; `holdfast sessions` lists all."
    return f"The newest {len(rows)}; there are more." if more else ""


def _table(rows: list[_Row], columns: int) -> Table:
    """The rows as a table that fits: what a session waits for has the space that is left; owners need a wide one."""
    from rich.table import Table
    from rich.text import Text

    now = int(time.time() * 1000)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", width=columns)
    is_wide = columns >= 100
    table.add_column("SESSION", no_wrap=True, overflow="ellipsis", max_width=28 if is_wide else 16)
    table.add_column("STATE", no_wrap=True, width=9)
    table.add_column("PROGRAM", no_wrap=True, overflow="ellipsis", max_width=24 if is_wide else 12)
    if is_wide:
        table.add_column("OWNER", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column("WAITS FOR", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("AGE", no_wrap=True, justify="right", width=8)
    table.add_column("INBOX", no_wrap=True, justify="right", width=5)
    table.add_column("TOKENS", no_wrap=True, justify="right", width=6)
    for row in rows:
        waits = ", ".join(_with_counts(row.waits)) or ("the next input" if row.is_between_turns else "")
        if row.state == "imported":
            waits = "somebody to adopt it"
        elif row.limits:
            waits = f"the limit {', '.join(row.limits)}"
        elif row.missing:
            waits = f"a process that serves {', '.join(row.missing)}"
        table.add_row(
            plain(row.name),
            Text(row.state, style=state_colour(row.state)),
            Text(plain(row.program)),
            *([plain(row.owner or "")] if is_wide else []),
            Text(plain(waits)),
            duration(max(0, now - row.created_at)),
            str(row.queue or ""),
            _short_count(row.tokens),
        )
    return table


def _with_counts(waits: list[str]) -> list[str]:
    """Each item once, with its count."""
    counts: dict[str, int] = {}
    for each in waits:
        counts[each] = counts.get(each, 0) + 1
    return [each if count == 1 else f"{count} {each}" for each, count in counts.items()]


def _short_count(count: int) -> str:
    """A count in few characters."""
    if count < 100_000:
        return str(count or "")
    return f"{count / 1000:.0f}k" if count < 10_000_000 else f"{count / 1_000_000:.0f}M"
