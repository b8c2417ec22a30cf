"""algocline's tools for cards, by their names; the work is in `holdfast.alc.cards`."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any, TypeAlias

import msgspec

from holdfast.alc.cards.tool import own_library
from holdfast.alc.hub.card_collection import install_cards
from holdfast.alc.mcp.package_list import cleaned
from holdfast.core.values import Json
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, about, unquoted

CardId: TypeAlias = Annotated[str, about("The card's id.")]
Pkg: TypeAlias = Annotated[str | None, about("Only those of this package.")]
Where: TypeAlias = Annotated[
    Any,
    about(
        'A filter: {"stats": {"pass_rate": {"gte": 0.8}}}. Operators eq ne lt lte gt gte in nin exists contains'
        " starts_with; _and, _or, _not join filters."
    ),
]


async def _ask(call: McpCall, op: str, **arguments: Json) -> Json:
    """Carry out an operation as a program would."""
    given = {key: value for key, value in arguments.items() if value is not None}
    return await own_library(call.holdfast.store).answer({"op": op, "now": time.time(), **given}, again=False)


class CardListParams(Params):
    pkg: Pkg = None


async def alc_card_list(call: McpCall, params: CardListParams) -> list[Json]:
    rows: list[Json] = await _ask(call, "list", pkg=params.pkg)
    return rows


class GetParams(Params):
    card_id: CardId


async def alc_card_get(call: McpCall, params: GetParams) -> Object:
    card: Object | None = await _ask(call, "get", card_id=params.card_id)
    if card is None:
        raise McpToolError(f"card '{params.card_id}' not found")
    return card


class FindParams(Params):
    pkg: Pkg = None
    where: Where = None
    order_by: Annotated[Any, about('A path ("stats.pass_rate") or several; "-" before one is descending.')] = None
    limit: Annotated[int | None, about("How many at most; all if left out.")] = None
    offset: Annotated[int | None, about("How many to pass over.")] = None


async def alc_card_find(call: McpCall, params: FindParams) -> list[Json]:
    rows: list[Json] = await _ask(
        call,
        "find",
        pkg=params.pkg,
        where=unquoted(params.where),
        order_by=unquoted(params.order_by),
        limit=params.limit,
        offset=params.offset,
    )
    return rows


async def alc_card_alias_list(call: McpCall, params: CardListParams) -> list[Json]:
    rows: list[Json] = await _ask(call, "alias_list", pkg=params.pkg)
    return rows


class AliasParams(Params):
    name: Annotated[str, about("The alias.")]


async def alc_card_get_by_alias(call: McpCall, params: AliasParams) -> Object:
    card: Object | None = await _ask(call, "get_by_alias", name=params.name)
    if card is None:
        raise McpToolError(f"alias '{params.name}' not found")
    return card


class BindParams(Params):
    name: Annotated[str, about("The alias: bound anew if it is bound.")]
    card_id: CardId
    pkg: Annotated[str | None, about("The package that the alias is for.")] = None
    note: Annotated[str | None, about("Why.")] = None


async def alc_card_alias_set(call: McpCall, params: BindParams) -> Object:
    alias: Object = await _ask(call, "alias_set", **msgspec.structs.asdict(params))
    return alias


class AppendParams(Params):
    card_id: CardId
    fields: Annotated[Any, about("An object of new top-level keys. Keys that the card has cannot be changed.")]


async def alc_card_append(call: McpCall, params: AppendParams) -> Object:
    card: Object = await _ask(call, "append", card_id=params.card_id, fields=unquoted(params.fields))
    return card


class SamplesParams(Params):
    card_id: CardId
    offset: Annotated[int | None, about("How many of those that pass the filter to pass over.")] = None
    limit: Annotated[int | None, about("How many at most; all if left out.")] = None
    where: Where = None


async def alc_card_samples(call: McpCall, params: SamplesParams) -> list[Json]:
    rows: list[Json] = await _ask(
        call,
        "read_samples",
        card_id=params.card_id,
        offset=params.offset,
        limit=params.limit,
        where=unquoted(params.where),
    )
    return rows


class LineageParams(Params):
    card_id: CardId
    direction: Annotated[str | None, about("up (to what it came from, the default), down or both.")] = None
    depth: Annotated[int | None, about("Steps in each direction; 10 if left out.")] = None
    include_stats: Annotated[bool | None, about("Whether nodes have their cards' stats; true if left out.")] = None
    relation_filter: Annotated[list[str] | None, about("Only steps with one of these relations.")] = None


async def alc_card_lineage(call: McpCall, params: LineageParams) -> Object:
    found: Object | None = await _ask(call, "lineage", **msgspec.structs.asdict(params))
    if found is None:
        raise McpToolError(f"card '{params.card_id}' not found")
    return found


class BackfillParams(Params):
    sink: Annotated[str, about("The mirror, as in ALC_CARD_SINKS: file:///absolute/path.")]
    dry_run: Annotated[bool | None, about("Only say what would be copied.")] = None


async def alc_card_sink_backfill(call: McpCall, params: BackfillParams) -> Object:
    report: Object = await _ask(call, "sink_backfill", sink=params.sink, dry_run=params.dry_run)
    return report


class CardInstallParams(Params):
    url: Annotated[str, about("A git URL (URL@revision pins one) or a directory, with alc_cards.toml at its root.")]


async def alc_card_install(call: McpCall, params: CardInstallParams) -> Object:
    try:
        report = await install_cards(own_library(call.holdfast.store), params.url, dict(os.environ))
    except OSError as error:
        raise McpToolError(f"{error.filename or params.url}: {error.strerror or error}") from None
    except ValueError as error:
        raise McpToolError(str(error)) from None
    clean: Object = cleaned(msgspec.to_builtins(report))
    return clean


def _output(required: str, **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": required.split()}


_CARD = _output("card_id", card_id={"type": "string"}, pkg={"type": "object"})
_ROWS = _output("result", result={"type": "array"})
_NAMES: Object = {"type": "array", "items": {"type": "string"}}

TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_card_list",
        "List cards",
        "The cards, which are records of runs that do not change: a summary of each, the newest first.",
        CardListParams,
        alc_card_list,
        read_only=True,
        idempotent=True,
        output=_ROWS,
    ),
    McpTool(
        "alc_card_get",
        "Read a card",
        "A whole card: its package, model, parameters, scenario, figures and whatever else was recorded.",
        GetParams,
        alc_card_get,
        read_only=True,
        idempotent=True,
        output=_CARD,
    ),
    McpTool(
        "alc_card_find",
        "Find cards",
        "Summaries of the cards that pass a filter, in the order asked for, else the newest first.",
        FindParams,
        alc_card_find,
        read_only=True,
        idempotent=True,
        output=_ROWS,
    ),
    McpTool(
        "alc_card_alias_list",
        "List aliases of cards",
        "The names that are bound to cards, each with its card, when it was bound and why.",
        CardListParams,
        alc_card_alias_list,
        read_only=True,
        idempotent=True,
        output=_ROWS,
    ),
    McpTool(
        "alc_card_get_by_alias",
        "Read the card of an alias",
        "The whole card that a name is bound to.",
        AliasParams,
        alc_card_get_by_alias,
        read_only=True,
        idempotent=True,
        output=_CARD,
    ),
    McpTool(
        "alc_card_alias_set",
        "Bind an alias to a card",
        "Give a card a name, such as the best one of a package; a name that is bound is bound anew.",
        BindParams,
        alc_card_alias_set,
        idempotent=True,
        output=_output("name card_id set_at", name={"type": "string"}, card_id={"type": "string"}),
    ),
    McpTool(
        "alc_card_append",
        "Add to a card",
        "Add new top-level keys to a card, such as a review. What a card has is never changed. Gives the whole card.",
        AppendParams,
        alc_card_append,
        output=_CARD,
    ),
    McpTool(
        "alc_card_samples",
        "Read a card's samples",
        "The single cases behind a card, a page at a time, and only those that pass a filter.",
        SamplesParams,
        alc_card_samples,
        read_only=True,
        idempotent=True,
        output=_ROWS,
    ),
    McpTool(
        "alc_card_lineage",
        "Follow a card's lineage",
        "Which cards a card came from, and which came from it: nodes with their depth, and edges from child to parent.",
        LineageParams,
        alc_card_lineage,
        read_only=True,
        idempotent=True,
        output=_output(
            "root nodes edges truncated",
            root={"type": "string"},
            nodes={"type": "array"},
            edges={"type": "array"},
            truncated={"type": "boolean"},
        ),
    ),
    McpTool(
        "alc_card_sink_backfill",
        "Bring a mirror of the cards up to date",
        "Copy to a mirror (ALC_CARD_SINKS) the cards and samples that it lacks. What it has is left as it is.",
        BackfillParams,
        alc_card_sink_backfill,
        idempotent=True,
        output=_output("sink pushed skipped failed pushed_samples", sink={"type": "string"}, pushed=_NAMES),
    ),
    McpTool(
        "alc_card_install",
        "Install a collection of cards",
        "Add the cards that others publish, from a git URL or a directory with alc_cards.toml. Cards whose ids are"
        " taken are skipped; what is no card is in `refused`.",
        CardInstallParams,
        alc_card_install,
        idempotent=True,
        open_world=True,
        output=_output(
            "installed_cards skipped_cards packages source mode", installed_cards=_NAMES, skipped_cards=_NAMES
        ),
    ),
]
