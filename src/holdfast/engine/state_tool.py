"""`ctx.state` and `alc.state`: durable values, read from the store and written in the commit that records the answer.

Programs may use any text as a key. The store's keys are ids, so what no id may hold is written as `=` and two hex
digits; a key that begins otherwise than with a letter or digit has `0==` before it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import cast

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.limits import MAX_INTEGER, MIN_INTEGER
from holdfast.core.queries import OWN_TOOLS, Answer, Failure, Query, ToolQuery, Value
from holdfast.core.records import AnsweredRecord, Record
from holdfast.core.state import Session
from holdfast.core.values import Json, check_value
from holdfast.programs.kinds import load_object
from holdfast.programs.namespaces import found_namespace
from holdfast.programs.own_tools import STATE_TOOL
from holdfast.store.commits import StateWrite
from holdfast.store.contract import StateItem, Store
from holdfast.store.errors import StoreUnavailableError

GROUP = f"tool:{STATE_TOOL}"
"""The group of pending queries that ask something of the durable state."""


def asks_state(query: Query) -> bool:
    """Whether a query is for the durable state."""
    return query.kind == "tool" and isinstance(query, ToolQuery) and query.name == STATE_TOOL


async def answers(store: Store, session: Session, writes: list[StateWrite]) -> list[Record]:
    """The answers to all that a session asks of the durable state.

    `writes` are those of the same commit, which the store does not know yet; what has to be written is added.
    """
    records: list[Record] = []
    for asked, pending in session.pending.items():
        if isinstance(pending.query, ToolQuery) and pending.query.name == STATE_TOOL:
            answer, write = await _checked(store, session, pending.query, writes)
            writes += [write] if write is not None else []
            records.append(AnsweredRecord(query_id=asked, answer=answer, by="state"))
    return records


async def _checked(
    store: Store, session: Session, query: ToolQuery, waiting: Sequence[StateWrite]
) -> tuple[Answer, StateWrite | None]:
    """The answer to a state query, and the write that has to be committed with it."""
    asked = query.arguments
    try:
        return await _answer(store, session, asked, waiting)
    except StoreUnavailableError:
        raise  # that is no answer: the program is resumed again
    except HoldfastError as error:
        return Failure(str(error), error.kind), None
    except KeyError as error:
        return Failure(f"state: '{error.args[0]}' is missing", "invalid_value"), None


async def _answer(
    store: Store, session: Session, asked: dict[str, Json], waiting: Sequence[StateWrite]
) -> tuple[Answer, StateWrite | None]:
    namespace = check_id(asked["namespace"], "state namespace")
    if session.started is not None:
        namespace = check_id(found_namespace(session.started, namespace), "state namespace")
    if namespace.startswith(OWN_TOOLS):
        raise InvalidValueError("state", f"the namespace '{namespace}' belongs to Holdfast; choose another")
    await _inheritance()(store, namespace, asked["namespace"])
    if asked["op"] == "list":
        return Value(value=await _keys(store, namespace, str(asked.get("prefix", "")), waiting)), None
    key = check_id(stored_key(asked["key"]), "state key")
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
        case "incr":
            value = _sum(asked, item)
            write = StateWrite(namespace=namespace, key=key, value=value, expected=item.version)
            return Value(value=value), write
        case "delete":
            if not item.version:
                return Value(value=False), None
            write = StateWrite(namespace=namespace, key=key, delete=True, expected=item.version)
            return Value(value=True), write
        case other:
            return Failure(f"state: unknown operation {other!r}", "invalid_value"), None


_INHERITANCE = "holdfast.alc.migration.state:inherit_state"
"""What takes in the values that another program has kept under the name of a namespace, before it is first used."""


@cache
def _inheritance() -> Callable[[Store, str, str], Awaitable[None]]:
    return cast("Callable[[Store, str, str], Awaitable[None]]", load_object(_INHERITANCE))


async def _item(store: Store, namespace: str, key: str, waiting: Sequence[StateWrite]) -> StateItem:
    for write in reversed(waiting):
        if write.key == key and write.namespace == namespace:
            return StateItem(None, 0) if write.delete else StateItem(write.value, (write.expected or 0) + 1)
    return await store.get_state(namespace, key) or StateItem(None, 0)


async def _keys(store: Store, namespace: str, prefix: str, waiting: Sequence[StateWrite]) -> list[str]:
    keys: set[str] = set()
    after, begun = "", stored_key(prefix) if prefix else ""
    while page := await store.list_state(namespace, prefix=begun, after=after):
        keys.update(page)
        after = page[-1]
    for write in waiting:
        if write.namespace == namespace and write.key.startswith(begun):
            keys = keys - {write.key} if write.delete else keys | {write.key}
    return sorted(key for key in map(program_key, keys) if key.startswith(prefix))


def _sum(asked: dict[str, Json], item: StateItem) -> int | float:
    """A counter and what is added to it. Whole numbers stay whole, as long as they fit."""
    before = item.value if item.version else asked.get("default", 0)
    delta = asked.get("delta", 1)
    for number in (before, delta):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidValueError("state", f"incr: value at '{asked['key']}' is not a number")
    total: int | float = before + delta
    return total if MIN_INTEGER <= total <= MAX_INTEGER else float(total)


_PLAIN = re.compile(r"[A-Za-z0-9._:@+-]")
_QUOTED = re.compile(r"((?:=[0-9A-F]{2})+)")


def stored_key(key: object) -> str:
    """The key in the store for the key of a program."""
    if not isinstance(key, str) or not key:
        raise InvalidValueError("state", "a key is a text, and not empty")
    quoted = "".join(c if _PLAIN.match(c) else "".join(f"={byte:02X}" for byte in c.encode()) for c in key)
    return quoted if key[0].isascii() and key[0].isalnum() else f"0=={quoted}"


def program_key(stored: str) -> str:
    """The key of a program for a key in the store."""

    def unquote(found: re.Match[str]) -> str:
        return bytes.fromhex(found[0].replace("=", "")).decode(errors="replace")

    return _QUOTED.sub(unquote, stored.removeprefix("0=="))
