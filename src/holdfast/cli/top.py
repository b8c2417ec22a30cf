"""`top`: the sessions at work, on one screen, kept up while it is looked at."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.lookup import opened
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, duration, plain, print_json, print_rich, state_colour, width
from holdfast.cli.tail import Pen, Tail, can_move, unechoed
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.core.queries import Query
    from holdfast.core.state import Session
    from holdfast.store.contract import SessionRow, Store

REFRESH_S = 0.5
"""Seconds between two looks at the store while it changes: faster than anybody reads."""

IDLE_S = 2.0
"""Seconds after which ages are shown anew although nothing has changed."""

MOST_ROWS = 200
"""Sessions on one screen, and without a terminal: each is read from its journal when it changes."""


@click.command("top")
@click.option("--once", is_flag=True, help="Show them once, and leave.")
@click.option("--all", "all_", is_flag=True, help="Also sessions that have ended.")
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), help="Sessions shown: as many as fit, if it is not said.")
@common()
def top_command(once: bool, all_: bool, limit: int | None) -> int:
    """See the sessions at work: who owns each, what it waits for, what is in its inbox, and what it has used.

    The newest first. Without a terminal they are shown once; with --json, a line each time something has changed.
    """
    try:
        asyncio.run(_top(once or not (settings().json or can_move()), all_, limit))
    except KeyboardInterrupt:
        return ExitCode.OK  # that is how it is left
    return ExitCode.OK


async def _top(once: bool, all_: bool, limit: int | None) -> None:
    async with opened() as store:
        looking = _Looking(store, all_, limit)
        if once:
            _print(*await looking.rows())
            return
        tail, pen = Tail(), Pen()
        with unechoed(), store.watch() as changes:
            while True:
                rows, more = await looking.rows()
                if settings().json:
                    _print(rows, more)
                    sys.stdout.flush()
                    await changes.changed()
                else:
                    told = _told(rows, more)
                    table = pen.lines(_table(rows, pen.width), is_cut=True)
                    tail.show([*table, *([dim(told)] if told else [])])
                    await changes.changed(timeout=IDLE_S)
                await asyncio.sleep(REFRESH_S)


class _Row:
    """What is shown of a session."""

    def __init__(self, row: SessionRow, session: Session) -> None:
        from holdfast.agent.machine.fold import agent_fold
        from holdfast.agent.machine.queries import InputQuery

        summary = row.summary
        self.session_id = row.session_id
        self.state = str(summary.state)
        self.program = summary.program
        self.owner = row.owner
        self.created_at, self.updated_at = summary.created_at, summary.updated_at
        pending = [each.query for each in session.pending.values()]
        self.waits = [_waits(query) for query in pending if not isinstance(query, InputQuery)]
        self.is_between_turns = any(isinstance(query, InputQuery) for query in pending)
        self.queue = len(agent_fold(session).inbox.waiting)
        self.tokens = session.metrics.total_tokens
        self.cost = session.metrics.cost

    def to_json(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "state": self.state,
            "program": self.program,
            "owner": self.owner,
            "waits_for": self.waits,
            "between_turns": self.is_between_turns,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "queue": self.queue,
            "tokens": self.tokens,
            "cost": self.cost,
        }


class _Looking:
    """Reads what is shown. What has not changed is not read again."""

    def __init__(self, store: Store, all_: bool, limit: int | None) -> None:
        self._store = store
        self._all = all_
        self._limit = limit
        self._known: dict[str, Session] = {}

    async def rows(self) -> tuple[list[_Row], bool]:
        """The rows, and whether there are more than those."""
        from holdfast.core.state import State
        from holdfast.store.contract import SessionFilter

        where = None if self._all else SessionFilter(states=[State.RUNNING, State.PAUSED])
        page = await self._store.sessions(where, limit=self._limit or _room())
        rows = [_Row(row, session) for row in page.rows if (session := await self._folded(row)) is not None]
        shown = {row.session_id for row in rows}
        self._known = {session_id: session for session_id, session in self._known.items() if session_id in shown}
        return rows, page.next is not None

    async def _folded(self, row: SessionRow) -> Session | None:
        """The session as its journal tells; None if it is gone, or damaged: `doctor` tells of those."""
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


def _room() -> int:
    """Sessions that fit on the terminal, with a heading above and a line below."""
    return max(1, min(MOST_ROWS, shutil.get_terminal_size().lines - 4)) if can_move() else MOST_ROWS


def _waits(query: Query) -> str:
    """Whom a session waits for, in a word or two."""
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
    if told := _told(rows, more):
        click.echo(dim(told))


def _told(rows: list[_Row], more: bool) -> str:
    if not rows:
        return "No sessions at work; `holdfast sessions` lists all."
    return f"The newest {len(rows)}; there are more." if more else ""


def _table(rows: list[_Row], columns: int) -> Table:
    """As much of a row as fits: what a session waits for has what the others leave."""
    from rich.table import Table
    from rich.text import Text

    now = int(time.time() * 1000)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", width=columns)
    is_wide = columns >= 100
    table.add_column("SESSION", no_wrap=True, overflow="ellipsis", max_width=28 if is_wide else 18)
    table.add_column("STATE", no_wrap=True, width=9)
    table.add_column("OWNER", no_wrap=True, overflow="ellipsis", max_width=24 if is_wide else 10)
    table.add_column("WAITS FOR", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("AGE", no_wrap=True, justify="right", width=8)
    table.add_column("INBOX", no_wrap=True, justify="right", width=5)
    table.add_column("TOKENS", no_wrap=True, justify="right", width=7)
    for row in rows:
        waits = ", ".join(_counted(row.waits)) or ("the next input" if row.is_between_turns else "")
        table.add_row(
            plain(row.session_id),
            Text(row.state, style=state_colour(row.state)),
            plain(row.owner or ""),
            Text(plain(waits)),
            duration(max(0, now - row.created_at)),
            str(row.queue or ""),
            _short(row.tokens),
        )
    return table


def _counted(waits: list[str]) -> list[str]:
    """Each once, with how often."""
    counts: dict[str, int] = {}
    for each in waits:
        counts[each] = counts.get(each, 0) + 1
    return [each if count == 1 else f"{count} {each}" for each, count in counts.items()]


def _short(count: int) -> str:
    """A count in few characters."""
    if count < 100_000:
        return str(count or "")
    return f"{count / 1000:.0f}k" if count < 10_000_000 else f"{count / 1_000_000:.0f}M"
