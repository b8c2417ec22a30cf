"""Where a run of the kill tests takes place: a store of its own, and the directory of the ledger beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing.postgres_server import fresh_database


@dataclass(frozen=True)
class Place:
    """A store of its own, and the directory of the ledger beside it."""

    url: str
    directory: Path

    def errors(self) -> str:
        path = self.directory / "error"
        return path.read_text() if path.exists() else ""


MakePlace = Callable[[str], Place]


def sqlite_places(folder: Path) -> MakePlace:
    def make(name: str) -> Place:
        (folder / name).mkdir()
        return Place(f"sqlite:///{folder / name}/sessions.db", folder / name)

    return make


def postgres_places(server: str, folder: Path) -> MakePlace:
    def make(name: str) -> Place:
        (folder / name).mkdir()
        return Place(fresh_database(server), folder / name)

    return make
