"""What a native strategy keeps beyond its session: figures about itself, durable values, and cards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.core.queries import OWN_TOOLS, ToolQuery
from holdfast.core.records import StatRecord
from holdfast.core.values import Json, checked, own_copy, own_copy_of

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance, QueryFuture

STATE_TOOL = f"{OWN_TOOLS}state"
"""The tool behind `ctx.state`; the engine answers it from the store, in the transaction that records the answer."""

CARD_TOOL = f"{OWN_TOOLS}card"
"""The tool behind `ctx.card`; a driver of the engine answers it, from files."""

_Keys: TypeAlias = list[str]  # inside the classes, `list` is a method


class Stats:
    """Figures a strategy records about itself; the last value of a key counts."""

    def __init__(self, run: NativeInstance) -> None:
        self._run = run
        self._recorded: dict[str, Json] = {}

    def record(self, key: str, value: Json) -> None:
        figure = own_copy_of(checked(StatRecord(key=key, value=value), "stat"))
        self._run.notes.append(figure)
        self._recorded[figure.key] = figure.value

    def get(self, key: str) -> Json:
        """A copy of what this strategy has recorded under a key; None if it has recorded nothing."""
        return own_copy(self._recorded.get(key))

    def llm_calls(self) -> int:
        """How many questions models were asked when the strategy last went on, those of ended children included."""
        return self._run.session.metrics.llm_calls


class StateArea:
    """Durable values under keys, shared by all sessions that use the namespace (the strategy's name, unless chosen)."""

    def __init__(self, run: NativeInstance, namespace: str) -> None:
        self._run = run
        self._namespace = namespace

    def __call__(self, namespace: str) -> StateArea:
        """The values of another namespace."""
        return StateArea(self._run, namespace)

    def _ask(self, op: str, **arguments: Json) -> QueryFuture:
        return self._run.ask(
            ToolQuery(name=STATE_TOOL, arguments={"op": op, "namespace": self._namespace, **arguments})
        )

    async def get(self, key: str, default: Json = None) -> Json:
        item = await self._ask("get", key=key)
        return item["value"] if item["version"] else default

    async def set(self, key: str, value: Json) -> None:
        await self._ask("put", key=key, value=value)

    async def set_nx(self, key: str, value: Json) -> bool:
        """Keep a value unless there is one already; whether it was kept."""
        kept: bool = await self._ask("put", key=key, value=value, expected=0)
        return kept

    async def has(self, key: str) -> bool:
        item = await self._ask("get", key=key)
        return bool(item["version"])

    async def delete(self, key: str) -> bool:
        deleted: bool = await self._ask("delete", key=key)
        return deleted

    async def incr(self, key: str, delta: float = 1, default: float = 0) -> float:
        """Add to a number, and give the sum. Whole numbers stay whole. A value that is no number is an error."""
        total: float = await self._ask("incr", key=key, delta=delta, default=default)
        return total

    async def update(self, key: str, change: Callable[[Json], Json], default: Json = None) -> Json:
        """Replace a value by a function of it, atomically against all other sessions and processes."""
        while True:
            item = await self._ask("get", key=key)
            # It may be called again, and may change what it is given.
            value = change(item["value"] if item["version"] else copy.deepcopy(default))
            if await self._ask("put", key=key, value=value, expected=item["version"]):
                return value

    async def keys(self, prefix: str = "") -> _Keys:
        found: _Keys = await self._ask("list", prefix=prefix)
        return found

    async def show(self, namespace: str, key: str) -> Json:
        """A value of any namespace; `KeyError` if there is none."""
        item = await self(namespace)._ask("get", key=key)
        if not item["version"]:
            raise KeyError(f"state: '{key}' not found in namespace '{namespace}'")
        return item["value"]

    async def list(self, namespace: str | None = None) -> _Keys:
        """The keys of any namespace, sorted: for looking after what long runs have left."""
        return await (self if namespace is None else self(namespace)).keys()


class CardBook:
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
