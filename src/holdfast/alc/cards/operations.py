"""The operations of a card query: the arguments of each are checked and passed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.alc.cards.errors import InvalidCardError
from holdfast.alc.cards.limits import LINEAGE_DEPTH
from holdfast.alc.cards.lineage import LineageQuery
from holdfast.alc.cards.names import check_now
from holdfast.core.limits import ERROR_PREVIEW_CHARS, MAX_INTEGER
from holdfast.core.values import Json, preview

if TYPE_CHECKING:
    from holdfast.alc.cards.box import CardBox
    from holdfast.alc.cards.library import CardLibrary

    Cards: TypeAlias = CardBox | CardLibrary


class _Asked:
    """The arguments of one query. One that is null counts as not given."""

    def __init__(self, operation: str, arguments: dict[str, Json], again: bool) -> None:
        self.operation = operation
        self.again = again
        self._arguments = arguments

    def any(self, name: str) -> Json:
        return self._arguments.get(name)

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise self._wrong(name, "is required")
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.any(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, f"must be a string, got {preview(value)}")

    def table(self, name: str) -> dict[str, Json]:
        value = self.any(name)
        if value == []:  # an empty Lua table may arrive as either
            return {}
        if isinstance(value, dict):
            return value
        raise self._wrong(name, "must be a table" + ("" if value is None else f", got {preview(value)}"))

    def array(self, name: str) -> list[Json]:
        value = self.any(name)
        if value == {}:
            return []
        if isinstance(value, list):
            return value
        raise self._wrong(name, "must be an array" + ("" if value is None else f", got {preview(value)}"))

    def count(self, name: str) -> int | None:
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER:
            return value
        raise self._wrong(name, f"must be a whole number, 0 or more, got {preview(value)}")

    def flag(self, name: str, default: bool) -> bool:
        value = self.any(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        raise self._wrong(name, f"must be true or false, got {preview(value)}")

    def now(self) -> float:
        return check_now(self.any("now"), self.operation)

    def _wrong(self, name: str, why: str) -> InvalidCardError:
        return InvalidCardError(self.operation, f"{name} {why}")


def answer(box: Cards, arguments: dict[str, Json], again: bool) -> Json:
    """Carry out one card query: the result of a box, what the result of a library is awaited with."""
    operation = arguments.get("op")
    carry_out = _OPERATIONS.get(operation) if isinstance(operation, str) else None
    if carry_out is None:
        known = ", ".join(sorted(_OPERATIONS))
        raise InvalidCardError("*", f"unknown operation {preview(operation)}; known are {known}")
    return carry_out(box, _Asked(str(operation), arguments, again))


def _create(box: Cards, asked: _Asked) -> Json:
    return box.create(asked.table("card"), now=asked.now(), again=asked.again)


def _get(box: Cards, asked: _Asked) -> Json:
    return box.get(asked.text("card_id"))


def _list(box: Cards, asked: _Asked) -> Json:
    return box.list(asked.optional_text("pkg"))


def _find(box: Cards, asked: _Asked) -> Json:
    return box.find(
        asked.optional_text("pkg"),
        asked.any("where"),
        asked.any("order_by"),
        asked.count("limit"),
        asked.count("offset") or 0,
    )


def _append(box: Cards, asked: _Asked) -> Json:
    return box.append(asked.text("card_id"), asked.table("fields"), again=asked.again)


def _lineage(box: Cards, asked: _Asked) -> Json:
    depth = asked.count("depth")
    relations: list[Any] | None = None if asked.any("relation_filter") is None else asked.array("relation_filter")
    if relations is not None and not all(isinstance(relation, str) for relation in relations):
        raise InvalidCardError("lineage", "relation_filter must be an array of strings")
    match asked.optional_text("direction") or "up":
        case ("up" | "down" | "both") as direction:
            query = LineageQuery(
                asked.text("card_id"),
                direction,
                LINEAGE_DEPTH if depth is None else depth,
                asked.flag("include_stats", True),
                None if relations is None else tuple(relations),
            )
            return box.lineage(query)
        case other:
            shown = other[:ERROR_PREVIEW_CHARS]
            raise InvalidCardError("lineage", f"direction must be 'up', 'down', or 'both' (got '{shown}')")


def _alias_set(box: Cards, asked: _Asked) -> Json:
    return box.alias_set(
        asked.text("name"),
        asked.text("card_id"),
        now=asked.now(),
        pkg=asked.optional_text("pkg"),
        note=asked.optional_text("note"),
        again=asked.again,
    )


def _alias_list(box: Cards, asked: _Asked) -> Json:
    return box.alias_list(asked.optional_text("pkg"))


def _get_by_alias(box: Cards, asked: _Asked) -> Json:
    return box.get_by_alias(asked.text("name"))


def _write_samples(box: Cards, asked: _Asked) -> Json:
    return box.write_samples(asked.text("card_id"), asked.array("rows"), again=asked.again)


def _read_samples(box: Cards, asked: _Asked) -> Json:
    return box.read_samples(asked.text("card_id"), asked.count("offset") or 0, asked.count("limit"), asked.any("where"))


def _sink_backfill(box: Cards, asked: _Asked) -> Json:
    return box.sink_backfill(asked.text("sink"), asked.flag("dry_run", False))


_OPERATIONS: Final[dict[str, Callable[[Cards, _Asked], Json]]] = {
    "create": _create,
    "get": _get,
    "list": _list,
    "find": _find,
    "append": _append,
    "lineage": _lineage,
    "alias_set": _alias_set,
    "alias_list": _alias_list,
    "get_by_alias": _get_by_alias,
    "write_samples": _write_samples,
    "read_samples": _read_samples,
    "sink_backfill": _sink_backfill,
}
