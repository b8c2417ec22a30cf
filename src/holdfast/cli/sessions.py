"""`sessions`, `show`: commands that only look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.agent.machine.queries import ApprovalCall
from holdfast.cli.approval import approved_call, call_line, call_lines
from holdfast.cli.event_text import how_to_go_on
from holdfast.cli.lookup import SessionType, engine, find_session, opened
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, date, dim, duration, heading, one_line, plain, pretty, print_json, print_table
from holdfast.cli.output import state as coloured_state
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.core.records import Entry
    from holdfast.engine.holdfast import Holdfast
    from holdfast.store.contract import SessionPage, SessionRow, Store

_STATES = ["running", "paused", "completed", "failed", "cancelled", "expired"]
_KINDS = ["llm", "tool", "human", "timer", "child", "input"]


# --- sessions --------------------------------------------------------------------------------------


@click.command("sessions")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these states. Repeatable.")
@click.option("--program", metavar="NAME", help="Only sessions of this strategy.")
@click.option("--waiting-for", type=click.Choice(_KINDS), help="Only sessions that wait for such a query.")
@click.option("--parent", type=SessionType(), metavar="SESSION", help="Only children of this session.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Sessions on a page.")
@click.option("--after", metavar="CURSOR", help="The page after this cursor.")
@common()
def sessions_command(
    *,
    states: tuple[str, ...],
    program: str | None,
    waiting_for: str | None,
    parent: str | None,
    limit: int,
    after: str | None,
) -> int:
    """List sessions, the newest first."""

    async def listed() -> tuple[SessionPage, dict[str, list[ApprovalCall]]]:
        from holdfast.core.state import State
        from holdfast.store.contract import SessionFilter

        async with opened() as store:
            where = SessionFilter(
                states=[State(state) for state in states],
                program=program,
                waiting_for=waiting_for,
                parent=await find_session(store, parent) if parent is not None else None,
            )
            page = await store.sessions(where, after=after, limit=limit)
            return page, await _approvals(store, page.rows)

    page, approvals = asyncio.run(listed())
    if settings().json:
        shown = [_row_json(row, approvals.get(row.session_id, [])) for row in page.rows]
        print_json({"sessions": shown, "next": page.next, "damaged": page.damaged})
        return ExitCode.OK
    if page.rows:
        rows = [_row(row, approvals.get(row.session_id, [])) for row in page.rows]
        print_table(["SESSION", "STATE", "PROGRAM", "WAITS FOR", "UPDATED"], rows, states=1)
    else:
        restricted = bool(states or program or waiting_for or parent or after)
        click.echo("No such sessions." if restricted else "No sessions yet. Start one: holdfast run FILE.py:name")
    if page.next is not None:
        click.echo(dim(f"\nMore: the same with --after {page.next}"))
    if page.damaged:
        ids = ", ".join(page.damaged)
        click.echo(f"\n{len(page.damaged)} cannot be listed ({ids}); `holdfast doctor` repairs them", err=True)
    return ExitCode.OK


async def _approvals(store: Store, rows: Sequence[SessionRow]) -> dict[str, list[ApprovalCall]]:
    """By session, the calls that agents wait with until somebody approves them."""
    from holdfast.agent.machine.kind import KIND
    from holdfast.core.errors import HoldfastError
    from holdfast.core.state import Session

    found: dict[str, list[ApprovalCall]] = {}
    for row in rows:
        if row.summary.program_kind == KIND and "human" in row.summary.waiting_for.split(","):
            with contextlib.suppress(HoldfastError):  # `show` tells what is wrong with it
                session = Session.fold(row.session_id, [entry async for entry in store.journal(row.session_id)])
                calls = (approved_call(pending.query) for pending in session.pending.values())
                found[row.session_id] = [call for call in calls if call is not None]
    return found


def _row(row: SessionRow, approvals: list[ApprovalCall]) -> list[str]:
    summary = row.summary
    waits = f"{summary.pending} {summary.waiting_for}" if summary.pending else ""
    if approvals:
        more = f" and {len(approvals) - 1} more" if len(approvals) > 1 else ""
        waits = f"approval: {call_line(approvals[0], 60)}{more}"
    return [row.session_id, str(summary.state), summary.program, waits, ago(summary.updated_at)]


def _row_json(row: SessionRow, approvals: list[ApprovalCall]) -> dict[str, Any]:
    summary = row.summary
    return {
        "session_id": row.session_id,
        "state": str(summary.state),
        "strategy": summary.program,
        "kind": summary.program_kind,
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


# --- show ------------------------------------------------------------------------------------------


@click.command("show")
@click.argument("session", type=SessionType())
@click.option("--journal", is_flag=True, help="Also all that happened, in order.")
@click.option("--history", is_flag=True, help="Also the last exchanges with the model, in full.")
@common()
def show_command(session: str, journal: bool, history: bool) -> int:
    """Show one session: how it stands, what it waits for, what it spent, how it ended."""
    return asyncio.run(_show(session, journal, history))


async def _show(given: str, journal: bool, history: bool) -> int:
    from holdfast.core.errors import JournalError, TransitionError
    from holdfast.store.errors import CorruptSessionError

    async with engine() as hf:
        session_id = await find_session(hf.store, given)
        try:
            status = await hf.status(session_id, history=history)
        except (CorruptSessionError, JournalError, TransitionError):
            await _show_readable(hf, session_id)
            raise
        if settings().json:
            if journal:
                status["journal"] = [entry async for entry in hf.store.journal(session_id)]
            print_json(status)
            return ExitCode.OK
        _print_status(status)
        if journal:
            click.echo("\n" + heading("Journal"))
            async for entry in hf.store.journal(session_id):
                _print_entry(entry)
    return ExitCode.OK


async def _show_readable(hf: Holdfast, session_id: str) -> None:
    """As much of a damaged session as can be read."""
    if settings().json:
        return
    click.echo(f"{session_id}  {click.style('damaged', fg='red', bold=True)}; what can be read of its journal:")
    after = 0
    try:
        while entries := await hf.store.read(session_id, after, 1):
            _print_entry(entries[0])
            after = entries[0].position
    except Exception:
        return  # the damage itself is told by the error that led here


def _print_status(status: dict[str, Any]) -> None:
    sid, metrics = status["session_id"], status["metrics"]
    click.echo(f"{heading(sid)}  {coloured_state(status['phase'])}")
    tokens = metrics["tokens"]
    facts = {
        "program": status.get("strategy", ""),
        "started": f"{date(status['started_at'])} ({ago(status['started_at'])})",
        "last entry": f"{status['position']}, {ago(status['last_activity_at'])}",
        "spent": f"{metrics['llm_calls']} llm calls · {metrics['pauses']} pauses · {tokens['total']} tokens",
        "time": f"{duration(metrics['own_ms'])} running, {duration(metrics['waiting_ms'])} waiting",
        "budget": _budget_line(metrics.get("budget_remaining")),
        "progress": _progress_line(metrics.get("progress")),
        "owner": status.get("owner") or "",
    }
    for name, fact in facts.items():
        if fact:
            click.echo(f"  {dim(name.ljust(10))}  {plain(fact)}")
    for logged in metrics["recent_logs"][-3:]:
        click.echo(f"  {dim('log'.ljust(10))}  {one_line(logged['message'], 100)}")
    if (outcome := status.get("outcome")) is not None:
        click.echo("\n" + heading("Outcome"))
        click.echo(pretty(outcome["result"]) if "result" in outcome else plain(_why(outcome)))
        if custom := outcome.get("stats", {}).get("custom"):
            click.echo("\n" + heading("Stats"))
            click.echo(pretty(custom))
    if pending := status.get("pending"):
        click.echo("\n" + heading(f"Waits for {len(pending)} answer{'s' if len(pending) > 1 else ''}"))
        for query in pending:
            click.echo(_pending_text(query))
        offered = [query for query in pending if query.get("kind") not in ("timer", "child")]
        if offered:
            first = offered[0]
            told = how_to_go_on(
                sid,
                first["query_id"],
                len(pending),
                of_chat=first.get("kind") == "input",
                approval="approves" in first,
            )
            click.echo(dim(f"\n{told}"))
    for exchange in metrics.get("conversation_history", []):
        click.echo(f"\n{heading(exchange['query_id'])} {dim('asked')}\n{plain(exchange['prompt'])}")
        told = exchange.get("error") or exchange["response"]
        if told is not None:
            click.echo(f"{dim('answered')}\n{pretty(told)}")


def _pending_text(query: dict[str, Any]) -> str:
    shown = {key: value for key, value in query.items() if key not in ("query_id", "kind", "prompt", "max_tokens")}
    text = plain(query["prompt"]) if "prompt" in query else ""
    choices = shown.pop("choices", [])
    if (approves := shown.pop("approves", None)) is not None:
        text, choices = "\n".join(call_lines(msgspec.convert(approves, ApprovalCall))), []
    due = shown.pop("due_at", None)
    extra = {key: value for key, value in shown.items() if value not in (None, False, {}, [])}
    parts = [part for part in (text, one_line(extra, 200) if extra else "") if part]
    parts += [f"{number}. {plain(choice)}" for number, choice in enumerate(choices, 1)]
    parts += [f"due {ago(due)}"] if due is not None else []
    body = "\n".join(parts).replace("\n", "\n    ")
    return f"  {heading(query['query_id'])} {dim(query.get('kind', 'llm'))}\n    {body}"


def _budget_line(left: dict[str, Any] | None) -> str:
    if left is None:
        return ""
    return " · ".join(f"{amount} {name} left" for name, amount in left.items() if amount is not None)


def _progress_line(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return ""
    return f"{progress['step']} of {progress['total']}" + (f": {progress['message']}" if progress["message"] else "")


def _why(outcome: dict[str, Any]) -> str:
    return str(outcome.get("error") or outcome.get("reason") or "no reason was given")


def _print_entry(entry: Entry) -> None:
    from holdfast.cli.timeline import timeline

    for line in timeline(entry):
        click.echo(line)
