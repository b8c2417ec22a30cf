"""Endpoints about who is asking: log in and out, and what the present token may do."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, RequestBody
from holdfast.serve.http.logins import cookie_of, no_cookie
from holdfast.serve.http.tokens import unauthorized

endpoints = Endpoints()


class LoginBody(RequestBody, frozen=True, kw_only=True):
    """What a browser has: the code that a server printed, or a token that somebody typed."""

    code: str | None = None
    token: str | None = None


class PrincipalReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a token belongs to, and what it may do."""

    name: str
    token_id: str
    scopes: list[str]
    id_prefix: str
    expires_at: int | None


class LoginReport(PrincipalReport, frozen=True, kw_only=True):
    """The same after a login."""

    token: str | None
    """What a code was exchanged for; None if a token was sent."""
    cookie: bool
    """Whether the browser has the token as a cookie now: then it need not keep it itself."""


@endpoints.add("POST", "/login", "none", body=LoginBody, reply=LoginReport)
async def log_in(call: ApiCall[NoParameters, LoginBody]) -> JsonReply:
    """Exchange a code for a token, or check a token. Over HTTPS, the browser gets it as a cookie."""
    door, body = call.door, call.body
    if (body.code is None) == (body.token is None):
        raise InvalidValueError("body", "give a `code`, or a `token`")
    door.logins.check_try(call.address)
    token = body.token if body.code is None else door.logins.token_for(body.code)
    if token is None:
        raise unauthorized("the code was used, or is too old")
    principal = await door.principal(f"Bearer {token}")
    door.logins.forgive(call.address)
    report = LoginReport(
        name=principal.name,
        token_id=principal.token_id,
        scopes=sorted(principal.scopes),
        id_prefix=principal.id_prefix,
        expires_at=principal.expires_at,
        token=token if body.token is None else None,
        cookie=call.is_encrypted,
    )
    return JsonReply(report, headers={"set-cookie": cookie_of(token)} if call.is_encrypted else {})


@endpoints.add("POST", "/logout", "none", status=204)
async def log_out(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Take the cookie back that a login gave."""
    return JsonReply(headers={"set-cookie": no_cookie()})


@endpoints.add("GET", "/me", "any", reply=PrincipalReport)
async def show_principal(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show whom the token of this request belongs to, and what it may do."""
    principal = call.principal
    report = PrincipalReport(
        name=principal.name,
        token_id=principal.token_id,
        scopes=sorted(principal.scopes),
        id_prefix=principal.id_prefix,
        expires_at=principal.expires_at,
    )
    return JsonReply(report)
