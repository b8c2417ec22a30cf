"""`ctx.state`: durable values, read from the store and written in the commit that records the answer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import HoldfastError
from holdfast.core.ids import check_id
from holdfast.core.queries import Answer, Failure, ToolQuery, Value
from holdfast.core.values import Json, check_value
from holdfast.store.contract import StateItem, StateWrite, Store


async def answer(store: Store, query: ToolQuery, waiting: Sequence[StateWrite]) -> tuple[Answer, StateWrite | None]:
    """The answer to a state query, and the write that has to be committed with it.

    `waiting` are writes of the same commit, which the store does not know yet.
    """
    asked = query.arguments
    try:
        return await _answer(store, asked, waiting)
    except HoldfastError as error:
        return Failure(str(error), error.kind), None
    except KeyError as error:
        return Failure(f"state: '{error.args[0]}' is missing", "invalid_value"), None


async def _answer(
    store: Store, asked: dict[str, Json], waiting: Sequence[StateWrite]
) -> tuple[Answer, StateWrite | None]:
    namespace = check_id(asked["namespace"], "state namespace")
    if asked["op"] == "list":
        return Value(value=await _keys(store, namespace, str(asked.get("prefix", "")), waiting)), None
    key = check_id(asked["key"], "state key")
    item = await _item(store, namespace, key, waiting)
    match asked["op"]:
        case "get":
            return Value(value={"value": item.value, "version": item.version}), None
        case "put":
            check_value(asked["value"], f"state '{namespace}/{key}'")
            expected = asked.get("expected")
            if expected is not None and expected != item.version:
                return Value(value=False), None
            write = StateWrite(namespace=namespace, key=key, value=asked["value"], expected=item.version)
            return Value(value=True), write
        case "delete":
            if not item.version:
                return Value(value=False), None
            write = StateWrite(namespace=namespace, key=key, delete=True, expected=item.version)
            return Value(value=True), write
        case other:
            return Failure(f"state: unknown operation {other!r}", "invalid_value"), None


async def _item(store: Store, namespace: str, key: str, waiting: Sequence[StateWrite]) -> StateItem:
    item = await store.get_state(namespace, key) or StateItem(None, 0)
    for write in waiting:
        if (write.namespace, write.key) == (namespace, key):
            item = StateItem(None, 0) if write.delete else StateItem(write.value, item.version + 1)
    return item


async def _keys(store: Store, namespace: str, prefix: str, waiting: Sequence[StateWrite]) -> list[str]:
    keys: set[str] = set()
    after = ""
    while page := await store.list_state(namespace, prefix=prefix, after=after):
        keys.update(page)
        after = page[-1]
    for write in waiting:
        if write.namespace == namespace and write.key.startswith(prefix):
            keys = keys - {write.key} if write.delete else keys | {write.key}
    return sorted(keys)
