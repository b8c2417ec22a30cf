"""Publishing a collection: its index (`reindex`), its documents (`gendoc`), and both together (`dist`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.hub.documents import (
    PRESET_CATALOG_VERSION,
    chosen_projections,
    collection_pages,
    read_config,
    write_below,
)
from holdfast.alc.hub.index import INDEX_FILE, HubIndex, index_of_tree, is_index_file
from holdfast.alc.hub.source_tree import opened
from holdfast.alc.packages.errors import SourceError
from holdfast.core.values import repaired


class IndexReport(msgspec.Struct, frozen=True):
    """What was indexed, and where it was written."""

    package_count: int
    updated_at: str
    output_path: str | None
    source_dir: str | None


@dataclass(frozen=True)
class DocumentOrder:
    """What to make of a collection."""

    source: str
    """A directory, or the URL of a git repository."""
    out_dir: str | None = None
    """None for `docs` in the directory."""
    projections: Sequence[str] | None = None
    config_path: str | None = None
    lint_strict: bool = False
    """Whether findings are an error."""
    preset: str | None = None


class DocumentReport(msgspec.Struct, frozen=True):
    """What was made."""

    source_dir: str
    out_dir: str | None
    stdout: str
    stderr: str
    warnings: list[str]
    files: list[str] = []


def write_index(index: HubIndex, output_path: str | None, source: str | None) -> IndexReport:
    """Write an index to a file; a file that is none is not replaced."""
    written = None
    if output_path is not None:
        path = Path(os.path.abspath(os.path.expanduser(output_path)))
        if path.is_symlink() or (path.exists() and not is_index_file(path)):
            raise SourceError(str(path), "there is something else of that name, and it is not replaced")
        if not path.parent.is_dir():
            raise SourceError(str(path), f"there is no directory {path.parent}")
        write_below(path.parent, {path.name: index.to_bytes()})
        written = str(path)
    return IndexReport(len(index.packages), index.updated_at, written, source)


def reindex(source: str, output_path: str | None, environ: Mapping[str, str]) -> IndexReport:
    """Index a collection by its files alone."""
    with opened(source, environ) as tree:
        index = index_of_tree(tree)
        if tree.rev is None:  # where it lies here is nobody else's business
            bare = [msgspec.structs.replace(entry, source="") for entry in index.packages]
            index = msgspec.structs.replace(index, packages=bare)
    return write_index(index, output_path, source)


def gendoc(order: DocumentOrder, environ: Mapping[str, str]) -> DocumentReport:
    """Make the documents of a collection."""
    config = read_config(None if order.config_path is None else _path(order.config_path))
    projections = chosen_projections(order.projections, order.preset, config)
    with opened(order.source, environ) as tree:
        if order.out_dir is None and tree.rev is not None:
            raise SourceError(order.source, "say where the documents of a repository are to be written (out_dir)")
        target = _path(order.out_dir) if order.out_dir is not None else tree.root / "docs"
        made = collection_pages(tree, projections, config)
        is_strict = order.lint_strict and bool(made.findings)
        if is_strict:
            shown = "; ".join(made.findings[:5])
            raise SourceError(order.source, f"{len(made.findings)} findings, and lint_strict is set: {shown}")
        written = write_below(target, made.files)
    skipped = [f"unknown key [hub.{key}]" for key in _unknown_keys(config)]
    return DocumentReport(
        source_dir=order.source,
        out_dir=str(target) if written else None,
        stdout="".join(f"wrote {repaired(path)}\n" for path in written),
        stderr="".join(f"lint: {repaired(line)}\n" for line in made.findings),
        warnings=[*(repaired(line) for line in made.findings), *skipped],
        files=written,
    )


def dist(order: DocumentOrder, output_path: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Index a collection and make its documents."""
    output = output_path
    if output is None and os.path.isdir(os.path.expanduser(order.source)):
        output = str(_path(order.source) / INDEX_FILE)
    documents = gendoc(order, environ)
    index = reindex(order.source, output, environ)
    return {
        "reindex": msgspec.to_builtins(index),
        "gendoc": msgspec.to_builtins(documents),
        "preset_catalog_version": PRESET_CATALOG_VERSION,
        **({"preset": order.preset} if order.preset is not None else {}),
    }


def _unknown_keys(config: Mapping[str, Any]) -> list[str]:
    hub = config.get("hub")
    known = ("context7", "devin", "dist", "collection_url")
    return [key for key in hub if key not in known] if isinstance(hub, dict) else []


def _path(given: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(given)))
