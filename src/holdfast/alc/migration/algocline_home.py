"""Adopting an algocline directory whole: packages, cards, scenarios, evaluations, state and logs.

Everything is read there and kept in Holdfast's directory or in the store. What is there already stays as it is, so the
same again adopts nothing; the directory itself is never written to.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.alc.cards.box import CardBox
from holdfast.alc.cards.errors import CardError
from holdfast.alc.cards.tool import own_library
from holdfast.alc.hub.documents import write_below
from holdfast.alc.hub.source_tree import SourceTree
from holdfast.alc.migration.state import adopt_state
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.install import place, stage_package
from holdfast.alc.packages.records import PackageSource, Records
from holdfast.alc.packages.tree import staging
from holdfast.core.errors import HoldfastError
from holdfast.core.values import repaired
from holdfast.programs.paths import algocline_home
from holdfast.store.contract import Store

COPIED = {"scenarios": (".lua",), "evals": (".json",), "logs": (".json",), "types": (".lua",)}
"""The directories whose files are copied, and what their names end with."""


class Adopted(msgspec.Struct):
    """What became of one kind of things."""

    adopted: list[str] = []
    present: list[str] = []
    """What was there already, and was left as it is."""
    failed: list[str] = []
    """What could not be adopted, and why."""


class MigrationReport(msgspec.Struct):
    """What was adopted from an algocline directory."""

    source: str
    found: bool = False
    """Whether there is such a directory."""
    packages: Adopted = msgspec.field(default_factory=Adopted)
    cards: Adopted = msgspec.field(default_factory=Adopted)
    aliases: Adopted = msgspec.field(default_factory=Adopted)
    scenarios: Adopted = msgspec.field(default_factory=Adopted)
    evals: Adopted = msgspec.field(default_factory=Adopted)
    state: Adopted = msgspec.field(default_factory=Adopted)
    logs: Adopted = msgspec.field(default_factory=Adopted)
    types: Adopted = msgspec.field(default_factory=Adopted)

    @property
    def count(self) -> int:
        """How many things were adopted."""
        return sum(len(each.adopted) for each in self._kinds())

    @property
    def failures(self) -> list[str]:
        return [why for each in self._kinds() for why in each.failed]

    def _kinds(self) -> Iterable[Adopted]:
        values = (getattr(self, name) for name in self.__struct_fields__)
        return [value for value in values if isinstance(value, Adopted)]


async def adopt_home(store: Store, where: PackageDirectories, source: Path | None = None) -> MigrationReport:
    """Adopt an algocline directory, by default the user's."""
    theirs = source or algocline_home(where.environ)
    report = MigrationReport(source=str(theirs))
    if not theirs.is_dir():
        return report
    report.found = True
    if theirs != where.home:
        report.packages = await asyncio.to_thread(_adopt_packages, theirs, where)
        for name, suffixes in COPIED.items():
            setattr(report, name, await asyncio.to_thread(_copy, theirs / name, where.home / name, suffixes))
    await _adopt_cards(store, CardBox(theirs / "cards"), report)
    report.state = await _adopt_states(store, theirs / "state")
    return report


# --- packages ------------------------------------------------------------------------------------


def _adopt_packages(theirs: Path, where: PackageDirectories) -> Adopted:
    done = Adopted()
    folder = theirs / "packages"
    if not folder.is_dir():
        return done
    records = Records(theirs)
    with staging(where.packages) as stage:
        staged = []
        for directory in sorted(folder.iterdir()):
            name = repaired(directory.name)
            if name.startswith(".") or not (directory / "init.lua").is_file():
                continue
            if os.path.lexists(where.packages / directory.name):
                done.present.append(name)
            elif directory.is_symlink():
                _link(directory, where.packages / directory.name, done)
            else:
                record = records.get(directory.name)
                origin = record.source if record is not None else PackageSource("path", path=str(directory))
                try:
                    staged.append(stage_package(directory.name, directory, stage / directory.name, origin, True))
                except (HoldfastError, OSError) as error:
                    done.failed.append(f"package {name}: {repaired(str(error))}")
        with Records.changing(where.home) as own:
            place(where.packages, staged, own)
        done.adopted += [each.name for each in staged]
    done.adopted.sort()
    return done


def _link(link: Path, target: Path, done: Adopted) -> None:
    """A package in development stays where it is, and is linked from here too."""
    with suppress(FileExistsError):
        os.symlink(os.path.realpath(link), target)
    done.adopted.append(target.name)


# --- files ---------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, suffixes: tuple[str, ...]) -> Adopted:
    done = Adopted()
    if not source.is_dir():
        return done
    tree = SourceTree(source, str(source))
    for name in tree.files():
        if not name.endswith(suffixes):
            continue
        shown = repaired(name)
        if os.path.lexists(target / name):
            done.present.append(shown)
            continue
        try:
            content = tree.read(name)
            if content is not None:
                write_below(target, {name: content})
                done.adopted.append(shown)
        except (HoldfastError, OSError) as error:
            done.failed.append(f"{source.name}/{shown}: {repaired(str(error))}")
    return done


# --- cards and state -----------------------------------------------------------------------------


async def _adopt_cards(store: Store, box: CardBox, report: MigrationReport) -> None:
    library = own_library(store)
    for card in await asyncio.to_thread(box.found):
        try:
            is_new = await library.take_in(card, box)
        except (CardError, HoldfastError) as error:
            report.cards.failed.append(f"card {card.card_id}: {error}")
        else:
            (report.cards.adopted if is_new else report.cards.present).append(card.card_id)
    for alias in await asyncio.to_thread(box.alias_list):
        is_new = await library.take_in_alias(alias)
        (report.aliases.adopted if is_new else report.aliases.present).append(alias["name"])


async def _adopt_states(store: Store, folder: Path) -> Adopted:
    done = Adopted()
    names = SourceTree(folder, str(folder)).files() if folder.is_dir() else []
    for name in names:
        if not name.endswith(".json"):
            continue
        namespace = name.removesuffix(".json")
        try:
            adopted, present = await adopt_state(store, namespace, folder / name)
        except HoldfastError as error:
            done.failed.append(f"state {repaired(namespace)}: {repaired(str(error))}")
            continue
        done.adopted += [f"{namespace}/{key}" for key in adopted]
        done.present += [f"{namespace}/{key}" for key in present]
    return done
