"""Endpoints about state items: values beside the sessions, for administrators."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import OWN_TOOLS
from holdfast.core.values import Json
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters, RequestBody
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.links import NAMESPACE as KEYS
from holdfast.serve.http.problems import ApiError
from holdfast.serve.http.tokens import NAMESPACE as TOKENS
from holdfast.serve.webhooks.records import DELIVERIES
from holdfast.serve.webhooks.records import NAMESPACE as WEBHOOKS

endpoints = Endpoints()


class StateBody(RequestBody, frozen=True, kw_only=True):
    """The value of an item."""

    value: Json


class StateParameters(Parameters, frozen=True, kw_only=True):
    """Which keys to list."""

    prefix: str = ""
    after: str = ""
    limit: int = PAGE_ROWS


class StateReport(msgspec.Struct, frozen=True):
    """A state item."""

    namespace: str
    key: str
    version: int
    value: Json = None


@endpoints.add("GET", "/state/{namespace}", "admin", query=StateParameters, reply=dict[str, Any])
async def list_state(call: ApiCall[StateParameters, None]) -> JsonReply:
    """List the keys of a namespace."""
    query = call.query
    limit = checked_limit(query.limit)
    keys = await call.door.store.list_state(_namespace(call), prefix=query.prefix, after=query.after, limit=limit)
    return JsonReply({"data": keys, "next": keys[-1] if len(keys) == limit else None})


@endpoints.add("GET", "/state/{namespace}/{key}", "admin", reply=StateReport)
async def show_state(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show a state item."""
    namespace, key = _namespace(call), call.path["key"]
    item = await call.door.store.get_state(namespace, key)
    if item is None:
        raise ApiError(404, "unknown_state", f"there is no state item '{namespace}/{key}'")
    return JsonReply(StateReport(namespace, key, item.version, item.value), headers={"etag": f'"{item.version}"'})


@endpoints.add(
    "PUT", "/state/{namespace}/{key}", "admin", body=StateBody, reply=StateReport, body_bytes=VALUE_BODY_BYTES
)
async def write_state(call: ApiCall[NoParameters, StateBody]) -> JsonReply:
    """Write a state item; with `If-Match`, only if it is at that version."""
    namespace, key = _written_namespace(call), call.path["key"]
    wanted = call.headers.get("if-match")
    expected: int | None = None
    if wanted is not None:
        text = wanted.strip('"')
        if not text.isdecimal():
            raise InvalidValueError("If-Match", "it is the version of the item in quotes; 0 if there is none yet")
        expected = int(text)
    version = await call.door.store.put_state(namespace, key, call.body.value, expected=expected)
    return JsonReply(StateReport(namespace, key, version, call.body.value), headers={"etag": f'"{version}"'})


@endpoints.add("DELETE", "/state/{namespace}/{key}", "admin", status=204)
async def delete_state(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Remove a state item."""
    await call.door.store.delete_state(_written_namespace(call), call.path["key"])
    return JsonReply()


def _namespace(call: ApiCall[Any, Any]) -> str:
    namespace = call.path["namespace"]
    if namespace in (TOKENS, KEYS, WEBHOOKS, DELIVERIES):
        raise ApiError(403, "forbidden", "what the server keeps for itself is no state item; see /tokens and /webhooks")
    return namespace


def _written_namespace(call: ApiCall[Any, Any]) -> str:
    namespace = _namespace(call)
    if namespace.startswith(OWN_TOOLS):
        raise ApiError(403, "forbidden", "what Holdfast keeps itself, such as cards, is not written as a state item")
    return namespace
