"""What all laws of the store contract share: how they get a store, and how they say that a call is refused.

The laws themselves are in `laws_….py`, one file a theme. None of them imports pytest, so that they can be read and
imported without it; assertions are plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar
from unittest import SkipTest

from holdfast.store import open_store
from holdfast.store.contract import Store

E = TypeVar("E", bound=Exception)


class _Refusal(Generic[E]):
    """Holds the error that `refused` caught."""

    error: E


@contextmanager
def refused(kind: type[E]) -> Iterator[_Refusal[E]]:
    """The block must raise exactly this kind of error: a subclass says something else and will not do."""
    refusal: _Refusal[E] = _Refusal()
    try:
        yield refusal
    except kind as error:
        if type(error) is not kind:
            raise AssertionError(f"expected {kind.__name__}, got {type(error).__name__}: {error}") from error
        refusal.error = error
    else:
        raise AssertionError(f"expected {kind.__name__}, but the call was accepted")


class Laws:
    """Base of all groups of laws."""

    shareable: ClassVar[bool] = True
    """Whether a second store object on the same URL, in this or another process, sees the same data."""

    def open_store(self, url: str) -> Store:
        """The store under test, not yet opened. Override this for a store that `holdfast.store` does not know."""
        return open_store(url)

    def share(self, url: str) -> Store:
        """A second store object on the same data, not yet opened; skips the law where there can be none."""
        if not self.shareable:
            raise SkipTest("this store is not shared between store objects")
        return self.open_store(url)

    async def damage(self, url: str, session_id: str, position: int) -> None:
        """Change the stored record at a position, behind the store's back. Without it, laws of damage are skipped."""
        raise SkipTest("no `damage` was given to the kit")

    async def blob_ids(self, store: Store) -> set[str]:
        """Ids of all large values that a store keeps beside its records. Without it, such laws are skipped."""
        raise SkipTest("no `blob_ids` was given to the kit")

    async def lose(self, url: str, session_id: str, position: int) -> None:
        """Remove the stored record at a position, behind the store's back. Without it, such laws are skipped."""
        raise SkipTest("no `lose` was given to the kit")
