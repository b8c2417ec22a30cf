"""algocline's tools for the hub, by their names; the work is in `holdfast.alc.hub`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from holdfast.alc.hub.index import INDEX_FILE, index_of_installed
from holdfast.alc.hub.publication import DocumentOrder, IndexReport, dist, gendoc, reindex, write_index
from holdfast.alc.hub.search import Hub, matching
from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.package_list import cleaned, in_order, matches, reduced, sort_keys
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.package_list import PackageList, listing
from holdfast.alc.packages.project_files import family
from holdfast.serve.mcp.directories import on_files, shown
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about, unquoted

DEFAULT_LIMIT = 50
DEFAULT_SORT = "-installed,name"
SUMMARY = ("name", "version", "description", "category", "installed", "docstring_matched")
FULL = (*SUMMARY, "source", "card_count", "best_card", "docstring")


class SearchParams(Params):
    query: Annotated[str | None, about("Text in the name, description, category or docstring; all if left out.")] = None
    category: Annotated[str | None, about("Only this category.")] = None
    installed_only: Annotated[bool | None, about("Only what is installed here.")] = None
    limit: Annotated[int | None, about(f"How many at most; {DEFAULT_LIMIT} if left out, 0 or less for all.")] = None
    sort: Annotated[str | None, about(f'Keys by commas, "-" before one is descending; "{DEFAULT_SORT}".')] = None
    filter: Annotated[Any, about("An object: only entries with exactly these values.")] = None
    fields: Annotated[list[str] | None, about("Only these keys of each entry; beats verbose.")] = None
    verbose: Annotated[str | None, about('"summary" (the default) or "full".')] = None
    local_indices: Annotated[
        list[str] | None, about("Further sources: directories, git URLs, or addresses of a hub_index.json.")
    ] = None


async def alc_hub_search(call: McpCall, params: SearchParams) -> Object:
    keys = sort_keys(params.sort if params.sort is not None else DEFAULT_SORT)
    for key in keys:
        if key.key not in FULL:
            raise McpToolError(f"unknown sort key '{shown(key.key)}' (known: {', '.join(FULL)})")
    fields = _fields(params.fields, params.verbose)
    wanted = unquoted(params.filter)
    if wanted is not None and not isinstance(wanted, dict):
        raise McpToolError("`filter` must be an object of keys and the values that they must have")
    hub = Hub(call.holdfast.store, PackageDirectories(), params.local_indices or ())
    found = matching((await hub.entries()).values(), params.query or "", params.category, bool(params.installed_only))
    rows = [row for row in msgspec.to_builtins(found) if matches(row, wanted or {})]
    limit = DEFAULT_LIMIT if params.limit is None else params.limit
    chosen = in_order(rows, keys)[: limit if limit > 0 else None]
    result: Object = {"results": [reduced(row, fields) for row in chosen], "total": len(rows), "sources": hub.sources}
    if hub.warnings:
        result["warnings"] = hub.warnings
    clean: Object = cleaned(result)
    return clean


def _fields(fields: list[str] | None, verbose: str | None) -> Sequence[str]:
    if fields is not None:
        return fields
    match verbose:
        case None | "summary":
            return SUMMARY
        case "full":
            return FULL
        case _:
            raise McpToolError(f'invalid verbose value "{shown(verbose)}" (expected "summary" or "full")')


class HubInfoParams(Params):
    pkg: Annotated[str, about("The package's name.")]


async def alc_hub_info(call: McpCall, params: HubInfoParams) -> Object:
    clean: Object = cleaned(await Hub(call.holdfast.store, PackageDirectories()).info(params.pkg))
    return clean


class ReindexParams(Params):
    output_path: Annotated[str | None, about("Where to write the index. Only an index is replaced.")] = None
    source_dir: Annotated[
        str | None, about("A collection: its directory or git URL. Without one, what is installed here is indexed.")
    ] = None


async def alc_hub_reindex(call: McpCall, params: ReindexParams) -> Object:
    if params.source_dir is not None:
        report = await on_files(reindex, params.source_dir, params.output_path, dict(os.environ))
    else:
        report = await reindex_installed(call, params.output_path)
    clean: Object = cleaned(msgspec.to_builtins(report))
    return clean


async def reindex_installed(call: McpCall, output_path: str | None) -> IndexReport:
    """Write the index of what is installed here, by default into Holdfast's directory."""
    where = PackageDirectories()
    index = await installed_index(call, where)
    if output_path is None:
        await asyncio.to_thread(where.home.mkdir, parents=True, exist_ok=True)
    return await on_files(write_index, index, output_path or str(where.home / INDEX_FILE), None)


