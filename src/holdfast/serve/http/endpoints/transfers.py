"""Endpoints that take sessions from one place to another: as files, and as envelopes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

from holdfast.agent.envelopes.conversation import export_envelope, import_envelope
from holdfast.agent.envelopes.store import SessionEnvelope, read_envelope
from holdfast.agent.machine.messages import ContentBlock
from holdfast.agent.machine.policy import Spec
from holdfast.core.ids import check_id, new_session_id
from holdfast.core.values import Json
from holdfast.engine.adoption import AdoptionReport
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import (
    ApiCall,
    BytesReply,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    RequestBody,
    StreamReply,
    WaitParameters,
    checked_wait,
)
from holdfast.serve.http.endpoints.agents import opened
from holdfast.serve.http.endpoints.turns import TurnReport, begun
from holdfast.serve.http.limits import VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path
from holdfast.store.export import ImportReceipt, add_exported, export_lines, parse_export

endpoints = Endpoints()

EXPORT_TYPE = "application/jsonl"


class ImportParameters(Parameters, frozen=True, kw_only=True):
    """What the imported session is called."""

    id: str | None = None
    """Another id than the file says."""


class EnvelopeBody(RequestBody, frozen=True, kw_only=True):
    """A conversation from elsewhere, and the input of its next turn."""

    envelope: Json
    """What `GET /sessions/{id}/envelope` gives, and fluers writes."""
    input: str | list[ContentBlock]
    id: str | None = None
    """The id of the session that continues it."""
    spec: Spec = Spec()
    """How its turns are run; what it leaves out, the envelope says."""
    turn: str | None = None
    """The id of the turn."""
    wait_s: float = 0.0


@endpoints.add("GET", "/sessions/{session_id}/export", "sessions:read", reply=bytes, media_type=EXPORT_TYPE)
async def export_session(call: ApiCall[NoParameters, None]) -> BytesReply:
    """Write a session as a file, which `POST /imports` and `holdfast import` read."""
    session_id = call.session_id
    await call.door.store.session(session_id)

    async def lines() -> AsyncIterator[bytes]:
        async for line in export_lines(call.door.store, session_id):
            yield line

    named = f'attachment; filename="{session_id}.jsonl"'
    return BytesReply(lines(), EXPORT_TYPE, {"content-disposition": named})


@endpoints.add(
    "POST",
    "/imports",
    "sessions:write",
    query=ImportParameters,
    body=bytes,
    body_type=EXPORT_TYPE,
    body_bytes=VALUE_BODY_BYTES,
    reply=ImportReceipt,
    status=201,
)
async def import_session(call: ApiCall[ImportParameters, bytes]) -> JsonReply:
    """Add the session in a file to the store. Unless it has ended, it does nothing until it is adopted."""
    wanted = None if call.query.id is None else check_id(call.query.id, "session id")
    exported = await asyncio.to_thread(parse_export, io.BytesIO(call.body))
    target = wanted or exported.session_id
    call.principal.check_session(target)
    receipt = await add_exported(call.door.store, exported, target)
    headers = {"location": session_path(target)}
    if receipt.replayed:
        headers["idempotency-replayed"] = "true"
    return JsonReply(receipt, 200 if receipt.replayed else None, headers)


@endpoints.add("GET", "/sessions/{session_id}/adoption", "sessions:read", reply=AdoptionReport)
async def show_adoption(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what an imported session would run here if it were adopted."""
    return JsonReply(await call.door.holdfast.adoption(call.session_id))


@endpoints.add("POST", "/sessions/{session_id}/adopt", "admin", query=WaitParameters, reply=dict[str, Json])
async def adopt_session(call: ApiCall[WaitParameters, None]) -> JsonReply:
    """Let an imported session run. Whoever does vouches for all that its file says, approvals among it."""
    wait_s = checked_wait(call.query.wait_s)
    event = await call.door.holdfast.adopt(call.session_id, by=call.principal.name, wait=wait_s)
    return JsonReply(event.to_json())


# --- envelopes -----------------------------------------------------------------------------------------


@endpoints.add("GET", "/sessions/{session_id}/envelope", "sessions:read", reply=SessionEnvelope)
async def show_envelope(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Give the conversation of an agent's session as an envelope, the JSON that fluers reads and writes."""
    return JsonReply(await export_envelope(await opened(call)))


@endpoints.add(
    "POST",
    "/envelopes",
    "agents:run",
    body=EnvelopeBody,
    reply=TurnReport,
    status=202,
    body_bytes=VALUE_BODY_BYTES,
    streams=True,
)
async def continue_envelope(call: ApiCall[NoParameters, EnvelopeBody]) -> JsonReply | StreamReply:
    """Begin a turn that continues the conversation of an envelope, which replaces that of the session if it has one."""
    body = call.body
    key = call.headers.get("idempotency-key")
    session_id = body.id or derived_id("s-", call.principal, "envelope", key) or new_session_id()
    call.principal.check_session(check_id(session_id, "session id"))
    envelope = read_envelope(session_id, body.envelope)
    session = await import_envelope(call.door.runtime, session_id, envelope, spec=body.spec)
    return await begun(call, session, session.turn(body.input), body.turn, body.wait_s)
