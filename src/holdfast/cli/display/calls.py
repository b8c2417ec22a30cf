"""Calls of tools that somebody has to approve: how they are shown, and the commands that decide about them."""

from __future__ import annotations

import json

import click

from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery
from holdfast.cli.output import dim, heading, one_line, plain, pretty
from holdfast.core.queries import Query

_SHORT = 60
"""Characters of a value that fits on the line of its name."""


def call_to_approve(query: Query) -> ApprovalCall | None:
    """The call that a query asks somebody to approve, or None if it asks something else."""
    return query.approves if isinstance(query, ApprovalQuery) else None


def call_line(call: ApprovalCall, columns: int) -> str:
    """The question about a call, on one line."""
    return one_line(f"run {call.tool} {one_line(call.arguments, columns)}?", columns)


def call_lines(call: ApprovalCall) -> list[str]:
    """A call with all of its arguments: whoever approves it must have seen them."""
    reason = [f"  {dim(plain(call.reason))}"] if call.reason else []
    lines = [f"{click.style('?', fg='yellow')} {heading(plain(call.tool))}", *reason]
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else pretty(value)
        is_short = len(text) <= _SHORT and "\n" not in text
        head = f"    {click.style(plain(name), fg='cyan')}:"
        if is_short:
            lines.append(f"{head} {plain(json.dumps(value, ensure_ascii=False)) if isinstance(value, str) else text}")
        else:
            lines += [head, *(f"    {dim('│')} {line}" for line in plain(text).split("\n"))]
    return lines if call.arguments else [*lines, f"    {dim('without arguments')}"]


def approval_commands(session_id: str, query_id: str) -> list[str]:
    """The commands that decide about a call from another terminal."""
    base = f"holdfast answer {session_id} --query {query_id}"
    return [f"{base} approve", f"{base} always", f"{base} --fail WHY"]
