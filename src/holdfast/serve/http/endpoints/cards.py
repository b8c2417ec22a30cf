"""Endpoints about cards, the records of runs: which there are, what each says, and where it comes from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json
from holdfast.programs.kinds import load_object
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters, RequestBody
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import PAGE_ROWS
from holdfast.serve.http.problems import ApiError

endpoints = Endpoints()

_LIBRARY = "holdfast.alc.cards.tool:own_library"
"""Where cards are at home, imported when the first one is asked for."""

MAX_OFFSET = 10_000_000
"""Samples that may be passed over, as in the resources for MCP hosts."""


class CardParameters(Parameters, frozen=True, kw_only=True):
    """Which cards to list."""

    pkg: str | None = None
    order_by: list[str] = msgspec.field(default_factory=list)
    """Paths such as `stats.pass_rate`, `-` before one for descending; the newest first if left out."""
    limit: int = PAGE_ROWS
    offset: int = 0


class FindBody(RequestBody, frozen=True, kw_only=True):
    """Which cards to find, by what is in them."""

    where: dict[str, Any] = msgspec.field(default_factory=dict)
    pkg: str | None = None
    order_by: list[str] = msgspec.field(default_factory=list)
    limit: int = PAGE_ROWS
    offset: int = 0


class SampleParameters(Parameters, frozen=True, kw_only=True):
    """Which samples to give."""

    limit: int = PAGE_ROWS
    offset: int = 0


class LineageParameters(Parameters, frozen=True, kw_only=True):
    """How far to follow."""

    direction: Literal["up", "down", "both"] = "both"
    depth: int = 10


class CardReport(msgspec.Struct, frozen=True):
    """A card, the names it has, and the cards around it."""

    card: dict[str, Any]
    aliases: list[dict[str, Any]]
    lineage: dict[str, Any]
    """`nodes` with their depth (below 0: where it comes from), and `edges` from child to parent."""


@endpoints.add("GET", "/cards", "strategies:read", query=CardParameters, reply=dict[str, Any])
async def list_cards(call: ApiCall[CardParameters, None]) -> JsonReply:
    """List the cards, each as a summary."""
    query = call.query
    rows = await _ask(
        call,
        "find",
        pkg=query.pkg,
        order_by=query.order_by or None,
        limit=checked_limit(query.limit),
        offset=_checked_offset(query.offset),
    )
    return JsonReply({"data": rows})


@endpoints.add("POST", "/cards/find", "strategies:read", body=FindBody, reply=dict[str, Any])
async def find_cards(call: ApiCall[NoParameters, FindBody]) -> JsonReply:
    """Find cards by what is in them."""
    body = call.body
    rows = await _ask(
        call,
        "find",
        pkg=body.pkg,
        where=body.where,
        order_by=body.order_by or None,
        limit=checked_limit(body.limit),
        offset=_checked_offset(body.offset),
    )
    return JsonReply({"data": rows})


@endpoints.add("GET", "/cards/aliases", "strategies:read", reply=dict[str, Any])
async def list_aliases(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the names that are bound to cards."""
    return JsonReply({"data": await _ask(call, "alias_list")})


@endpoints.add("GET", "/cards/{card_id}", "strategies:read", reply=CardReport)
async def show_card(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show a card with its aliases, and the cards that it came from and that came from it."""
    card_id = call.path["card_id"]
    card = _found(await _ask(call, "get", card_id=card_id), card_id)
    aliases = [alias for alias in await _ask(call, "alias_list") if alias["card_id"] == card_id]
    lineage = await _ask(call, "lineage", card_id=card_id, direction="both")
    return JsonReply(CardReport(card, aliases, lineage or {"root": card_id, "nodes": [], "edges": []}))


@endpoints.add("GET", "/cards/{card_id}/samples", "strategies:read", query=SampleParameters, reply=dict[str, Any])
async def show_samples(call: ApiCall[SampleParameters, None]) -> JsonReply:
    """List the single cases behind a card."""
    query = call.query
    limit, offset = checked_limit(query.limit), _checked_offset(query.offset)
    rows = await _ask(call, "read_samples", card_id=call.path["card_id"], limit=limit, offset=offset)
    return JsonReply({"data": rows})


@endpoints.add("GET", "/cards/{card_id}/lineage", "strategies:read", query=LineageParameters, reply=dict[str, Any])
async def show_lineage(call: ApiCall[LineageParameters, None]) -> JsonReply:
    """Show which cards a card came from, and which came from it."""
    card_id, query = call.path["card_id"], call.query
    if not 0 <= query.depth <= 1_000:
        raise InvalidValueError("depth", f"it is 0 to 1000 steps, got {query.depth}")
    found = await _ask(call, "lineage", card_id=card_id, direction=query.direction, depth=query.depth)
    return JsonReply(_found(found, card_id))


async def _ask(call: ApiCall[Any, Any], op: str, **arguments: Json) -> Json:
    if call.principal.id_prefix:
        # A card says nothing of who may see the session that wrote it.
        raise ApiError(403, "forbidden", "this token sees some sessions only, and cards belong to none of them")
    given = {key: value for key, value in arguments.items() if value is not None}
    return await load_object(_LIBRARY)(call.door.store).answer({"op": op, **given}, again=False)


def _found(value: Json, card_id: str) -> Json:
    if value is None:
        raise ApiError(404, "card_not_found", f"there is no card '{card_id[:200]}'")
    return value


def _checked_offset(offset: int) -> int:
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidValueError("offset", f"it is 0 to {MAX_OFFSET:,}, got {offset}")
    return offset
