"""Endpoints about journals: their entries, and sessions as files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from holdfast.core.records import Entry, type_of
from holdfast.core.values import Json
from holdfast.serve.http.endpoint import (
    ApiCall,
    BytesReply,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    as_json,
    checked_wait,
)
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import MAX_PAGE_ROWS
from holdfast.store.export import export_lines

endpoints = Endpoints()


class JournalParameters(Parameters, frozen=True, kw_only=True):
    """Which entries to list."""

    after: int = 0
    """The position after which they begin."""
    before: int | None = None
    """Instead: the position before which they end. For whoever reads a long journal from its end."""
    limit: int = MAX_PAGE_ROWS
    type: list[str] = msgspec.field(default_factory=list)
    """Only records of these types; a page then holds those among its entries."""
    wait_s: float = 0.0
    """Seconds to wait for an entry if there is none after the position yet."""


class JournalPage(msgspec.Struct, frozen=True):
    """Entries of a journal, and after which position the next page begins."""

    data: list[Entry]
    next: int | None
    position: int
    """Of the last entry that there is."""
    ended: bool = False
    """Whether the session has ended, and nothing comes after this page."""


class MailboxReport(msgspec.Struct, frozen=True):
    """Messages that wait for the owner of a session."""

    data: list[Json]


class DivergenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a program does something else than its journal says, with both sides."""

    position: int
    recorded: str
    asked: str
    where: str
    began_with: str | None
    """The version of the code that the session began with, and"""
    here: str | None
    """that of the code at this server, if they are known."""


class ReplayReport(msgspec.Struct, frozen=True):
    """What a replay came to."""

    state: Literal["ok", "diverges", "unchecked"]
    records: int
    """The records up to the last one that was compared."""
    why: str
    """Why it could not be checked, if so."""
    divergence: DivergenceReport | None


@endpoints.add("GET", "/sessions/{session_id}/journal", "sessions:read", query=JournalParameters, reply=dict[str, Any])
async def list_entries(call: ApiCall[JournalParameters, None]) -> JsonReply:
    """List the entries of a session's journal, in order."""
    query, store, session_id = call.query, call.door.store, call.session_id
    limit, wait_s = checked_limit(query.limit), checked_wait(query.wait_s)
    row = await store.session(session_id)
    if row.position <= query.after and wait_s and not row.summary.state.is_terminal:
        with store.watch(session_id) as changes:
            row = await store.session(session_id)
            if row.position <= query.after and await changes.changed(timeout=wait_s):
                row = await store.session(session_id)
    position, after = row.position, query.after
    if query.before is not None:
        end = max(1, min(query.before, position + 1))
        after, limit = max(0, end - 1 - limit), min(limit, end - 1)
    entries = await store.read(session_id, after, limit)
    last = entries[-1].position if entries else position
    wanted = [each for each in entries if not query.type or type_of(each.record) in query.type]
    ended = row.summary.state.is_terminal and last >= position
    return JsonReply(JournalPage(wanted, last if last < position else None, position, ended))


@endpoints.add("GET", "/sessions/{session_id}/mailbox", "admin", reply=MailboxReport)
async def list_mailbox(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the messages to a session that no process has taken yet, in the order in which they were sent."""
    session_id = call.session_id
    await call.door.store.session(session_id)
    items = await call.door.store.mailbox(session_id)
    return JsonReply(MailboxReport([as_json(each) for each in items]))


@endpoints.add("GET", "/sessions/{session_id}/replay", "sessions:write", reply=ReplayReport)
async def check_replay(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Run the program of a session again on its journal, and say whether it still asks what is recorded.

    Nothing is written, and nobody is asked.
    """
    outcome = await call.door.holdfast.check_replay(call.session_id)
    sides = outcome.divergence
    divergence = None
    if sides is not None:
        divergence = DivergenceReport(
            position=sides.position,
            recorded=sides.recorded,
            asked=sides.asked,
            where=sides.where,
            began_with=sides.began_with,
            here=sides.here,
        )
    return JsonReply(ReplayReport(outcome.state, outcome.records, outcome.why, divergence))


@endpoints.add("GET", "/sessions/{session_id}/export", "sessions:read", reply=bytes, media_type="application/jsonl")
async def export_session(call: ApiCall[NoParameters, None]) -> BytesReply:
    """Write a session as a file, which `holdfast import` reads."""
    session_id = call.session_id
    await call.door.store.session(session_id)

    async def lines() -> AsyncIterator[bytes]:
        async for line in export_lines(call.door.store, session_id):
            yield line

    named = f'attachment; filename="{session_id}.jsonl"'
    return BytesReply(lines(), "application/jsonl", {"content-disposition": named})
