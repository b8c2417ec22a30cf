"""Endpoints about journals: their entries, the large values in them, and whether a program still does what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    in_one_piece,
)
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import MAX_PAGE_ROWS
from holdfast.serve.http.problems import ApiError
from holdfast.store.contract import Store
from holdfast.store.journal_rows import encode_entry, without_large

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
    values: Literal["whole", "blobs"] = "whole"
    """`blobs`: a large value is shown as `{"$blob": ID, "bytes": N}`, and fetched by itself."""


class BlobParameters(Parameters, frozen=True, kw_only=True):
    """Where to look for a large value."""

    position: int | None = None
    """The entry that refers to it; the whole journal is looked through without it."""


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry whose large values are references."""

    position: int
    at: int
    record: msgspec.Raw


class JournalPage(msgspec.Struct, frozen=True):
    """Entries of a journal, and after which position the next page begins."""

    data: Sequence[Entry | StoredEntry]
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
    shown: Sequence[Entry | StoredEntry] = wanted
    if query.values == "blobs":
        shown = await asyncio.to_thread(lambda: [_stored(each, {}) for each in wanted])
    return JsonReply(JournalPage(shown, last if last < position else None, position, ended))


@endpoints.add(
    "GET", "/sessions/{session_id}/blobs/{blob_id}", "sessions:read", query=BlobParameters, reply=dict[str, Any]
)
async def show_blob(call: ApiCall[BlobParameters, None]) -> BytesReply:
    """Give a large value that the journal of a session refers to, as JSON."""
    session_id, blob_id = call.session_id, call.path["blob_id"]
    found = await _find_blob(call.door.store, session_id, blob_id, call.query.position)
    if found is None:
        why = f"the journal of session '{session_id}' has no value '{blob_id[:64]}'"
        raise ApiError(404, "blob_not_found", why)
    named = f'attachment; filename="{blob_id}.json"'
    headers = {"content-disposition": named, "content-security-policy": "sandbox"}
    return BytesReply(in_one_piece(found), "application/json", headers)


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


# --- large values ------------------------------------------------------------------------------------


def _stored(entry: Entry, blobs: dict[str, bytes]) -> StoredEntry:
    """An entry with its large values moved to the blobs."""
    return StoredEntry(entry.position, entry.at, msgspec.Raw(without_large(encode_entry(entry), blobs)))


async def _find_blob(store: Store, session_id: str, blob_id: str, position: int | None) -> bytes | None:
    """The value that this session refers to by an id. What only others refer to does not exist for it."""
    await store.session(session_id)
    after, limit = (0, MAX_PAGE_ROWS) if position is None else (max(0, position - 1), 1)
    while entries := await store.read(session_id, after, limit):
        found = await asyncio.to_thread(_blob_in, entries, blob_id)
        if found is not None or position is not None:
            return found
        after = entries[-1].position
    return None


def _blob_in(entries: Sequence[Entry], blob_id: str) -> bytes | None:
    for entry in entries:
        blobs: dict[str, bytes] = {}
        _stored(entry, blobs)
        if blob_id in blobs:
            return blobs[blob_id]
    return None
