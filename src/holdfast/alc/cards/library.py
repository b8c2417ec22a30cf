"""The library of cards: those of a session store together with those in files, as one. Where the truth is, and how
both are kept in step, is in docs/decisions/039-a-card-is-in-the-store.md."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeAlias

from holdfast.alc.cards.aliases import new_alias
from holdfast.alc.cards.box import CardBox, FoundCard
from holdfast.alc.cards.content import Creation, card_text, holds, later_alias, summary_of
from holdfast.alc.cards.errors import (
    CardError,
    CardExistsError,
    CardKeyError,
    CardNotFoundError,
    DanglingAliasError,
    InvalidCardError,
    SamplesExistError,
)
from holdfast.alc.cards.lineage import Kin, LineageQuery, lineage
from holdfast.alc.cards.names import check_name, check_now, completed, package_of
from holdfast.alc.cards.operations import answer
from holdfast.alc.cards.query import in_order, matches, parse_order, parse_where
from holdfast.alc.cards.samples import SamplePage
from holdfast.alc.cards.shelf import CardShelf, SampleIndex, ShelvedCard
from holdfast.alc.cards.toml import Table, storable
from holdfast.core.values import Json, encode
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.cards")

P = ParamSpec("P")
Rows: TypeAlias = list[Json]


class CardLibrary:
    """Every operation on cards, for programs (`answer`) and for Python (a method each).

    - The store decides: whoever writes a card, its samples or an alias writes it there, and of several who do so at
      once, one does. Then the file is written, for algocline and other tools. A file that cannot be written is logged.
    - A card is all of its copies together; where they differ, what the store has counts. So cards that only a file
      has, here or in one of the boxes that are only read, are found like any other.
    - `again`, `now` and what is raised are as in `CardBox`.
    """

    def __init__(self, store: Store, box: CardBox, others: Sequence[CardBox] = ()) -> None:
        """`box` has the files that are written, `others` those that are only read."""
        self.shelf = CardShelf(store)
        self.box = box
        self._boxes = (box, *others)

    async def answer(self, arguments: dict[str, Json], again: bool) -> Json:
        """Do what `{"op": …}` asks for, and give back its result as JSON; None for what is not there."""
        return await answer(self, arguments, again)

    # --- cards -----------------------------------------------------------------------------------

    async def create(self, card: dict[str, Json], *, now: float, again: bool = False) -> dict[str, Json]:
        """Keep a new card, completed; gives back its id and its file."""
        check_now(now, "create")
        pkg = package_of(card)
        storable(card, "create")
        table: Table = storable(completed(card, now), "create")
        card_text(table, "create")
        made = FoundCard(table["card_id"], pkg, table)
        if again and (before := await self._made_before(Creation(card, table, now), pkg)) is not None:
            made = before
        elif await self._find(made.card_id) is not None or not await self.shelf.put(_to_shelve(made)):
            raise CardExistsError(made.card_id)
        await self._write_file(self.box.put, made)
        return {"card_id": made.card_id, "path": str(await asyncio.to_thread(self.box.path_of, pkg, made.card_id))}

    async def _made_before(self, creation: Creation, pkg: str) -> FoundCard | None:
        """The card that an earlier attempt at the same `create` has made, if it has."""
        for found in (await self._all(pkg)).values():
            if creation.made(found.card_id, found.card):
                if await self.shelf.get(found.card_id) is None:
                    await self.shelf.put(_to_shelve(found))
                return found
        return None

    async def get(self, card_id: str) -> dict[str, Json] | None:
        """A whole card; None if there is none of that id."""
        found = await self._find(card_id)
        return None if found is None else found.card

    async def list(self, pkg: str | None = None) -> Rows:
        """Summaries of the cards, the newest first."""
        return [summary for summary, _ in await self._rows(pkg)]

    async def find(
        self,
        pkg: str | None = None,
        where: Json = None,
        order_by: Json = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Rows:
        """Summaries of the cards that pass a filter, in the order asked for, else the newest first."""
        predicate = None if where is None else parse_where(where)
        order = [] if order_by is None else parse_order(order_by)
        rows = [row for row in await self._rows(pkg) if predicate is None or matches(predicate, row[1].card)]
        rows = in_order(rows, order, lambda row: row[1].card)
        return [summary for summary, _ in rows[offset : None if limit is None else offset + limit]]

    async def append(self, card_id: str, fields: dict[str, Json], *, again: bool = False) -> dict[str, Json]:
        """Add new keys to a card; gives back the whole card."""
        if not isinstance(fields, dict):
            raise InvalidCardError("append", "fields must be a table")
        new: Table = storable(fields, "append")
        while True:
            shelved = await self.shelf.get(check_name(card_id, "card_id"))
            found = await self._require(card_id, "append")
            if again and new and holds(found.card, new):
                whole = found
            else:
                for key in sorted(fields):
                    if key in found.card:
                        raise CardKeyError(card_id, key)
                whole = FoundCard(card_id, found.pkg, storable({**found.card, **new}, "append"))
                card_text(whole.card, "append")
            if shelved is not None and shelved.card == whole.card:
                break
            if await self.shelf.put(_to_shelve(whole, 0 if shelved is None else shelved.version)):
                break
        await self._write_file(self.box.put, whole)
        return whole.card

    async def adopt(self, card: FoundCard, samples: Iterable[Json] | None = None, *, is_known: bool = False) -> bool:
        """Keep a card that was made elsewhere as it is; False, and nothing changes, if its id is taken.

        With `is_known`, only the store is asked: the card comes from one of our own files.
        """
        kept = FoundCard(check_name(card.card_id, "card_id"), check_name(card.pkg, "pkg"), storable(card.card, "adopt"))
        card_text(kept.card, "adopt")
        is_free = is_known or await self._find(kept.card_id) is None
        is_new = is_free and await self.shelf.put(_to_shelve(kept))
        if is_new:
            await self._write_file(self.box.put, kept)
            if samples is not None:
                await self.write_samples(kept.card_id, samples, again=True)
        return is_new

    async def take_in(self, card: FoundCard, box: CardBox) -> bool:
        """Keep a card of another box, with its samples; False if the store has it already, which stays as it is."""
        is_new = await self.shelf.get(card.card_id) is None and await self.adopt(card, is_known=True)
        if await self.shelf.samples(card.card_id) is None and await asyncio.to_thread(box.has_samples, card.card_id):
            rows = await asyncio.to_thread(lambda: [*box.sample_rows(card.card_id)])
            await self.shelf.put_samples(card.card_id, rows)
            await self._write_file(self._write_samples_file, card.card_id, rows)
        return is_new

    async def take_in_alias(self, alias: dict[str, str]) -> bool:
        """Keep an alias of another box; False if the name is bound in the store."""
        if any(one["name"] == alias["name"] for one in await self.shelf.aliases()):
            return False
        await self.shelf.bind(alias)
        await self._write_file(self.box.put_alias, alias)
        return True

    async def lineage(self, query: LineageQuery) -> Json:
        """Where a card comes from and what came from it; None if there is no such card."""
        check_name(query.card_id, "card_id")
        return lineage((Kin(each.card_id, each.pkg, each.card) for each in (await self._all()).values()), query)

    # --- aliases ---------------------------------------------------------------------------------

    async def alias_set(
        self,
        name: str,
        card_id: str,
        *,
        now: float,
        pkg: str | None = None,
        note: str | None = None,
        again: bool = False,
    ) -> dict[str, Json]:
        """Bind a name to a card, whatever it was bound to. A repeated call does not undo what was bound after it."""
        alias = new_alias(name, card_id, now, pkg, note)
        await self._require(card_id, "alias_set")
        if not again:  # it holds from now on, also where another clock is ahead
            bound = [one["set_at"] for one in await self._aliases() if one["name"] == name]
            alias["set_at"] = max([alias["set_at"], *bound])
        await self.shelf.bind(alias)
        await self._write_file(self.box.put_alias, alias)
        return dict(alias)

    async def alias_list(self, pkg: str | None = None) -> Rows:
        """All aliases, or those set for a package, the latest last."""
        return [alias for alias in await self._aliases() if pkg is None or alias.get("pkg") == pkg]

    async def get_by_alias(self, name: str) -> dict[str, Json] | None:
        """The card that a name is bound to; None if the name is not bound."""
        check_name(name, "alias")
        for alias in await self._aliases():
            if alias["name"] == name:
                card = await self.get(alias["card_id"])
                if card is None:
                    raise DanglingAliasError(name, alias["card_id"])
                return card
        return None

    # --- samples ---------------------------------------------------------------------------------

    async def write_samples(self, card_id: str, rows: Iterable[Json], *, again: bool = False) -> dict[str, Json]:
        """Keep the samples of a card, which must not have any; gives back their file and their number."""
        found = await self._require(card_id, "write_samples")
        rows = list(rows)
        present = await self.shelf.samples(card_id)
        box = await self._box_with_samples(card_id) if present is None else None
        is_same = again and (box is None or await asyncio.to_thread(lambda: [*box.sample_rows(card_id)]) == rows)
        if not is_same and (present is not None or box is not None):
            raise SamplesExistError(card_id)
        index = await self.shelf.put_samples(card_id, rows)
        if index is None:
            raise SamplesExistError(card_id)
        await self._write_file(self.box.put, found)
        await self._write_file(self._write_samples_file, card_id, rows)
        path = await asyncio.to_thread(self.box.path_of, found.pkg, card_id)
        return {"path": str(path.with_name(f"{card_id}.samples.jsonl")), "count": index.count}

    def _write_samples_file(self, card_id: str, rows: Sequence[Json]) -> None:
        if not self.box.has_samples(card_id):
            self.box.write_samples(card_id, rows, again=True)

    async def read_samples(self, card_id: str, offset: int = 0, limit: int | None = None, where: Json = None) -> Rows:
        """The samples of a card that pass a filter, a page of them; none if the card has no samples."""
        page = SamplePage(offset, limit, None if where is None else parse_where(where))
        await self._require(card_id, "read_samples")
        index = await self.shelf.samples(card_id)
        if index is not None:
            return await self._shelved_page(index, page)
        box = await self._box_with_samples(card_id)
        return [] if box is None else await asyncio.to_thread(box.read_samples, card_id, offset, limit, where)

    async def _shelved_page(self, index: SampleIndex, page: SamplePage) -> Rows:
        skipped = 0
        while skipped < len(index.pieces) and page.skip(index.pieces[skipped]):
            skipped += 1
        async for piece in self.shelf.pieces(index, skipped):
            for row in piece:
                if not page.take(lambda row=row: row, 0 if page.is_full else len(encode(row))):  # type: ignore[misc]
                    return page.rows
        return page.rows

    async def _box_with_samples(self, card_id: str) -> CardBox | None:
        def look() -> CardBox | None:
            return next((box for box in self._boxes if box.has_samples(card_id)), None)

        return await asyncio.to_thread(look)

    # --- files and mirrors -----------------------------------------------------------------------

    async def write_files(self) -> Sequence[str]:
        """Write the files of what only the store has; the ids of those cards."""
        written = []
        for shelved in await self.shelf.all():
            rows: Rows | None = None
            if not await asyncio.to_thread(self.box.has_samples, shelved.card_id):
                rows = await self._all_samples(shelved.card_id)
            if await asyncio.to_thread(self.box.put, shelved.found) or rows is not None:
                written.append(shelved.card_id)
            if rows is not None:
                await asyncio.to_thread(self._write_samples_file, shelved.card_id, rows)
        for alias in await self.shelf.aliases():
            await asyncio.to_thread(self.box.put_alias, alias)
        return written

    async def export(self, box: CardBox, card_ids: Iterable[str] | None = None) -> Sequence[str]:
        """Write cards, by default all, with their samples and aliases into the files of another box; their ids."""
        cards = await self._all()
        chosen = [await self._require(card_id, "export") for card_id in card_ids] if card_ids else [*cards.values()]
        for found in chosen:
            await asyncio.to_thread(box.put, found)
            if not await asyncio.to_thread(box.has_samples, found.card_id):
                rows = await self._all_samples(found.card_id)
                if rows is not None:
                    await asyncio.to_thread(box.write_samples, found.card_id, rows)
        written = {found.card_id for found in chosen}
        for alias in await self._aliases():
            if alias["card_id"] in written:
                await asyncio.to_thread(box.put_alias, alias)
        return sorted(written)

    async def _all_samples(self, card_id: str) -> Rows | None:
        index = await self.shelf.samples(card_id)
        if index is not None:
            return [row async for piece in self.shelf.pieces(index) for row in piece]
        box = await self._box_with_samples(card_id)
        return None if box is None else await asyncio.to_thread(lambda: [*box.sample_rows(card_id)])

    async def sink_backfill(self, sink: str, dry_run: bool = False) -> Json:
        """Copy to a mirror of the files what it lacks; a dry run only lists it."""
        await self.write_files()
        return await asyncio.to_thread(self.box.sink_backfill, sink, dry_run)

    async def _write_file(self, write: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Bring a file into step with the store. If that fails, the store has it all the same."""
        try:
            await asyncio.to_thread(write, *args, **kwargs)
        except CardError as error:
            log.warning("the store has a card whose file could not be written: %s", error)

    # --- all copies together ---------------------------------------------------------------------

    async def _require(self, card_id: str, operation: str) -> FoundCard:
        found = await self._find(card_id)
        if found is None:
            raise CardNotFoundError(operation, card_id)
        return found

    async def _find(self, card_id: str) -> FoundCard | None:
        shelved = await self.shelf.get(check_name(card_id, "card_id"))
        found = None if shelved is None else shelved.found
        for box in self._boxes:
            try:
                copy = await asyncio.to_thread(box.find_card, card_id)
            except CardError:
                if found is None:
                    raise
                continue  # the store has it, whatever became of its file
            found = _joined(found, copy)
        return found

    async def _all(self, pkg: str | None = None) -> Mapping[str, FoundCard]:
        """All cards by their ids."""
        cards = {shelved.card_id: shelved.found for shelved in await self.shelf.all()}
        for box in self._boxes:
            for copy in await asyncio.to_thread(box.found):
                joined = _joined(cards.get(copy.card_id), copy)
                if joined is not None:
                    cards[copy.card_id] = joined
        if pkg is not None:
            check_name(pkg, "pkg")
        return {card_id: card for card_id, card in cards.items() if pkg is None or card.pkg == pkg}

    async def _rows(self, pkg: str | None) -> Sequence[tuple[dict[str, Json], FoundCard]]:
        """All cards with their summaries, the newest first."""
        rows = [(summary_of(each.card, each.card_id, each.pkg), each) for each in (await self._all(pkg)).values()]
        rows.sort(key=lambda row: (row[0].get("created_at", ""), row[0]["card_id"]), reverse=True)
        return rows

    async def _aliases(self) -> Sequence[dict[str, str]]:
        bound = {alias["name"]: alias for alias in await self.shelf.aliases()}
        for box in self._boxes:
            for alias in await asyncio.to_thread(box.alias_list):
                bound[alias["name"]] = later_alias(bound.get(alias["name"], alias), alias)
        return sorted(bound.values(), key=lambda alias: (alias["set_at"], alias["name"]))


def _to_shelve(found: FoundCard, version: int = 0) -> ShelvedCard:
    return ShelvedCard(found.card_id, found.pkg, found.card, version)


def _joined(known: FoundCard | None, copy: FoundCard | None) -> FoundCard | None:
    """A card with the keys that only this copy of it has."""
    if known is None or copy is None:
        return known or copy
    return FoundCard(known.card_id, known.pkg, {**copy.card, **known.card})
