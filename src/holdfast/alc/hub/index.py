"""A hub index: the packages of a collection in one file, `hub_index.json`, as algocline's clients read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.alc.hub.source_tree import SourceTree
from holdfast.alc.lua.meta import PackageMeta, docstring, meta_of
from holdfast.alc.packages.errors import SourceError
from holdfast.alc.packages.package_list import PackageEntry, PackageList
from holdfast.alc.packages.records import now
from holdfast.core.values import Json, repaired
from holdfast.programs.names import invalid_name_reason

INDEX_FILE = "hub_index.json"
SCHEMA_VERSION = "hub_index/v0"

MAX_PACKAGES = 20_000
"""Packages of one index: a hundred times the largest known."""

MAX_TEXT_CHARS = 20_000
"""Characters of a description or docstring in an index that somebody else wrote."""


class BestCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card with the highest pass rate."""

    card_id: str
    model: str = ""
    pass_rate: float = 0.0
    scenario: str = ""


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One package."""

    name: str
    version: str = ""
    description: str = ""
    category: str = ""
    docstring: str = ""
    source: str = ""
    card_count: int = 0
    best_card: BestCard | None = None


class HubIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of one source."""

    schema_version: str = SCHEMA_VERSION
    updated_at: str = ""
    packages: list[IndexEntry] = []

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_index(data: bytes, source: str) -> HubIndex:
    """An index that somebody else wrote. Entries that cannot be packages are left out; the rest is cut to size."""
    try:
        head = msgspec.json.decode(data, type=_LooseIndex)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(source, f"its index is not one ({error})") from None
    if not head.schema_version.startswith("hub_index/"):
        raise SourceError(source, f"its index has the schema {head.schema_version[:40]!r}, and not {SCHEMA_VERSION!r}")
    if len(head.packages) > MAX_PACKAGES:
        raise SourceError(source, f"its index has more than {MAX_PACKAGES} packages")
    entries = []
    for raw in head.packages:
        try:
            entry = msgspec.convert(raw, IndexEntry, strict=False)
        except msgspec.ValidationError:
            continue
        if invalid_name_reason(entry.name) is None:
            texts = {
                name: repaired(getattr(entry, name))[:MAX_TEXT_CHARS]
                for name in ("version", "description", "category", "docstring")
            }
            entries.append(msgspec.structs.replace(entry, **texts, source=repaired(entry.source or source)[:500]))
    return HubIndex(updated_at=repaired(head.updated_at)[:40], packages=entries)


class _LooseIndex(msgspec.Struct):
    schema_version: str
    updated_at: str = ""
    packages: list[Json] = []


def index_of_tree(tree: SourceTree) -> HubIndex:
    """The index of a collection, or of a single package, made from its files. Nothing of it is run."""
    entries = {}
    for folder in ("", *tree.directories()):
        path = (folder, "init.lua") if folder else ("init.lua",)
        source = tree.text(*path) if not folder.startswith("_") else None
        if source is None:
            continue
        own = _entry(folder or tree.root.name, meta_of(source), docstring(source), tree.given)
        if invalid_name_reason(own.name) is None:
            entries[own.name] = own
        if not folder:
            break  # the directory is itself a package: what is in it are its modules
    return HubIndex(updated_at=now(), packages=[entries[name] for name in sorted(entries)])


def index_of_installed(found: PackageList, cards: Mapping[str, list[dict[str, Json]]]) -> HubIndex:
    """The index of what is installed here, with the cards of each package."""
    active = [each for each in found.packages if each.package.active]
    return HubIndex(updated_at=now(), packages=[installed_entry(each, cards) for each in active])


def installed_entry(listed: PackageEntry, cards: Mapping[str, list[dict[str, Json]]]) -> IndexEntry:
    """A package that is installed here."""
    package = listed.package
    source = str(listed.record.source) if listed.record is not None else package.link or ""
    entry = _entry(package.name, package.meta, package.meta.docstring if package.meta else "", repaired(source))
    own = cards.get(package.name, [])
    return msgspec.structs.replace(entry, name=package.name, card_count=len(own), best_card=best_card(own))


def best_card(cards: list[dict[str, Json]]) -> BestCard | None:
    """Of summaries of cards, the one with the highest pass rate, if any has one; the newest of several."""
    rated = [card for card in cards if isinstance(card.get("pass_rate"), int | float)]
    if not rated:
        return None
    best = max(rated, key=lambda card: (card["pass_rate"], card.get("created_at", "")))
    return BestCard(
        card_id=best["card_id"],
        model=best.get("model", ""),
        pass_rate=float(best["pass_rate"]),
        scenario=best.get("scenario", ""),
    )


def _entry(folder: str, meta: PackageMeta | None, text: str, source: str) -> IndexEntry:
    own = meta.name if meta is not None else None
    return IndexEntry(
        name=own if own is not None and invalid_name_reason(own) is None else folder,
        version=repaired((meta.version if meta else None) or ""),
        description=repaired((meta.description if meta else None) or ""),
        category=repaired((meta.category if meta else None) or ""),
        docstring=repaired(text),
        source=source,
    )


def is_index_file(path: Path) -> bool:
    """Whether a file is an index, and may be replaced by one."""
    try:
        with path.open("rb") as file:
            return b"hub_index/" in file.read(4096)
    except OSError:
        return False
