"""`ctx.state`: durable values that a native strategy shares with other sessions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.queries import ToolQuery
from holdfast.core.values import Json
from holdfast.programs.own_tools import STATE_TOOL

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance, QueryFuture

_Keys: TypeAlias = list[str]  # inside the class, `list` is a method


class ContextState:
    """Durable values under keys, shared by all sessions that use the namespace (the strategy's name, unless chosen)."""

    def __init__(self, run: NativeInstance, namespace: str) -> None:
        self._run = run
        self._namespace = namespace

    def __call__(self, namespace: str) -> ContextState:
        """The values of another namespace."""
        return ContextState(self._run, namespace)

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
        """Add to a number, and return the sum. Whole numbers stay whole. A value that is not a number is an error."""
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
