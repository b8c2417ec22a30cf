"""The box of cards: those in one directory, and every operation on them. `CardLibrary` joins it with a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.alc.cards.aliases import new_alias
from holdfast.alc.cards.content import Creation, card_text, holds, summary_of
from holdfast.alc.cards.errors import (
    CardExistsError,
    CardKeyError,
    CardNotFoundError,
    CardTooLargeError,
    DanglingAliasError,
    InvalidCardError,
    SamplesExistError,
    UnreadableCardError,
)
from holdfast.alc.cards.files import CardFiles, card_id_of, samples_path
from holdfast.alc.cards.limits import MAX_ALIASES_BYTES, MAX_CARD_BYTES
from holdfast.alc.cards.lineage import Kin, LineageQuery, lineage
from holdfast.alc.cards.names import (
    ALIAS_FILE,
    check_name,
    check_now,
    completed,
    package_of,
)
from holdfast.alc.cards.operations import answer
from holdfast.alc.cards.query import in_order, matches, parse_order, parse_where
from holdfast.alc.cards.samples import SampleLines, SamplePage, has_lines, read_rows
from holdfast.alc.cards.sinks import Sinks
from holdfast.alc.cards.toml import Table, aliases_to_toml, from_toml, storable, to_json
from holdfast.core.values import Json

Rows: TypeAlias = list[Json]


@dataclass(frozen=True)
class _Row:
    """One card in a listing: what is shown of it, and the whole."""

    summary: dict[str, Json]
    card: dict[str, Json]


@dataclass(frozen=True)
class FoundCard:
    """A card with its id and its package."""

    card_id: str
    pkg: str
    card: dict[str, Json]


class CardBox:
    """Cards in one directory, and copies of them in the sinks.

    - A card and its samples are written once. `append` may add keys to a card, and changes none.
    - `again` says that the same call may have been carried out before, by a process that did not live to report it.
      What such a call would have left is then taken for its work: the call succeeds with the same answer, and nothing
      is written twice. Without it, what is there already is a conflict.
    - Whatever depends on the time is derived from `now` (unix seconds), so that a repeated call means the same.
    - Methods raise `CardError`s, and `InvalidValueError` for values that JSON has no form for. They block on the disk.
    """

    def __init__(self, directory: Path, sinks: Sequence[Path] = ()) -> None:
        self._files = CardFiles(directory)
        self._sinks = Sinks(self._files, sinks)

    @property
    def directory(self) -> Path:
        return self._files.directory

    def answer(self, arguments: dict[str, Json], again: bool) -> Json:
        """Do what `{"op": …}` asks for, and give back its result as JSON; None for what is not there."""
        return answer(self, arguments, again)

    # --- cards -----------------------------------------------------------------------------------

    def create(self, card: dict[str, Json], *, now: float, again: bool = False) -> dict[str, Json]:
        """Keep a new card, completed; gives back its id and its file."""
        check_now(now, "create")
        pkg = package_of(card)
        storable(card, "create")
        table: Table = storable(completed(card, now), "create")
        text = card_text(table, "create")
        with self._files.lock():
            path = self._made_before(Creation(card, table, now), pkg) if again else None
            if path is None:
                path = self._files.card_path(pkg, table["card_id"])
                # Ids are looked up in all packages, so one that another package has is taken too.
                if self._files.find(table["card_id"]) is not None or not self._files.create(path, [text]):
                    raise CardExistsError(table["card_id"])
        self._sinks.mirror("created", path)
        return {"card_id": card_id_of(path), "path": str(path)}

    def _made_before(self, creation: Creation, pkg: str) -> Path | None:
        """The card that an earlier attempt at the same `create` has made, if it has."""
        for path in self._files.all(pkg):
            found = self._card(path) if creation.may_be(card_id_of(path)) else None
            if found is not None and creation.made(card_id_of(path), found):
                self._files.settle(path)
                return path
        return None

    def get(self, card_id: str) -> dict[str, Json] | None:
        """A whole card; None if there is none of that id."""
        path = self._files.find(card_id)
        table = None if path is None else self._table(path)
        return None if table is None or path is None else _json(table, path)

    def list(self, pkg: str | None = None) -> Rows:
        """Summaries of the cards, the newest first."""
        return [row.summary for row in self._rows(pkg)]

    def find(
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
        rows = [row for row in self._rows(pkg) if predicate is None or matches(predicate, row.card)]
        rows = in_order(rows, order, lambda row: row.card)
        return [row.summary for row in rows[offset : None if limit is None else offset + limit]]

    def append(self, card_id: str, fields: dict[str, Json], *, again: bool = False) -> dict[str, Json]:
        """Add new keys to a card; gives back the whole card."""
        if not isinstance(fields, dict):
            raise InvalidCardError("append", "fields must be a table")
        new: Table = storable(fields, "append")
        with self._files.lock():
            path = self._path(card_id, "append")
            table = self._table(path)
            if table is None:
                raise CardNotFoundError("append", card_id)
            if again and new and holds(_json(table, path), new):
                self._files.settle(path)
            else:
                for key in sorted(fields):
                    if key in table:
                        raise CardKeyError(card_id, key)
                table |= new
                self._files.replace(path, [card_text(table, "append")])
        self._sinks.mirror("appended", path)
        return _json(table, path)

    def lineage(self, query: LineageQuery) -> Json:
        """Where a card comes from and what came from it; None if there is no such card."""
        check_name(query.card_id, "card_id")
        rows = self._rows(None)
        return lineage((Kin(str(row.summary["card_id"]), str(row.summary["pkg"]), row.card) for row in rows), query)

    # --- aliases ---------------------------------------------------------------------------------

    def alias_set(
        self,
        name: str,
        card_id: str,
        *,
        now: float,
        pkg: str | None = None,
        note: str | None = None,
        again: bool = False,
    ) -> dict[str, Json]:
        """Bind a name to a card, whatever it was bound to."""
        alias = new_alias(name, card_id, now, pkg, note)
        with self._files.lock():
            self._path(card_id, "alias_set")
            bound = next((one for one in self._aliases() if one["name"] == name), None)
            # A repeated call must not undo a binding that was made after it.
            if not (again and bound is not None and (bound == alias or bound["set_at"] > alias["set_at"])):
                self._bind(alias)
        self._sinks.mirror("aliases", self._alias_path)
        return dict(alias)

    def alias_list(self, pkg: str | None = None) -> Rows:
        """All aliases, or those set for a package, the latest last."""
        return [alias for alias in self._aliases() if pkg is None or alias.get("pkg") == pkg]

    def get_by_alias(self, name: str) -> dict[str, Json] | None:
        """The card that a name is bound to; None if the name is not bound."""
        check_name(name, "alias")
        for alias in self._aliases():
            if alias["name"] == name:
                card = self.get(alias["card_id"])
                if card is None:
                    raise DanglingAliasError(name, alias["card_id"])
                return card
        return None

    # --- samples ---------------------------------------------------------------------------------

    def write_samples(self, card_id: str, rows: Iterable[Json], *, again: bool = False) -> dict[str, Json]:
        """Keep the samples of a card, which must not have any; gives back their file and their number."""
        path = samples_path(self._path(card_id, "write_samples"))
        lines = SampleLines(rows)
        with self._files.guarded():
            if path.exists():
                if not (again and has_lines(path, lines)):
                    raise SamplesExistError(card_id)
                self._files.settle(path)
            elif not self._files.create(path, lines):
                raise SamplesExistError(card_id)
        self._sinks.mirror("samples", path)
        return {"path": str(path), "count": lines.count}

    def read_samples(self, card_id: str, offset: int = 0, limit: int | None = None, where: Json = None) -> Rows:
        """The samples of a card that pass a filter, a page of them; none if the card has no samples."""
        predicate = None if where is None else parse_where(where)
        path = samples_path(self._path(card_id, "read_samples"))
        with self._files.guarded():
            page = SamplePage(offset, limit, predicate)
            for row, size in read_rows(path):
                if not page.take(row, size):
                    break
            return page.rows

    # --- sinks -----------------------------------------------------------------------------------

    def sink_backfill(self, sink: str, dry_run: bool = False) -> Json:
        """Copy to a sink what it lacks; a dry run only lists it."""
        return self._sinks.backfill(sink, dry_run)

    def sink_stats(self) -> Rows:
        """What each sink took and missed in this process."""
        return self._sinks.stats()

    # --- what is kept elsewhere, brought into step ------------------------------------------------

    def found(self, pkg: str | None = None) -> Sequence[FoundCard]:
        """All cards that can be read."""
        return [FoundCard(card_id_of(path), path.parent.name, card) for path, card in self._cards(pkg)]

    def find_card(self, card_id: str) -> FoundCard | None:
        """A card and its package; None if there is none of that id. `UnreadableCardError` for a damaged one."""
        path = self._files.find(card_id)
        table = None if path is None else self._table(path)
        return None if table is None or path is None else FoundCard(card_id, path.parent.name, _json(table, path))

    def path_of(self, pkg: str, card_id: str) -> Path:
        """Where the file of a card is, or would be."""
        return self._files.find(card_id) or self._files.card_path(pkg, card_id)

    def put(self, card: FoundCard) -> bool:
        """Make the file of a card hold this; False if it did already. Keys that only the file has stay."""
        with self._files.lock():
            path = self.path_of(card.pkg, card.card_id)
            is_new = not path.exists()
            before = None if is_new else self._card(path)
            table = {**(before or {}), **card.card}
            if before == table:
                return False
            self._files.replace(path, [card_text(storable(table, "put"), "put")])
        self._sinks.mirror("created" if is_new else "appended", path)
        return True

    def put_alias(self, alias: dict[str, str]) -> bool:
        """Make the alias table hold this binding, unless it has a later one; False if nothing had to change."""
        with self._files.lock():
            bound = next((one for one in self._aliases() if one["name"] == alias["name"]), None)
            if bound is not None and (bound == alias or bound["set_at"] > alias["set_at"]):
                return False
            self._bind(alias)
        self._sinks.mirror("aliases", self._alias_path)
        return True

    def has_samples(self, card_id: str) -> bool:
        path = self._files.find(card_id)
        return path is not None and samples_path(path).is_file()

    def sample_rows(self, card_id: str) -> Iterator[Json]:
        """All samples of a card, one after the other."""
        path = samples_path(self._path(card_id, "read_samples"))
        with self._files.guarded():
            yield from (row() for row, _ in read_rows(path))

    # --- files -----------------------------------------------------------------------------------

    def _bind(self, alias: dict[str, str]) -> None:
        others = [one for one in self._aliases() if one["name"] != alias["name"]]
        text = aliases_to_toml([*others, alias])
        if len(text) > MAX_ALIASES_BYTES:
            why = f"the alias table would have more than {MAX_ALIASES_BYTES} bytes; remove aliases from it"
            raise CardTooLargeError("alias_set", why)
        self._files.replace(self._alias_path, [text])

    @property
    def _alias_path(self) -> Path:
        return self.directory / ALIAS_FILE

    def _path(self, card_id: str, operation: str) -> Path:
        path = self._files.find(card_id)
        if path is None:
            raise CardNotFoundError(operation, card_id)
        return path

    def _table(self, path: Path, most: int = MAX_CARD_BYTES) -> Table | None:
        data = self._files.read(path, most)
        try:
            return None if data is None else from_toml(data)
        except ValueError as error:
            raise UnreadableCardError(str(path), f"it is not TOML ({error})") from None

    def _card(self, path: Path) -> dict[str, Json] | None:
        """A card that is only looked at: a damaged one is passed over, or it would hide all others."""
        try:
            table = self._table(path)
            return None if table is None else _json(table, path)
        except UnreadableCardError:
            return None

    def _rows(self, pkg: str | None) -> Sequence[_Row]:
        """All cards, the newest first."""
        rows = [_Row(summary_of(card, card_id_of(path), path.parent.name), card) for path, card in self._cards(pkg)]
        rows.sort(key=lambda row: (row.summary.get("created_at", ""), row.summary["card_id"]), reverse=True)
        return rows

    def _cards(self, pkg: str | None) -> Iterator[tuple[Path, dict[str, Json]]]:
        for path in self._files.all(pkg):
            card = self._card(path)
            if card is not None:
                yield path, card

    def _aliases(self) -> Sequence[dict[str, str]]:
        table = self._table(self._alias_path, MAX_ALIASES_BYTES) or {}
        entries = table.get("alias", [])
        return [
            {key: entry[key] for key in ("name", "card_id", "pkg", "set_at", "note") if isinstance(entry.get(key), str)}
            | ({} if isinstance(entry.get("set_at"), str) else {"set_at": ""})
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("card_id"), str)
        ]


def _json(table: Table, path: Path) -> dict[str, Json]:
    try:
        return to_json(table)
    except ValueError as error:
        raise UnreadableCardError(str(path), str(error)) from None
