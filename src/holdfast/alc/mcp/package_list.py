"""`alc_pkg_list`: the packages as algocline's clients know them; filtered, sorted, cut and reduced as they ask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.packages.package_list import PackageEntry, PackageList, listing
from holdfast.alc.packages.run_meta import fill_in
from holdfast.core.values import Json, encode, fingerprint, repaired
from holdfast.programs.kinds import get_language
from holdfast.serve.mcp.catalog import runnables_in
from holdfast.serve.mcp.directories import on_files, shown
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about, unquoted

DEFAULT_LIMIT = 50
"""Packages in a list, unless it is said otherwise."""

DEFAULT_SORT = "-active,-installed_at"

SUMMARY = ("name", "scope", "version", "active", "resolved_source_path", "resolved_source_kind")
"""The keys of an entry that `summary` keeps."""

OTHERS = (
    "install_source",
    "installed_at",
    "updated_at",
    "override_paths",
    "overrides",
    "linked",
    "link_target",
    "broken",
    "path",
    "source",
    "source_type",
    "error",
    "origin",
    "type",
    "checksum",
    "overridden_by",
    "description",
    "category",
)
"""The other keys that an entry may have, beside those of a package's own metadata."""


class ListParams(Params):
    project_root: ProjectRoot = None
    limit: Annotated[int | None, about(f"How many at most; {DEFAULT_LIMIT} if left out, 0 or less for all.")] = None
    sort: Annotated[
        str | None,
        about(f'Keys, separated by commas; "-" before one is descending. "{DEFAULT_SORT}" if left out.'),
    ] = None
    filter: Annotated[Any, about('An object: only entries with exactly these values, as {"scope": "global"}.')] = None
    fields: Annotated[list[str] | None, about("Only these keys of each entry; beats verbose.")] = None
    verbose: Annotated[str | None, about('"summary" (the default) or "full": how much of each entry.')] = None


@dataclass(frozen=True)
class SortKey:
    key: str
    descending: bool


async def alc_pkg_list(call: McpCall, params: ListParams) -> Object:
    keys = sort_keys(params.sort if params.sort is not None else DEFAULT_SORT)
    fields = chosen_fields(params.fields, params.verbose)
    wanted = unquoted(params.filter)
    if wanted is not None and not isinstance(wanted, dict):
        raise McpToolError("`filter` must be an object of keys and the values that they must have")
    found: PackageList = await on_files(listing, directories_of(params.project_root))
    await fill_in(found)
    packages = await on_files(entries, found)
    in_python = await runnables_in(get_language("python"), directories_of(params.project_root).project)
    strategies = [each.view for each in in_python]
    _check_known(keys, packages)
    matching = [each for each in packages if matches(each, wanted or {})]
    limit = DEFAULT_LIMIT if params.limit is None else params.limit
    shown_ones = in_order(matching, keys)[: limit if limit > 0 else None]
    found_json = found.to_json()
    result: Object = {
        "packages": [reduced(each, fields) for each in shown_ones],
        "search_paths": found_json["search_paths"],
        "total": len(matching),
        **{key: found_json[key] for key in ("project_root", "lockfile_path") if key in found_json},
        "strategies": msgspec.to_builtins(strategies),
    }
    if found.warnings:
        result["warnings"] = found.warnings
    clean: Object = cleaned(result)
    return clean


# --- entries ---------------------------------------------------------------------------------------


def entries(found: PackageList) -> list[Object]:
    """Every package with all that is known of it; what is not known has no key."""
    hidden: dict[str, list[str]] = {}
    for each in found.packages:
        if not each.package.active:
            hidden.setdefault(each.package.name, []).append(each.package.directory)
    return [_entry(each, hidden.get(each.package.name, [])) for each in found.packages]


def _entry(listed: PackageEntry, hidden: Sequence[str]) -> Object:
    package = listed.package
    entry = {key: value for key, value in listed.to_json().items() if value is not None}
    if entry["scope"] == "global":
        entry["source"] = str(Path(package.directory).parent)
    else:
        entry.pop("source", None)
        entry.setdefault("source_type", "path")
    if os.path.isdir(package.directory):
        entry["resolved_source_path"] = os.path.realpath(package.directory)
    else:
        entry.pop("resolved_source_path", None)
    if package.active and hidden:
        entry["overrides"] = [str(Path(each).parent) for each in hidden]
        entry["override_paths"] = [os.path.realpath(each) for each in hidden if os.path.isdir(each)]
    return entry


