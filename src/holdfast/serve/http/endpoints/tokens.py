"""Endpoints about tokens: make, list and revoke them."""

from __future__ import annotations

from typing import Any

from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.serve.http.problems import ApiError

endpoints = Endpoints()


class TokenBody(RequestBody, frozen=True, kw_only=True):
    """Whose token it is, and what it may do."""

    name: str
    scopes: list[str]
    id_prefix: str = ""
    """Only sessions whose ids begin with this exist for it."""
    expires_at: int | None = None


@endpoints.add("POST", "/tokens", "admin", body=TokenBody, reply=dict[str, Any], status=201)
async def create_token(call: ApiCall[NoParameters, TokenBody]) -> JsonReply:
    """Make a token. Its text is in this reply, and nowhere else."""
    body = call.body
    text, stored = await call.door.tokens.create(
        body.name,
        body.scopes,
        id_prefix=body.id_prefix,
        expires_at=body.expires_at,
        token_id=derived_id("", call.principal, "token", call.headers.get("idempotency-key")),
    )
    return JsonReply({**stored.to_json(), "token": text})


@endpoints.add("GET", "/tokens", "admin", reply=list[dict[str, Any]])
async def list_tokens(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the tokens, without what could be used of them."""
    tokens = call.door.tokens
    return JsonReply([{**each.to_json(), "used_at": tokens.used_at.get(each.id)} for each in await tokens.list()])


@endpoints.add("DELETE", "/tokens/{token_id}", "admin", status=204)
async def revoke_token(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Revoke a token. Streams that were opened with it end within a minute."""
    if not await call.door.tokens.revoke(call.path["token_id"]):
        raise ApiError(404, "unknown_token", f"there is no token '{call.path['token_id']}'")
    return JsonReply()
