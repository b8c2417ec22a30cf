"""`ctx.card`: immutable records of runs, written and read by a native strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from holdfast.core.queries import ToolQuery
from holdfast.core.values import Json
from holdfast.programs.own_tools import CARD_TOOL

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance, QueryFuture


class CardContext:
    """Immutable records of runs, kept as files; every operation is one question to the engine, carried out once.

    What depends on the time goes along as `now`: an operation that is carried out again after a crash means the same.
    """

    def __init__(self, run: NativeInstance) -> None:
        self._run = run

    def _ask(self, op: str, **arguments: Json) -> QueryFuture:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self._run.ask(ToolQuery(name=CARD_TOOL, arguments={"op": op, "now": self._run.loop.time(), **given}))

    def create(self, fields: dict[str, Json]) -> QueryFuture:
        """Keep a card, which needs `pkg.name`: `{"card_id": …, "path": …}`. An id that exists is an error."""
        return self._ask("create", card=fields)

    def get(self, card_id: str) -> QueryFuture:
        """A card; None if there is none."""
        return self._ask("get", card_id=card_id)

    def list(self, *, pkg: str | None = None) -> QueryFuture:
        """Summaries of cards, the newest first."""
        return self._ask("list", pkg=pkg)

    def find(
        self,
        *,
        pkg: str | None = None,
        where: dict[str, Json] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> QueryFuture:
        """Summaries of the cards for which something holds."""
        order = order_by if order_by is None or isinstance(order_by, str) else [*order_by]
        return self._ask("find", pkg=pkg, where=where, order_by=order, limit=limit, offset=offset)

    def append(self, card_id: str, fields: dict[str, Json]) -> QueryFuture:
        """Add top-level fields to a card, and give all of it. A field that is there already is an error."""
        return self._ask("append", card_id=card_id, fields=fields)

    def write_samples(self, card_id: str, rows: Sequence[dict[str, Json]]) -> QueryFuture:
        """Keep the single results behind a card, once only: `{"path": …, "count": …}`."""
        return self._ask("write_samples", card_id=card_id, rows=[*rows])

    def read_samples(
        self, card_id: str, *, where: dict[str, Json] | None = None, limit: int | None = None, offset: int = 0
    ) -> QueryFuture:
        """The single results behind a card; none if none were kept."""
        return self._ask("read_samples", card_id=card_id, where=where, limit=limit, offset=offset)

    def alias_set(self, name: str, card_id: str, *, pkg: str | None = None, note: str | None = None) -> QueryFuture:
        """Give a card a name; another card may have had it before."""
        return self._ask("alias_set", name=name, card_id=card_id, pkg=pkg, note=note)

    def alias_list(self, *, pkg: str | None = None) -> QueryFuture:
        """The names that cards have."""
        return self._ask("alias_list", pkg=pkg)

    def get_by_alias(self, name: str) -> QueryFuture:
        """The card of that name; None if no card has it. A name whose card is gone is an error."""
        return self._ask("get_by_alias", name=name)

    def lineage(
        self,
        card_id: str,
        *,
        direction: Literal["up", "down", "both"] = "up",
        depth: int = 10,
        include_stats: bool = True,
        relation_filter: Sequence[str] | None = None,
    ) -> QueryFuture:
        """Which cards a card comes from, and which come from it; None if there is no such card."""
        return self._ask(
            "lineage",
            card_id=card_id,
            direction=direction,
            depth=depth,
            include_stats=include_stats,
            relation_filter=None if relation_filter is None else [*relation_filter],
        )

    def sink_backfill(self, sink: str, *, dry_run: bool = False) -> QueryFuture:
        """Copy what a mirror of the cards does not have yet."""
        return self._ask("sink_backfill", sink=sink, dry_run=dry_run)
