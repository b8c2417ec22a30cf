"""What a collection publishes of itself: pages, types and lists made from its files. Nothing of it is run.

Everything is made first, and written afterwards, below one directory, in which no link is followed.
"""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.hub.index import HubIndex, IndexEntry, index_of_tree
from holdfast.alc.hub.source_tree import SourceTree
from holdfast.alc.lua.meta import meta_of, requires_of
from holdfast.alc.packages.errors import SourceError
from holdfast.programs.names import invalid_name_reason

PROJECTIONS = ("hub", "context7", "devin", "lint", "lint_only", "luacats", "narrative", "llms")
DEFAULT_PROJECTIONS = ("hub", "narrative", "llms")
PRESETS: Mapping[str, Sequence[str]] = {"publish": ("hub", "narrative", "llms", "luacats", "context7", "devin", "lint")}

PRESET_CATALOG_VERSION = "1"

_FUNCTION = re.compile(r"^[ \t]*function\s+M\.([A-Za-z_]\w*)\s*\(([^)\n]*)\)", re.MULTILINE)


@dataclass
class CollectionPages:
    """The documents of a collection, before they are written: by their paths below the directory for them."""

    files: dict[str, bytes] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    """What is wrong with packages, one line each."""


def chosen_projections(given: Sequence[str] | None, preset: str | None, config: Mapping[str, Any]) -> Sequence[str]:
    """The projections that are asked for; raises if one is unknown."""
    chosen: Sequence[str]
    if given is not None:
        chosen = given
    elif preset is not None:
        presets = _table(_table(_table(config, "hub"), "dist"), "presets")
        own = _table(presets, preset).get("projections")
        found = own if isinstance(own, list) else PRESETS.get(preset)
        if found is None:
            known = ", ".join(sorted({*PRESETS, *presets}))
            raise SourceError(preset, f"there is no preset of that name (there are: {known})")
        chosen = [str(each) for each in found]
    else:
        chosen = DEFAULT_PROJECTIONS
    if unknown := [each for each in chosen if each not in PROJECTIONS]:
        raise SourceError(str(unknown[0])[:80], f"there is no such projection (there are: {', '.join(PROJECTIONS)})")
    return chosen


