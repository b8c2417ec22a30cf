"""`sessions`: list sessions, newest first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, dim, one_line, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.machine.queries import ApprovalCall
    from holdfast.store.contract import Store
    from holdfast.store.session_rows import SessionPage, SessionRow

_STATES = ["running", "paused", "imported", "completed", "failed", "cancelled", "expired"]
_EVALUATION, _PART = "holdfast.evaluation", "evaluation.part"
"""The program of evaluations, and the label of their trials, which are folded. A test compares them with the originals,
whose import takes longer than the rest of the list."""

_TITLE_CHARS = 60
"""Characters of a title: more would only be read in `show`."""

_KINDS = ["llm", "tool", "human", "timer", "child", "input"]


@click.command("sessions")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these states. Repeatable.")
@click.option("--program", metavar="NAME", help="Only sessions of this strategy.")
@click.option("--waiting-for", type=click.Choice(_KINDS), help="Only sessions that wait for this kind of query.")
@click.option("--parent", type=SessionType(), metavar="SESSION", help="Only children of this session.")
@click.option("--children", is_flag=True, help="Also list children and trials, each in a row of its own.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Sessions per page.")
@click.option("--after", metavar="CURSOR", help="Show the page after this cursor.")
@common()
def sessions_command(
    *,
    states: tuple[str, ...],
    program: str | None,
    waiting_for: str | None,
    parent: str | None,
    children: bool,
    limit: int,
    after: str | None,
) -> int:
    """List sessions, newest first, each with its title or the beginning of its task.

    Children, and the trials of an evaluation, are counted beside the session that they belong to; --parent lists those
    of one session. With any other filter they have rows of their own.
    """
    is_folded = not (states or program or waiting_for or parent or children)

    async def read_page() -> tuple[SessionPage, dict[str, list[ApprovalCall]], dict[str, int]]:
        from holdfast.core.state import State
        from holdfast.store.session_rows import SessionFilter

        async with open_store() as store:
            above = await find_session(store, parent) if parent is not None else None
            is_evaluation = above is not None and (await store.session(above)).summary.program == _EVALUATION
            where = SessionFilter(
                states=tuple(map(State, states)),
                program=program,
                waiting_for=waiting_for,
                parent=None if is_evaluation else above,
                id_prefix=f"{above}." if is_evaluation else None,
                children=False if is_folded else None,
                without_labels=[_PART] if is_folded else (),
            )
            page = await store.sessions(where, after=after, limit=limit)
            return page, await _calls_to_approve(store, page.rows), await _counts_below(store, page.rows)

    page, approvals, below = asyncio.run(read_page())
    if settings().json:
        shown = [
            _row_to_json(row, approvals.get(row.session_id, []), below.get(row.session_id, 0)) for row in page.rows
        ]
        print_json({"sessions": shown, "next": page.next, "damaged": page.damaged})
        return ExitCode.OK
    if page.rows:
        rows = [_row(row, approvals.get(row.session_id, []), below.get(row.session_id, 0)) for row in page.rows]
        print_table(["SESSION", "STATE", "PROGRAM", "TITLE", "WAITS FOR", "UPDATED"], rows, states=1)
    else:
        is_filtered = bool(states or program or waiting_for or parent or after)
        click.echo("No sessions match." if is_filtered else "No sessions yet. Start one: holdfast run FILE.py:name")
    if page.next is not None:
        click.echo(dim(f"\nMore: repeat with --after {page.next}"))
    if page.damaged:
        ids = ", ".join(page.damaged)
        click.echo(f"\n{len(page.damaged)} cannot be listed ({ids}); `holdfast doctor` repairs them", err=True)
    return ExitCode.OK


async def _calls_to_approve(store: Store, rows: Sequence[SessionRow]) -> dict[str, list[ApprovalCall]]:
    """By session, the calls that wait for somebody to approve them."""
    asking = [row for row in rows if "human" in row.summary.waiting_for.split(",")]
    if not asking:
        return {}  # and without a look at agents, which takes longer than the rest of the list
    from holdfast.agent.machine.kind import KIND
    from holdfast.cli.display.calls import call_to_approve
    from holdfast.core.errors import HoldfastError
    from holdfast.core.state import Session

    found: dict[str, list[ApprovalCall]] = {}
    for row in asking:
        if row.summary.program_kind == KIND:
            with contextlib.suppress(HoldfastError):  # `show` says what is wrong with it
                session = Session.fold(row.session_id, [entry async for entry in store.journal(row.session_id)])
                calls = (call_to_approve(pending.query) for pending in session.pending.values())
                found[row.session_id] = [call for call in calls if call is not None]
    return found


async def _counts_below(store: Store, rows: Sequence[SessionRow]) -> dict[str, int]:
    """By session, how many others belong to it: children, or what an evaluation consists of (trials and judges)."""
    from holdfast.store.session_rows import SessionFilter

    counts: dict[str, int] = {}
    for row in rows:
        if row.summary.program == _EVALUATION:
            where = SessionFilter(id_prefix=f"{row.session_id}.", labels=[_PART])
        else:
            where = SessionFilter(parent=row.session_id)
        counts[row.session_id] = sum(each.sessions for each in (await store.totals(where, by=())).rows)
    return counts


def _row(row: SessionRow, approvals: list[ApprovalCall], below: int) -> list[str]:
    summary = row.summary
    waits = f"{summary.pending} {summary.waiting_for}" if summary.pending else ""
    if approvals:
        from holdfast.cli.display.calls import call_line

        more = f" and {len(approvals) - 1} more" if len(approvals) > 1 else ""
        waits = f"approval: {call_line(approvals[0], 60)}{more}"
    program = f"{summary.program} (+{below:,})" if below else summary.program
    title = one_line(summary.title, _TITLE_CHARS)
    return [row.session_id, str(summary.state), program, title, waits, ago(summary.updated_at)]


def _row_to_json(row: SessionRow, approvals: list[ApprovalCall], below: int) -> dict[str, Any]:
    summary = row.summary
    return {
        "session_id": row.session_id,
        "state": str(summary.state),
        "strategy": summary.program,
        "kind": summary.program_kind,
        "title": summary.title,
        **({"below": below} if below else {}),
        "parent": summary.parent,
        "created_at": summary.created_at,
        "updated_at": summary.updated_at,
        "pending_queries": summary.pending,
        "waiting_for": summary.waiting_for.split(",") if summary.waiting_for else [],
        **({"approvals": approvals} if approvals else {}),
        "due_at": summary.due_at,
        "position": row.position,
        "owner": row.owner,
    }
