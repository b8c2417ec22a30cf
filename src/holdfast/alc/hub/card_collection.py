"""Cards that others publish: a directory or repository with `alc_cards.toml`, or the `cards/` of a package."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.alc.cards.box import FoundCard
from holdfast.alc.cards.errors import CardError, InvalidCardError
from holdfast.alc.cards.files import CARD_SUFFIX, SAMPLES_SUFFIX
from holdfast.alc.cards.library import CardLibrary
from holdfast.alc.cards.names import check_name
from holdfast.alc.cards.toml import from_toml, to_json
from holdfast.alc.hub.source_tree import SourceTree, opened
from holdfast.alc.packages.errors import SourceError
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json, repaired
from holdfast.programs.files import write_atomically

MANIFEST = "alc_cards.toml"

MAX_CARDS = 10_000
"""Cards of one collection: as many as are listed in a second or two."""


class CardInstallReport(msgspec.Struct):
    """What was installed."""

    source: str
    installed_cards: list[str] = []
    skipped_cards: list[str] = []
    """Ids that were there already; nothing of them was changed."""
    packages: list[str] = []
    refused: list[str] = []
    """What is no card, and why."""
    mode: str = "card_collection"


class ReadCards(msgspec.Struct):
    """The cards of a tree, with their samples, before anything is kept."""

    cards: list[FoundCard] = []
    samples: dict[str, list[Json]] = {}
    refused: list[str] = []


async def install_cards(library: CardLibrary, given: str, environ: Mapping[str, str]) -> CardInstallReport:
    """Keep the cards of a collection. Those whose ids are taken stay as they are."""
    found = await asyncio.to_thread(_read_collection, given, environ)
    report = CardInstallReport(source=given, refused=found.refused)
    await keep_cards(library, found, report)
    report.packages = sorted({card.pkg for card in found.cards})
    return report


async def keep_cards(library: CardLibrary, found: ReadCards, report: CardInstallReport) -> None:
    """Keep cards that were read, and say which were there already."""
    for card in found.cards:
        is_new = await library.adopt(card, found.samples.get(card.card_id))
        (report.installed_cards if is_new else report.skipped_cards).append(card.card_id)


def _read_collection(given: str, environ: Mapping[str, str]) -> ReadCards:
    with opened(given, environ) as tree:
        if tree.read(MANIFEST) is None:
            raise SourceError(
                given,
                f"Not a Card Collection: {MANIFEST} not found at root; a collection of cards has one, and a directory"
                " for each package",
            )
        found = ReadCards()
        for pkg in tree.directories():
            if pkg[0] != "_":
                read_cards(tree, pkg, pkg, found)
        if not found.cards:
            more = f" ({'; '.join(found.refused[:3])})" if found.refused else ""
            raise SourceError(given, f"No Card files found in any subdirectory{more}")
        return found


def read_cards(tree: SourceTree, folder: str, pkg: str, found: ReadCards) -> None:
    """The cards in one directory of a tree, as those of a package."""
    try:
        check_name(pkg, "pkg")
    except CardError as error:
        found.refused.append(repaired(str(error)))
        return
    found.refused += [f"{folder}/{name}: it is a link" for name in tree.links(folder)]
    for name in tree.files(folder):
        if not name.endswith(CARD_SUFFIX):
            continue
        if len(found.cards) >= MAX_CARDS:
            raise SourceError(tree.given, f"it has more than {MAX_CARDS} cards")
        card_id = name.removesuffix(CARD_SUFFIX)
        try:
            card = _card(tree.read(*folder.split("/"), name) or b"", check_name(card_id, "card_id"))
            samples = tree.read(*folder.split("/"), card_id + SAMPLES_SUFFIX)
            if samples is not None:
                found.samples[card_id] = [msgspec.json.decode(line) for line in samples.splitlines() if line.strip()]
            found.cards.append(FoundCard(card_id, pkg, card))
        except (HoldfastError, ValueError, RecursionError) as error:
            found.samples.pop(card_id, None)
            found.refused.append(repaired(f"{folder}/{name}: {error}"))


def _card(data: bytes, card_id: str) -> dict[str, Json]:
    card = to_json(from_toml(data))
    if not isinstance(card.get("pkg"), dict):
        raise InvalidCardError("install", "it has no table 'pkg'")
    if card.get("card_id", card_id) != card_id:
        raise InvalidCardError("install", f"it says that its id is {str(card['card_id'])[:80]!r}")
    return {**card, "card_id": card_id}


async def install_bundled_cards(library: CardLibrary, packages: Path, names: Iterable[str]) -> list[str]:
    """Keep the cards that packages bring along in `cards/`; the ids of those that are new here."""
    report = CardInstallReport(source=str(packages))
    for name in names:
        found = ReadCards()
        await asyncio.to_thread(read_cards, SourceTree(packages / name, name), "cards", name, found)
        await keep_cards(library, found, report)
    return report.installed_cards


def write_manifest(directory: Path) -> None:
    """Make a directory of cards a collection."""
    write_atomically(directory / MANIFEST, b'schema_version = "card_collection/v0"\n')