async def installed_index(call: McpCall, where: PackageDirectories) -> Any:
    """The index of what is installed here."""
    found: PackageList = await on_files(listing, where)
    return index_of_installed(found, await Hub(call.holdfast.store, where).cards())


SourceDir: TypeAlias = Annotated[str, about("The collection: its directory or git URL.")]
OutDir: TypeAlias = Annotated[str | None, about("Where to write; docs/ in the collection if left out.")]
Projections: TypeAlias = Annotated[
    list[str] | None, about("Of hub, narrative, llms, luacats, context7, devin, lint, lint_only.")
]
ConfigPath: TypeAlias = Annotated[str | None, about("A .toml file with [hub.context7], [hub.devin] and presets.")]
Strict: TypeAlias = Annotated[bool | None, about("Whether findings of lint are an error; nothing is written then.")]


class GendocParams(Params):
    source_dir: SourceDir
    out_dir: OutDir = None
    projections: Projections = None
    config_path: ConfigPath = None
    lint_strict: Strict = None


async def alc_hub_gendoc(call: McpCall, params: GendocParams) -> Object:
    order = DocumentOrder(
        params.source_dir, params.out_dir, params.projections, params.config_path, bool(params.lint_strict)
    )
    clean: Object = cleaned(msgspec.to_builtins(await on_files(gendoc, order, dict(os.environ))))
    return clean


class DistParams(Params):
    source_dir: SourceDir
    out_dir: OutDir = None
    projections: Projections = None
    config_path: ConfigPath = None
    lint_strict: Strict = None
    output_path: Annotated[str | None, about("Where to write the index; hub_index.json in the collection.")] = None
    preset: Annotated[str | None, about('A set of projections: "publish", or one of the configuration.')] = None
    project_root: ProjectRoot = None


async def alc_hub_dist(call: McpCall, params: DistParams) -> Object:
    config = params.config_path
    root = directories_of(params.project_root).root
    if config is None and root is not None and params.preset is not None:
        config = str(root / f"{family(root)}.toml")
    order = DocumentOrder(
        params.source_dir, params.out_dir, params.projections, config, bool(params.lint_strict), params.preset
    )
    clean: Object = cleaned(await on_files(dist, order, params.output_path, dict(os.environ)))
    return clean


def _output(required: str, **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": required.split()}


_TEXT: Object = {"type": "string"}
_ROWS: Object = {"type": "array"}

TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_hub_search",
        "Search packages",
        "Find packages and strategies by text, whether they are installed here or known from the index of a source."
        " `total` counts all that match; what could not be asked is in `warnings`.",
        SearchParams,
        alc_hub_search,
        read_only=True,
        idempotent=True,
        open_world=True,
        output=_output("results total sources", results=_ROWS, total={"type": "integer"}, sources=_ROWS),
    ),
    McpTool(
        "alc_hub_info",
        "Look at a package",
        "All that is known of one package: what it says of itself, its cards and their aliases, how often it was"
        " evaluated, and its best pass rate.",
        HubInfoParams,
        alc_hub_info,
        read_only=True,
        idempotent=True,
        open_world=True,
        output=_output("pkg cards aliases stats", pkg={"type": "object"}, cards=_ROWS, stats={"type": "object"}),
    ),
    McpTool(
        "alc_hub_reindex",
        "Index packages",
        "Write the index (hub_index.json) of a collection, or of what is installed here. No package is run.",
        ReindexParams,
        alc_hub_reindex,
        destructive=True,
        idempotent=True,
        open_world=True,
        output=_output("package_count updated_at", package_count={"type": "integer"}, updated_at=_TEXT),
    ),
    McpTool(
        "alc_hub_gendoc",
        "Document a collection",
        "Make pages, type stubs and lists from the files of a collection, and check its metadata. No package is run.",
        GendocParams,
        alc_hub_gendoc,
        destructive=True,
        idempotent=True,
        open_world=True,
        output=_output("source_dir stdout stderr warnings", source_dir=_TEXT, stdout=_TEXT, warnings=_ROWS),
    ),
    McpTool(
        "alc_hub_dist",
        "Prepare a collection for others",
        "Both: write the index of a collection and make its documents.",
        DistParams,
        alc_hub_dist,
        destructive=True,
        idempotent=True,
        open_world=True,
        output=_output("reindex gendoc preset_catalog_version", reindex={"type": "object"}, gendoc={"type": "object"}),
    ),
]
