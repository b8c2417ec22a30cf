"""Endpoints about webhooks: make, change, try and remove them, and what each was told."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec

from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.serve.http.problems import ApiError
from holdfast.serve.webhooks.address import checked_url
from holdfast.serve.webhooks.records import Delivery, checked_types

endpoints = Endpoints()


class WebhookBody(RequestBody, frozen=True, kw_only=True):
    """Where to tell what."""

    url: str
    types: list[str]
    include: Literal["ids", "content"] = "ids"
    id_prefix: str = ""
    program: str | None = None


class WebhookChange(RequestBody, frozen=True, kw_only=True):
    """What changes; what is left out stays."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    types: list[str] | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


class PingReport(msgspec.Struct, frozen=True):
    """What came of a try."""

    ok: bool
    status: int | None
    why: str


@endpoints.add("GET", "/webhooks", "admin", reply=list[dict[str, Any]])
async def list_webhooks(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the webhooks, without their secrets."""
    return JsonReply([each.to_json() for each in await call.door.webhooks.list()])


@endpoints.add("POST", "/webhooks", "admin", body=WebhookBody, reply=dict[str, Any], status=201)
async def create_webhook(call: ApiCall[NoParameters, WebhookBody]) -> JsonReply:
    """Make a webhook. Its secret is in this reply, and nowhere else."""
    body = call.body
    url = checked_url(body.url, allow_private=call.door.allows_private_webhooks)
    fields = {"include": body.include, "id_prefix": body.id_prefix, "program": body.program}
    key = derived_id("wh-", call.principal, "webhook", call.headers.get("idempotency-key"))
    webhook = await call.door.webhooks.add(url, checked_types(body.types), id=key, **fields)
    return JsonReply({**webhook.to_json(), "secret": webhook.secret})


@endpoints.add("PATCH", "/webhooks/{webhook_id}", "admin", body=WebhookChange, reply=dict[str, Any])
async def change_webhook(call: ApiCall[NoParameters, WebhookChange]) -> JsonReply:
    """Change a webhook, or switch it on again."""
    body, fields = call.body, dict[str, Any]()
    if body.url is not msgspec.UNSET:
        fields["url"] = checked_url(body.url, allow_private=call.door.allows_private_webhooks)
    if body.types is not msgspec.UNSET:
        fields["types"] = checked_types(body.types)
    if body.enabled is not msgspec.UNSET:
        fields |= {"enabled": body.enabled, "why_disabled": "" if body.enabled else "it was switched off"}
    return JsonReply((await call.door.webhooks.change(call.path["webhook_id"], **fields)).to_json())


@endpoints.add("DELETE", "/webhooks/{webhook_id}", "admin", status=204)
async def remove_webhook(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Remove a webhook, with what it was still to be told."""
    await call.door.webhooks.remove(call.path["webhook_id"])
    return JsonReply()


@endpoints.add("POST", "/webhooks/{webhook_id}/secret", "admin", reply=dict[str, Any])
async def renew_secret(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Give a webhook a new secret. For a day, what it is told is signed with the old one, too."""
    webhook_id = call.path["webhook_id"]
    key = derived_id("", call.principal, f"secret {webhook_id}", call.headers.get("idempotency-key"))
    webhook = await call.door.webhooks.renew_secret(webhook_id, key or "")
    return JsonReply({**webhook.to_json(), "secret": webhook.secret})


@endpoints.add("POST", "/webhooks/{webhook_id}/test", "admin", reply=PingReport)
async def try_webhook(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Tell a webhook something now, and say what came of it."""
    door, now = call.door, call.door.holdfast.now()
    webhook = await door.webhooks.get(call.path["webhook_id"])
    body = msgspec.json.encode({"type": "ping", "timestamp": now, "data": {}}).decode()
    key = derived_id("ping-", call.principal, f"ping {webhook.id}", call.headers.get("idempotency-key"))
    ping = Delivery(id=key or f"ping-{secrets.token_hex(8)}", type="ping", session_id="", body=body, at=now)
    before = [each for each in await door.webhooks.deliveries(webhook.id) if each.id == ping.id]
    tried = before[0] if before else await door.webhook_sender.send(webhook, ping)
    return JsonReply(PingReport(tried.done, tried.status, tried.why))


@endpoints.add("GET", "/webhooks/{webhook_id}/deliveries", "admin", reply=dict[str, Any])
async def list_deliveries(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List what a webhook was told lately, and what it has still to be told; the latest first."""
    webhook = await call.door.webhooks.get(call.path["webhook_id"])
    return JsonReply({"data": [each.to_json() for each in await call.door.webhooks.deliveries(webhook.id)]})


@endpoints.add("POST", "/webhooks/{webhook_id}/deliveries/{delivery_id}/again", "admin", reply=PingReport)
async def deliver_again(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Make a delivery once more, now."""
    door = call.door
    webhook = await door.webhooks.get(call.path["webhook_id"])
    for delivery in await door.webhooks.deliveries(webhook.id):
        if delivery.id == call.path["delivery_id"]:
            key = derived_id("", call.principal, f"again {delivery.id}", call.headers.get("idempotency-key"))
            tried = delivery
            if key is None or key != delivery.asked_by:
                tried = await door.webhook_sender.send(webhook, msgspec.structs.replace(delivery, asked_by=key or ""))
            return JsonReply(PingReport(tried.done, tried.status, tried.why))
    raise ApiError(404, "unknown_delivery", f"webhook '{webhook.id}' has no delivery '{call.path['delivery_id']}'")
