"""Search and info: what there is to run, installed or not, with its cards and evaluations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.alc.cards.library import CardLibrary
from holdfast.alc.cards.tool import own_library
from holdfast.alc.hub.index import IndexEntry, best_card, installed_entry
from holdfast.alc.hub.remote import known_sources, merged_index
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import PackageNameError
from holdfast.alc.packages.package_list import listing
from holdfast.core.records import StartedRecord
from holdfast.core.values import Json, repaired
from holdfast.programs.names import invalid_name_reason
from holdfast.programs.paths import algocline_home
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.strategies.catalog import catalog
from holdfast.strategies.evaluation.programs import EVALUATION
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN

MAX_EVALS = 100_000
"""Files of evaluations that are looked at to count them."""


class HubEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A package as a search shows it."""

    name: str
    version: str = ""
    description: str = ""
    category: str = ""
    installed: bool = False
    docstring_matched: bool = False
    source: str = ""
    card_count: int = 0
    best_card: Json = None
    docstring: str = ""


class Hub:
    """What is known of packages here: installed ones, those of known sources, and the strategies in Python."""

    def __init__(self, store: Store, where: PackageDirectories, sources: Iterable[str] = ()) -> None:
        self._store = store
        self._where = where
        self._given = list(sources)
        self.sources: list[str] = []
        self.warnings: list[str] = []

    @property
    def library(self) -> CardLibrary:
        return own_library(self._store)

    async def entries(self) -> dict[str, HubEntry]:
        """All packages by name."""
        cards = await self.cards()
        found = await asyncio.to_thread(listing, self._where)
        known: dict[str, HubEntry] = {}
        for strategy in await asyncio.to_thread(catalog):
            meta = strategy.meta
            known[strategy.name] = HubEntry(
                name=strategy.name,
                description=meta.description if meta is not None else "",
                category=strategy.category,
                installed=True,
                source=f"holdfast:{strategy.origin}",
                docstring=strategy.doc,
            )
        installed = [installed_entry(each, cards) for each in found.packages if each.package.active]
        known |= {entry.name: _shown(entry, installed=True) for entry in installed}
        self.sources = list(dict.fromkeys((*self._given, *await asyncio.to_thread(known_sources, self._where))))
        elsewhere = await asyncio.to_thread(merged_index, self._where, self.sources, self.warnings)
        for entry in elsewhere:
            here = known.get(entry.name)
            known[entry.name] = _shown(entry, installed=False) if here is None else _joined(here, entry)
        return {name: self._with_cards(entry, cards.get(name, [])) for name, entry in known.items()}

    async def cards(self) -> dict[str, list[dict[str, Json]]]:
        """Summaries of the cards, by package."""
        by_package: dict[str, list[dict[str, Json]]] = {}
        for row in await self.library.list():
            by_package.setdefault(row["pkg"], []).append(row)
        return by_package

    def _with_cards(self, entry: HubEntry, cards: list[dict[str, Json]]) -> HubEntry:
        if len(cards) < entry.card_count:
            return entry
        best = best_card(cards)
        shown = entry.best_card if best is None else msgspec.to_builtins(best)
        return msgspec.structs.replace(entry, card_count=len(cards), best_card=shown)

    async def info(self, name: str) -> dict[str, Json]:
        """All that is known of one package."""
        if (why := invalid_name_reason(name)) is not None:
            raise PackageNameError(name, why)
        entry = (await self.entries()).get(name)
        if entry is None:
            self.warnings.append(f"no package '{name}' is installed, and no known source has one")
        library = self.library
        cards = await library.list(name)
        aliases = [each for each in await library.alias_list() if self._is_of(each, name, cards)]
        rates = [card["pass_rate"] for card in cards if "pass_rate" in card]
        shown = entry or HubEntry(name=name)
        keys = ("name", "version", "description", "category", "source", "installed")
        return {
            "pkg": {key: getattr(shown, key) for key in keys},
            "cards": cards,
            "aliases": aliases,
            "stats": {
                "card_count": len(cards),
                "eval_count": await self._evaluations(name),
                "best_pass_rate": max(rates) if rates else None,
            },
            **({"warnings": self.warnings} if self.warnings else {}),
        }

    def _is_of(self, alias: dict[str, Json], name: str, cards: list[dict[str, Json]]) -> bool:
        return alias.get("pkg") == name or any(alias["card_id"] == card["card_id"] for card in cards)

    async def _evaluations(self, name: str) -> int:
        """How many evaluations of a package there are: in the store, and in algocline's files."""
        found = await asyncio.to_thread(self._evaluation_files, name)
        for program in (EVALUATION, SCENARIO_RUN):
            for row in await self._store.all_sessions(SessionFilter(program=program)):
                [first] = await self._store.read(row.session_id, limit=1)
                found += isinstance(first.record, StartedRecord) and _is_subject(first.record.ctx, name)
        return found

    def _evaluation_files(self, name: str) -> int:
        homes = dict.fromkeys((self._where.home, algocline_home(self._where.environ)))
        return sum(_strategy_of(file) == name for home in homes for file in _metas(home / "evals"))


def matching(entries: Iterable[HubEntry], query: str, category: str | None, installed_only: bool) -> list[HubEntry]:
    """Those that contain the text in their name, description, category or docstring, and belong to the category."""
    found = []
    text = query.casefold()
    for entry in entries:
        if (category is not None and entry.category != category) or (installed_only and not entry.installed):
            continue
        in_docstring = bool(text) and text in entry.docstring.casefold()
        fields = (entry.name, entry.description, entry.category)
        if in_docstring or any(text in field.casefold() for field in fields):
            found.append(msgspec.structs.replace(entry, docstring_matched=in_docstring))
    return found


def _shown(entry: IndexEntry, *, installed: bool) -> HubEntry:
    return HubEntry(
        name=entry.name,
        version=entry.version,
        description=entry.description,
        category=entry.category,
        installed=installed,
        source=entry.source,
        card_count=entry.card_count,
        best_card=None if entry.best_card is None else msgspec.to_builtins(entry.best_card),
        docstring=entry.docstring,
    )


def _joined(here: HubEntry, there: IndexEntry) -> HubEntry:
    """A package that is installed, with what only the index of its source says."""
    filled = {
        key: getattr(here, key) or getattr(there, key) for key in ("description", "category", "docstring", "source")
    }
    joined = msgspec.structs.replace(here, **filled)
    if there.card_count <= here.card_count:
        return joined
    best = None if there.best_card is None else msgspec.to_builtins(there.best_card)
    return msgspec.structs.replace(joined, card_count=there.card_count, best_card=best)


def _is_subject(ctx: Json, name: str) -> bool:
    """Whether an evaluation that was started with this compares a strategy."""
    if not isinstance(ctx, dict):
        return False
    if ctx.get("strategy") == name:
        return True
    plan = ctx.get("plan")
    arms = plan.get("arms") if isinstance(plan, dict) else None
    return isinstance(arms, list) and any(isinstance(arm, dict) and arm.get("subject") == name for arm in arms)


def _metas(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.meta.json"))[:MAX_EVALS] if folder.is_dir() else []


def _strategy_of(file: Path) -> str | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    strategy = found.get("strategy") if isinstance(found, dict) else None
    return repaired(strategy) if isinstance(strategy, str) else None
