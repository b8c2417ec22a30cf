"""Stores: where mailboxes, journals and projections live. `open_store` picks one by its URL."""

from __future__ import annotations

from holdfast.store.contract import Store
from holdfast.store.errors import StoreUnavailableError

__all__ = ["Store", "open_store"]


def open_store(url: str) -> Store:
    """The store behind a URL, to be entered with `async with` or opened with `await store.open()`.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://user@host/database`, or `memory:`.
    """
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory":
            from holdfast.store.memory import MemoryStore

            return MemoryStore()
        case "sqlite" if rest.startswith("///") and rest != "///":
            from holdfast.store.sqlite.store import SqliteStore

            return SqliteStore(rest.removeprefix("///"))
        case "postgresql" | "postgres":
            try:
                from holdfast.store.postgres.store import PostgresStore
            except ModuleNotFoundError as missing:
                why = f"PostgreSQL needs the package `{missing.name}`: pip install 'holdfast[postgres]'"
                raise StoreUnavailableError(url, why) from missing

            return PostgresStore(url)
        case _:
            why = "expected sqlite:///path, postgresql://…, or memory:"
            raise StoreUnavailableError(url, why)
