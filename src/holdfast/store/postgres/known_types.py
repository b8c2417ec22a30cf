"""`KnownTypesConnection`: a connection that does not ask its server about the array types that our statements use.

The driver asks each new connection about every array, with a query over the server's catalogue that takes as long as
some hundred of ours. Types that come with PostgreSQL have the same numbers in every server: they are written down here.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import asyncpg

ARRAYS = {
    1000: ("_bool", 16),
    1001: ("_bytea", 17),
    1005: ("_int2", 21),
    1007: ("_int4", 23),
    1016: ("_int8", 20),
    1022: ("_float8", 701),
    2287: ("_record", 2249),
}
"""The types of arrays by number, with the types of their elements, which the driver knows."""

_UNASKED = SimpleNamespace(name="not asked")
"""In the place of the statement that asks: the driver looks whether it has taken the name of another."""


class KnownTypesConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection of the driver that knows these types."""

    async def _introspect_types(self, typeoids: Collection[int], seconds: float | None) -> tuple[Any, Any]:
        if ARRAYS.keys() >= set(typeoids):
            return [_described(number) for number in typeoids], _UNASKED
        return await super()._introspect_types(typeoids, seconds)  # type: ignore[no-any-return]


def _described(number: int) -> dict[str, Any]:
    """A type as the server describes it to the driver."""
    name, element = ARRAYS[number]
    unused = dict.fromkeys(("basetype", "range_subtype", "attrtypoids", "attrnames"))
    return {
        "oid": number,
        "ns": "pg_catalog",
        "name": name,
        "kind": b"b",
        "elemtype": element,
        "elemdelim": b",",
        **unused,
    }
