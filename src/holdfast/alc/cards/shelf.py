"""The cards in a session store: state items that every process on the store finds, whatever the store is.

Each card is an item, and so is each alias. The samples of a card are pieces of some rows each, and one item that names
them: it is written last, so that samples are there in full or not at all. The namespaces are Holdfast's own, which
programs cannot write to.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from urllib.parse import quote

import msgspec

from holdfast.alc.cards.box import FoundCard
from holdfast.alc.cards.limits import PIECE_BYTES, READS_AT_ONCE
from holdfast.alc.cards.samples import SampleLines
from holdfast.core.limits import MAX_ID_CHARS
from holdfast.core.values import Json
from holdfast.store.contract import StateItem, Store
from holdfast.store.errors import StateConflictError

CARDS = "holdfast.cards"
ALIASES = "holdfast.card_aliases"
SAMPLES = "holdfast.card_samples"
ROWS = "holdfast.card_rows"

NAMESPACES = (CARDS, ALIASES, SAMPLES, ROWS)


class ShelvedCard(msgspec.Struct, frozen=True):
    """A card as the store has it, and how often it was written."""

    card_id: str
    pkg: str
    card: dict[str, Json]
    version: int = 0

    @property
    def found(self) -> FoundCard:
        return FoundCard(self.card_id, self.pkg, self.card)


class SampleIndex(msgspec.Struct, frozen=True):
    """Which pieces the samples of a card are made of."""

    card_id: str
    count: int
    digest: str
    """Of all rows as lines: two writers of the same samples agree, two of others do not mix."""
    pieces: list[int]
    """How many rows each piece has."""


class CardShelf:
    """Cards, aliases and samples as state items of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # --- cards -----------------------------------------------------------------------------------

    async def get(self, card_id: str) -> ShelvedCard | None:
        item = await self._store.get_state(CARDS, _key(card_id))
        return None if item is None else _shelved(item)

    async def put(self, card: ShelvedCard) -> bool:
        """Write a card; False, and nothing is written, if it is not at its `version` (0: not there)."""
        value = {"card_id": card.card_id, "pkg": card.pkg, "card": card.card}
        return await self._put(CARDS, card.card_id, value, card.version)

    async def all(self) -> list[ShelvedCard]:
        return [card for item in await self._items(CARDS) if (card := _shelved(item)) is not None]

    # --- aliases ---------------------------------------------------------------------------------

    async def aliases(self) -> list[dict[str, str]]:
        return [item.value for item in await self._items(ALIASES) if isinstance(item.value, dict)]

    async def bind(self, alias: dict[str, str]) -> None:
        """Bind a name, whatever it was bound to, unless that was done later."""

        def later(before: Json) -> Json:
            return before if before is not None and before["set_at"] > alias["set_at"] else alias

        await self._store.update_state(ALIASES, _key(alias["name"]), later)

    # --- samples ---------------------------------------------------------------------------------

    async def samples(self, card_id: str) -> SampleIndex | None:
        item = await self._store.get_state(SAMPLES, _key(card_id))
        return None if item is None else msgspec.convert(item.value, SampleIndex)

    async def put_samples(self, card_id: str, rows: Iterable[Json]) -> SampleIndex | None:
        """Write the samples of a card; None, and they are not kept, if it has others. The same again is the same."""
        digest, count, pieces = hashlib.sha256(), 0, _Pieces()
        for line in SampleLines(rows):
            digest.update(line)
            pieces.add(line)
            count += 1
        index = SampleIndex(card_id, count, digest.hexdigest(), [len(piece) for piece in pieces.all])
        present = await self.samples(card_id)
        if present is None:
            for number, piece in enumerate(pieces.all):
                await self._store.put_state(
                    ROWS, _piece_key(index, number), [msgspec.json.decode(row) for row in piece]
                )
            if await self._put(SAMPLES, card_id, msgspec.to_builtins(index), 0):
                return index
            present = await self.samples(card_id)
        return index if present == index else None

    async def pieces(self, index: SampleIndex, skipped: int = 0) -> AsyncIterator[Sequence[Json]]:
        """The rows of the samples, piece by piece, without the first ones."""
        for number in range(skipped, len(index.pieces)):
            item = await self._store.get_state(ROWS, _piece_key(index, number))
            yield item.value if item is not None else []

    # --- items -----------------------------------------------------------------------------------

    async def _put(self, namespace: str, name: str, value: Json, expected: int) -> bool:
        try:
            await self._store.put_state(namespace, _key(name), value, expected=expected)
        except StateConflictError:
            return False
        return True

    async def _items(self, namespace: str) -> list[StateItem]:
        found: list[StateItem] = []
        after = ""
        while keys := await self._store.list_state(namespace, after=after):
            after = keys[-1]
            for begin in range(0, len(keys), READS_AT_ONCE):
                reads = [self._store.get_state(namespace, key) for key in keys[begin : begin + READS_AT_ONCE]]
                found += [item for item in await asyncio.gather(*reads) if item is not None]
        return found


class _Pieces:
    """Lines put together until a piece is large enough."""

    def __init__(self) -> None:
        self.all: list[list[bytes]] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        if not self.all or self._size + len(line) > PIECE_BYTES:
            self.all.append([])
            self._size = 0
        self.all[-1].append(line)
        self._size += len(line)


def _shelved(item: StateItem) -> ShelvedCard | None:
    """The card in an item; None if there is none in it: what is damaged must not hide all others."""
    try:
        found = msgspec.convert(item.value, ShelvedCard)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(found, version=item.version)


def _key(name: str) -> str:
    """A name as a key of the store, in which a person still recognises it."""
    key = "c." + quote(name, safe=":@+").replace("~", "=7E").replace("%", "=")
    return key if len(key) <= MAX_ID_CHARS else f"h.{hashlib.sha256(name.encode()).hexdigest()}"


def _piece_key(index: SampleIndex, number: int) -> str:
    card = hashlib.sha256(index.card_id.encode()).hexdigest()[:32]
    return f"{card}.{index.digest[:32]}.{number:06d}"