def cleaned(value: Json) -> Json:
    """Names of files and texts of packages may be no valid Unicode; an answer has to be."""
    match value:
        case str():
            return repaired(value)
        case dict():
            return {repaired(key): cleaned(inner) for key, inner in value.items()}
        case list():
            return [cleaned(inner) for inner in value]
        case _:
            return value


# --- choosing --------------------------------------------------------------------------------------


def sort_keys(text: str) -> list[SortKey]:
    """The keys of a sort order."""
    if not text:
        raise McpToolError("sort string is empty")
    keys = []
    for part in text.split(","):
        if not part:
            raise McpToolError(f'sort string contains empty element: "{shown(text)}"')
        name = part.removeprefix("-")
        if not name:
            raise McpToolError(f'sort element has no key name: "{shown(part)}"')
        keys.append(SortKey(name, part.startswith("-")))
    return keys


def _check_known(keys: Iterable[SortKey], packages: Sequence[Object]) -> None:
    for each in keys:
        known = each.key in SUMMARY or each.key in OTHERS or any(each.key in entry for entry in packages)
        if not known:
            raise McpToolError(
                f"unknown sort key '{shown(each.key)}': no package has it (known: {', '.join(SUMMARY)}, …)"
            )


def chosen_fields(fields: list[str] | None, verbose: str | None) -> Sequence[str] | None:
    """The keys to keep of each entry; None for all."""
    if fields is not None:
        return fields
    match verbose:
        case None | "summary":
            return SUMMARY
        case "full":
            return None
        case _:
            raise McpToolError(f'invalid verbose value "{shown(verbose)}" (expected "summary" or "full")')


def reduced(entry: Object, fields: Sequence[str] | None) -> Object:
    """The entry with these keys only, in their order. Keys that it does not have are skipped."""
    return entry if fields is None else {key: entry[key] for key in fields if key in entry}


def matches(entry: Object, wanted: Object) -> bool:
    """Whether an entry has exactly these values: `true` is not 1, and what is missing equals nothing."""
    return all(key in entry and fingerprint(entry[key]) == fingerprint(value) for key, value in wanted.items())


def in_order(packages: Iterable[Object], keys: Sequence[SortKey]) -> list[Object]:
    """Sorted by the first key, equal ones by the next. What an entry lacks is last ascending, first descending."""
    ordered = list(packages)
    for each in reversed(keys):
        ordered.sort(key=lambda entry, key=each.key: _rank(entry.get(key)), reverse=each.descending)  # type: ignore[misc]
    return ordered


def _rank(value: Json) -> tuple[bool, int, Json]:
    match value:
        case None:
            return (True, 0, 0)
        case bool():
            return (False, 1, value)
        case int() | float():
            return (False, 2, value)
        case str():
            return (False, 3, value)
        case _:
            return (False, 4, encode(value))


TOOL: McpTool[ListParams] = McpTool(
    "alc_pkg_list",
    "List strategy packages",
    "The Lua packages that can be run (alc_advice) or required, each with its scope (variant, project or global), its"
    " version, whether it is the one that its name finds (active), and where it is. Start here to see what there is:"
    ' `fields: ["name", "category", "description"]` with `limit: 0` gives an overview. `total` counts all that match,'
    " also those beyond the limit. `strategies` are those in Python, which alc_advice runs by name as well; the other"
    " parameters do not concern them.",
    ListParams,
    alc_pkg_list,
    read_only=True,
    idempotent=True,
    output={
        "type": "object",
        "properties": {
            "packages": {"type": "array", "items": {"type": "object"}},
            "search_paths": {"type": "array", "items": {"type": "object"}},
            "total": {"type": "integer"},
            "project_root": {"type": "string"},
            "lockfile_path": {"type": "string"},
            "strategies": {"type": "array", "items": {"type": "object"}},
            "warnings": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["packages", "search_paths"],
    },
)
