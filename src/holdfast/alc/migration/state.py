"""algocline's state, `state/NAMESPACE.json`: each key becomes an item of the store, unless there is one already."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.queries import OWN_TOOLS
from holdfast.core.values import Json
from holdfast.engine.state_tool import stored_key
from holdfast.programs.paths import algocline_home
from holdfast.store.contract import Store
from holdfast.store.errors import StateConflictError

INHERITED = "holdfast.inherited_state"
"""The namespace that remembers which files were taken in: what is deleted afterwards stays deleted."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Bytes of one file of state: far above what a program that rewrites it with every change could bear."""


class StateFileError(HoldfastError):
    """A file of algocline's state that cannot be read."""

    path: str
    why: str
    kind = "state_file"

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


_known: WeakKeyDictionary[Store, set[str]] = WeakKeyDictionary()
"""The namespaces of each store that need not be looked at again by this process."""


async def inherit_state(store: Store, namespace: str, file_namespace: str) -> None:
    """Before a program uses a namespace for the first time, take in what algocline has kept under its name for it.

    algocline's `default` is shared by all strategies, and here each has its own: each takes in a copy.
    """
    known = _known.setdefault(store, set())
    if namespace in known:
        return
    file = algocline_home() / "state" / f"{file_namespace}.json"
    if file.is_file():
        # A damaged file keeps no program from running; `holdfast migrate` tells of it.
        with suppress(StateFileError, InvalidValueError):
            await adopt_state(store, namespace, file)
    known.add(namespace)


async def adopt_state(store: Store, namespace: str, file: Path) -> tuple[list[str], list[str]]:
    """Take in a file, once: the keys that were adopted, and those that were there or were taken in before."""
    check_id(namespace, "state namespace")
    if namespace.startswith(OWN_TOOLS):
        raise InvalidValueError("state", f"the namespace '{namespace}' belongs to Holdfast")
    values = await asyncio.to_thread(_read, file)
    if await store.get_state(INHERITED, namespace) is not None:
        return [], sorted(values)
    adopted: list[str] = []
    present: list[str] = []
    for key, value in sorted(values.items()):
        try:
            await store.put_state(namespace, stored_key(key), value, expected=0)
            adopted.append(key)
        except StateConflictError:
            present.append(key)
        except HoldfastError:
            continue  # a key or value that no item of the store can have
    await store.put_state(INHERITED, namespace, {"file": str(file)})
    return adopted, present


def _read(file: Path) -> dict[str, Json]:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise StateFileError(str(file), f"it has more than {MAX_FILE_BYTES >> 20} MiB")
        values = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        raise StateFileError(str(file), f"it is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise StateFileError(str(file), "it is not a table of keys and values")
    return values