def read_config(path: Path | None) -> dict[str, Any]:
    """The settings of a collection's documents; none without a file."""
    if path is None:
        return {}
    if path.suffix != ".toml":
        raise SourceError(str(path), "the configuration is a .toml file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(str(path), f"the configuration cannot be read ({error})") from None


def collection_pages(tree: SourceTree, projections: Sequence[str], config: Mapping[str, Any]) -> CollectionPages:
    """All documents that are asked for."""
    index = index_of_tree(tree)
    if not index.packages:
        raise SourceError(tree.given, "it has no init.lua, and no directory in it has one")
    made = CollectionPages()
    sources = {entry.name: _source_of(tree, entry.name) for entry in index.packages}
    if "lint" in projections or "lint_only" in projections:
        made.findings = [line for entry in index.packages for line in lint(entry, sources[entry.name])]
    if "lint_only" in projections:
        return made
    makers: Mapping[str, Callable[[], dict[str, str]]] = {
        "hub": lambda: {f"hub/{entry.name}.json": _json(msgspec.to_builtins(entry)) for entry in index.packages},
        "narrative": lambda: {
            f"narrative/{entry.name}.md": narrative(entry, sources[entry.name]) for entry in index.packages
        },
        "llms": lambda: _llms(tree, index, sources),
        "luacats": lambda: {f"types/{entry.name}.d.lua": _stub(entry, sources[entry.name]) for entry in index.packages},
        "context7": lambda: {"context7.json": _json(_context7(tree, index, config))},
        "devin": lambda: {".devin/wiki.json": _json(_devin(index, config))},
    }
    for name in projections:
        if name in makers:
            made.files |= {path: text.encode("utf-8", "replace") for path, text in makers[name]().items()}
    return made


def narrative(entry: IndexEntry, source: str) -> str:
    """The page of one package: what it says of itself, in Markdown."""
    facts = [("Version", entry.version), ("Category", entry.category), ("Source", entry.source)]
    needs = sorted({each.name for each in requires_of(source)} - {entry.name})
    lines = [f"# {entry.name}", "", entry.description or "This package does not say what it does.", ""]
    lines += [f"- {name}: {value}" for name, value in facts if value]
    if needs:
        lines.append(f"- Requires: {', '.join(needs)}")
    if lines[-1]:
        lines.append("")
    if entry.docstring:
        lines += [entry.docstring, ""]
    calls = _FUNCTION.findall(source)
    if calls:
        lines += ["## Functions", "", *(f"- `{entry.name}.{name}({args.strip()})`" for name, args in calls), ""]
    lines += ["## Use", "", "```lua", f'local {entry.name} = require("{entry.name}")', "```", ""]
    return "\n".join(lines)


def lint(entry: IndexEntry, source: str) -> list[str]:
    """What would make a package hard to find or to run."""
    meta = meta_of(source)
    if meta is None:
        return [f"{entry.name}: its metadata cannot be read without running it: assign a table of literals to M.meta"]
    found = []
    if meta.name != entry.name:
        found.append(f"{entry.name}: meta.name is {meta.name!r}, and not a name that can be required")
    found += [
        f"{entry.name}: meta.{key} is missing"
        for key in ("version", "description", "category")
        if not getattr(meta, key)
    ]
    if not entry.docstring:
        found.append(f"{entry.name}: init.lua does not begin with `---` lines that say how to use it")
    return found


def _source_of(tree: SourceTree, name: str) -> str:
    """The text of a package's init.lua, by the name that the index has for it."""
    alone = tree.text("init.lua")
    if alone is not None:
        return alone
    own = tree.text(name, "init.lua") if invalid_name_reason(name) is None else None
    if own is not None:
        return own
    for folder in tree.directories():  # a package that calls itself otherwise than its directory
        text = tree.text(folder, "init.lua")
        meta = None if text is None else meta_of(text)
        if text is not None and meta is not None and meta.name == name:
            return text
    return ""


def _llms(tree: SourceTree, index: HubIndex, sources: Mapping[str, str]) -> dict[str, str]:
    title = tree.root.name if tree.rev is None else tree.given
    lines = [f"# {title}", "", f"{len(index.packages)} packages for algocline and Holdfast.", ""]
    by_category: dict[str, list[IndexEntry]] = {}
    for entry in index.packages:
        by_category.setdefault(entry.category or "other", []).append(entry)
    for category in sorted(by_category):
        lines += [f"## {category}", ""]
        lines += [f"- [{each.name}](narrative/{each.name}.md): {each.description}" for each in by_category[category]]
        lines.append("")
    full = "\n".join(narrative(entry, sources[entry.name]) for entry in index.packages)
    return {"llms.txt": "\n".join(lines), "llms-full.txt": full}


def _stub(entry: IndexEntry, source: str) -> str:
    lines = ["---@meta", "", *(f"--- {line}".rstrip() for line in entry.description.splitlines())]
    lines += [f"---@class {entry.name}", "---@field meta table", f"local {entry.name} = {{}}", ""]
    for name, args in _FUNCTION.findall(source):
        names = [each.strip() for each in args.split(",") if each.strip()]
        lines += [f"---@param {each} any" for each in names if each != "..."]
        lines += ["---@return any", f"function {entry.name}.{name}({', '.join(names)}) end", ""]
    return "\n".join([*lines, f"return {entry.name}", ""])


def _context7(tree: SourceTree, index: HubIndex, config: Mapping[str, Any]) -> dict[str, Any]:
    about = f"{len(index.packages)} Lua packages of reasoning strategies"
    return {"projectTitle": tree.root.name, "description": about, **_table(_table(config, "hub"), "context7")}


def _devin(index: HubIndex, config: Mapping[str, Any]) -> dict[str, Any]:
    categories = sorted({entry.category or "other" for entry in index.packages})
    pages = [{"title": each, "purpose": f"The packages of the category {each}"} for each in categories]
    return {"repo_notes": [], "pages": pages, **_table(_table(config, "hub"), "devin")}


def _table(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n"


# --- writing ---------------------------------------------------------------------------------------


def write_below(directory: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write files below a directory, each in one step. A link on the way to one is refused first."""
    for path in files:
        _check_way(directory, path)
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_way(directory, path)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(content)
            os.replace(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    return sorted(files)


def _check_way(directory: Path, path: str) -> None:
    for place in _way(directory, path):
        if place.is_symlink():
            raise SourceError(str(directory), f"{place} is a link; nothing is written through it")


def _way(directory: Path, path: str) -> Iterable[Path]:
    place = directory
    yield place
    for part in Path(path).parts:
        place = place / part
        yield place
