"""The endpoint of bulk operations: the same for many sessions, by a session of its own."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import new_session_id
from holdfast.core.labels import check_labels
from holdfast.serve.http.bulk import MAX_IDS, Action, BulkOrder
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.serve.http.filters import FilterParameters
from holdfast.serve.http.paths import session_path

endpoints = Endpoints()


class BulkBody(RequestBody, frozen=True, kw_only=True):
    """What to do, and to which sessions: those that are named, or all that match."""

    action: Action
    ids: list[str] | None = None
    where: FilterParameters | None = None
    reason: str | None = None
    labels: list[str] | None = None
    """Labels that are added, for the action `label`."""
    dry_run: bool = False
    """Only say how many there are."""


class BulkReport(msgspec.Struct, frozen=True):
    """Which session does it, and for how many it is."""

    bulk_id: str | None
    matched: int


@endpoints.add("POST", "/bulk", "sessions:write", body=BulkBody, reply=BulkReport, status=202)
async def start_bulk(call: ApiCall[NoParameters, BulkBody]) -> JsonReply:
    """Cancel, resume, delete or label many sessions. A session of its own does it, and shows its progress."""
    body, principal = call.body, call.principal
    if (body.ids is None) == (body.where is None):
        raise InvalidValueError("body", "name sessions by `ids`, or say which by `where`")
    if body.ids is not None and not 1 <= len(body.ids) <= MAX_IDS:
        raise InvalidValueError("ids", f"name 1 to {MAX_IDS:,} sessions, or say which by `where`")
    for session_id in body.ids or ():
        principal.check_session(session_id)
    where = None if body.where is None else body.where.session_filter(principal)
    if body.where is not None and where is None:
        return JsonReply(BulkReport(None, 0), 200)
    labels = None if body.labels is None else check_labels(body.labels)
    if (body.action == "label") != bool(labels):
        raise InvalidValueError("labels", "they are given for the action `label`, and for no other")
    order = BulkOrder(
        action=body.action, ids=body.ids, where=where, reason=body.reason, labels=labels, by=principal.name
    )
    bulk = call.door.bulk
    if body.dry_run:
        return JsonReply(BulkReport(None, await bulk.matched(order)), 200)
    key = derived_id("bulk-", principal, "bulk", call.headers.get("idempotency-key"))
    started = await bulk.start(order, principal.id_prefix + (key or new_session_id()))
    return JsonReply(BulkReport(started, await bulk.matched(order)), headers={"location": session_path(started)})
