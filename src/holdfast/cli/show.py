"""`show`: one session, its state, its pending queries and its journal."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.agent.machine.queries import ApprovalCall
from holdfast.cli.display.calls import call_lines
from holdfast.cli.display.events import how_to_answer
from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, count, date, dim, duration, heading, one_line, plain, pretty, print_json
from holdfast.cli.output import state as coloured_state
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.core.records import Entry
    from holdfast.store.contract import Store


@click.command("show")
@click.argument("session", type=SessionType())
@click.option("--journal", is_flag=True, help="Also print everything that happened, in order.")
@click.option("--cells", is_flag=True, help="Also print the cells of an rlm agent, with what each came to.")
@click.option("--tree", is_flag=True, help="Show its subagents and other children, of any depth, and their questions.")
@click.option("--history", is_flag=True, help="Also print the last exchanges with the model, in full.")
@common()
def show_command(session: str, journal: bool, cells: bool, tree: bool, history: bool) -> int:
    """Show one session: its state, what it waits for, what it spent, how it ended."""
    return asyncio.run(_show_tree(session) if tree else _show(session, journal, history, cells))


async def _show(id_or_prefix: str, journal: bool, history: bool, cells: bool) -> int:
    from holdfast.core.errors import JournalError, TransitionError
    from holdfast.engine.session_status import StoreReader, session_status
    from holdfast.store.errors import CorruptSessionError

    async with open_store() as store:
        session_id = await find_session(store, id_or_prefix)
        now = await store.server_time() or int(time.time() * 1000)
        try:
            status = await session_status(StoreReader(store), session_id, now, history=history)
        except (CorruptSessionError, JournalError, TransitionError):
            await _show_readable(store, session_id)
            raise
        if settings().json:
            if journal:
                status["journal"] = [entry async for entry in store.journal(session_id)]
            if cells:
                status["cells"] = await _cells(store, session_id)
            print_json(status)
            return ExitCode.OK
        _print_status(status)
        if cells:
            for cell in await _cells(store, session_id):
                where = heading(f"Turn {cell['turn']}, cell {cell['cell']}")
                click.echo(f"\n{where}" + dim(f"  at {cell['position']}"))
                click.echo(plain(cell["code"]))
                click.echo(dim(plain(cell["printed"] or cell["told"])))
        if journal:
            click.echo("\n" + heading("Journal"))
            async for entry in store.journal(session_id):
                _print_entry(entry)
    return ExitCode.OK


async def _cells(store: Store, session_id: str) -> list[dict[str, Any]]:
    """The cells that have ended, each with what it came to."""
    from holdfast.agent.machine.queries import InputQuery, ReplyQuery
    from holdfast.agent.machine.records import BoundRecord
    from holdfast.agent.machine.turn import reply_of
    from holdfast.agent.rlm.fence import find_cell, guessed_cell
    from holdfast.core.queries import Value
    from holdfast.core.records import AnsweredRecord, PausedRecord

    replies: set[str] = set()
    inputs: set[str] = set()
    turn, code, found = 0, "", []
    async for entry in store.journal(session_id):
        match entry.record:
            case PausedRecord(queries=queries):
                replies |= {query.id for query in queries if isinstance(query, ReplyQuery)}
                inputs |= {query.id for query in queries if isinstance(query, InputQuery)}
            case AnsweredRecord(query_id=asked) if asked in inputs:
                turn += 1
            case AnsweredRecord(query_id=asked, answer=Value(value=value)) if asked in replies:
                text = reply_of(value).text
                code = find_cell(text).code or guessed_cell(text) or ""
            case BoundRecord(cell=cell, remark=told, printed=printed, bindings=bindings):
                names = {"set": sorted(bindings.set), "not_kept": bindings.not_kept}
                where = {"turn": turn, "cell": cell, "position": entry.position}
                found.append({**where, "code": code, "told": told, "printed": printed, **names})
            case _:
                pass
    return found


async def _show_tree(id_or_prefix: str) -> int:
    from holdfast.agent.subagents.tree import session_tree

    async with open_store() as store:
        root = await session_tree(store, await find_session(store, id_or_prefix))
    if settings().json:
        print_json(root)
        return ExitCode.OK
    for depth, node in root.walk():
        name = node.session_id if not depth else f"{'  ' * depth}└ {node.session_id.removeprefix(root.session_id)}"
        spent = dim(count(node.tokens, "token")) if node.tokens else ""
        click.echo(f"{heading(name)}  {coloured_state(node.state)}  {plain(node.program)}  {spent}".rstrip())
        indent = "  " * depth + "    "
        if node.task:
            click.echo(f"{indent}{dim('task')}  {one_line(node.task, 100)}")
        for question in node.questions:
            click.echo(f"{indent}{dim('asks')}  {heading(question.id)}  {one_line(question.text, 80)}")
        if node.is_cut:
            click.echo(f"{indent}{dim('there are more')}")
    if first := next((each for _, node in root.walk() for each in node.questions), None):
        hint = how_to_answer(root.session_id, first.id, 2, is_chat=False, is_approval=first.is_approval)
        click.echo(dim(f"\n{hint}"))
    return ExitCode.OK


async def _show_readable(store: Store, session_id: str) -> None:
    """Print as much of a damaged session as can be read."""
    if settings().json:
        return
    click.echo(f"{session_id}  {click.style('damaged', fg='red', bold=True)}; what can be read of its journal:")
    after = 0
    try:
        while entries := await store.read(session_id, after, 1):
            _print_entry(entries[0])
            after = entries[0].position
    except Exception:
        return  # the error that led here describes the damage


def _print_status(status: dict[str, Any]) -> None:
    sid, metrics = status["session_id"], status["metrics"]
    click.echo(f"{heading(sid)}  {coloured_state(status['phase'])}")
    tokens = metrics["tokens"]
    facts = {
        "program": status.get("strategy", ""),
        "service": status.get("service", ""),
        "started": f"{date(status['started_at'])} ({ago(status['started_at'])})",
        "last entry": f"{status['position']}, {ago(status['last_activity_at'])}",
        "spent": " · ".join(
            [
                count(metrics["llm_calls"], "model call"),
                count(metrics["pauses"], "pause"),
                count(tokens["total"], "token"),
            ]
        ),
        "time": f"{duration(metrics['own_ms'])} running, {duration(metrics['waiting_ms'])} waiting",
        "budget": _budget_line(metrics.get("budget_remaining")),
        "progress": _progress_line(metrics.get("progress")),
        "owner": status.get("owner") or "",
        "waits": status["waits"]["why"].removeprefix("waits ") if status.get("waits", {}).get("missing") else "",
        "imported": _imported_line(status),
    }
    for name, fact in facts.items():
        if fact:
            click.echo(f"  {dim(name.ljust(10))}  {plain(fact)}")
    for logged in metrics["recent_logs"][-3:]:
        click.echo(f"  {dim('log'.ljust(10))}  {one_line(logged['message'], 100)}")
    if (outcome := status.get("outcome")) is not None:
        click.echo("\n" + heading("Outcome"))
        click.echo(pretty(outcome["result"]) if "result" in outcome else plain(_reason(outcome)))
        if custom := outcome.get("stats", {}).get("custom"):
            click.echo("\n" + heading("Stats"))
            click.echo(pretty(custom))
    if pending := status.get("pending"):
        click.echo("\n" + heading(f"Waits for {len(pending)} answer{'s' if len(pending) > 1 else ''}"))
        for query in pending:
            click.echo(_pending_text(query))
        offered = [query for query in pending if query.get("kind") not in ("timer", "child")]
        if offered and status["phase"] != "imported":
            first = offered[0]
            hint = how_to_answer(
                sid,
                first["query_id"],
                len(pending),
                is_chat=first.get("kind") == "input",
                is_approval="approves" in first,
            )
            click.echo(dim(f"\n{hint}"))
    for exchange in metrics.get("conversation_history", []):
        click.echo(f"\n{heading(exchange['query_id'])} {dim('asked')}\n{plain(exchange['prompt'])}")
        answer = exchange.get("error") or exchange["response"]
        if answer is not None:
            click.echo(f"{dim('answered')}\n{pretty(answer)}")


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


def _imported_line(status: dict[str, Any]) -> str:
    """Where it came from, and that it waits to be adopted."""
    if (imported := status.get("imported")) is None:
        return ""
    from holdfast.cli.keys import signer_text

    text = f"{date(imported['at'])}, {signer_text(imported.get('key'))}"
    return text if status["phase"] != "imported" else f"{text}; `holdfast adopt {status['session_id']}` lets it run"


def _progress_line(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return ""
    return f"{progress['step']} of {progress['total']}" + (f": {progress['message']}" if progress["message"] else "")


def _reason(outcome: dict[str, Any]) -> str:
    return str(outcome.get("error") or outcome.get("reason") or "no reason given")


def _print_entry(entry: Entry) -> None:
    from holdfast.cli.display.timeline import timeline

    for line in timeline(entry):
        click.echo(line)
