"""algocline's later tools for the durable state: the values of `alc.state`, by namespace and key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from holdfast.core.values import Json
from holdfast.engine.state_tool import program_key, stored_key
from holdfast.programs.namespaces import OWN_NAMESPACE
from holdfast.serve.mcp.runs import AD_HOC
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, about, unquoted
from holdfast.store.contract import StateItem, Store
from holdfast.store.errors import StateConflictError

BACKUP = ".bak"
"""How the key ends under which the value is kept that was there before a change."""

OWN = ("http.", "holdfast.")
"""How the namespaces begin in which servers keep what is theirs: tokens, keys, notes."""

_PAGE = 500


Namespace: TypeAlias = Annotated[
    str, about("Whose values: a strategy's name, or `_ns` of its ctx; `default` for those of code without a name.")
]
Key: TypeAlias = Annotated[str, about("The key.")]


class NamespaceParams(Params):
    namespace: Namespace = OWN_NAMESPACE


class KeyParams(Params):
    key: Key
    namespace: Namespace = OWN_NAMESPACE


class SetParams(Params):
    key: Key
    value: Annotated[Any, about("The value: any JSON.")]
    namespace: Namespace = OWN_NAMESPACE


class ResetParams(Params):
    key: Key
    namespace: Namespace = OWN_NAMESPACE
    steps: Annotated[list[str] | None, about("Entries to take out of data.completed_steps.")] = None
    fields: Annotated[list[str] | None, about("Fields to take out of data.")] = None


async def alc_state_list(call: McpCall, params: NamespaceParams) -> Object:
    store, namespace = call.holdfast.store, _checked(params.namespace)
    keys: list[str] = []
    after = ""
    while page := await store.list_state(namespace, after=after, limit=_PAGE):
        keys += [program_key(each) for each in page]
        after = page[-1]
    return {"keys": sorted(key for key in keys if not key.endswith(BACKUP))}


async def alc_state_show(call: McpCall, params: KeyParams) -> Object:
    value = (await _found(call.holdfast.store, params)).value
    return value if isinstance(value, dict) else {"value": value}


async def alc_state_set(call: McpCall, params: SetParams) -> Object:
    await _replace(call.holdfast.store, params, lambda _: unquoted(params.value))
    return {"ok": True}


async def alc_state_delete(call: McpCall, params: KeyParams) -> Object:
    store, namespace = call.holdfast.store, _checked(params.namespace)
    item = await store.get_state(namespace, stored_key(params.key))
    if item is not None:
        await store.put_state(namespace, stored_key(params.key + BACKUP), item.value)
    return {"ok": True, "existed": await store.delete_state(namespace, stored_key(params.key))}


async def alc_state_reset(call: McpCall, params: ResetParams) -> Object:
    steps, fields = params.steps or [], params.fields or []
    removed = {"steps": 0, "fields": 0}

    def reset(value: Json) -> Json:
        data = value.get("data") if isinstance(value, dict) else None
        done = data.get("completed_steps", []) if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(done, list):
            raise McpToolError(f"state: shape invalid: '{params.key}' has no data.completed_steps")
        kept = [each for each in done if each not in steps]
        left = {name: inner for name, inner in data.items() if name not in fields}
        removed.update(steps=len(done) - len(kept), fields=len(data) - len(left))
        if "completed_steps" in left:
            left["completed_steps"] = kept
        return {**value, "data": left}

    await _found(call.holdfast.store, params)
    if steps or fields:
        await _replace(call.holdfast.store, params, reset)
    return {
        "ok": True,
        "backup_path": f"{params.namespace}/{params.key}{BACKUP}",
        "steps_removed": removed["steps"],
        "steps_input": steps,
        "fields_removed": removed["fields"],
        "fields_input": fields,
    }


async def _found(store: Store, params: KeyParams | ResetParams) -> StateItem:
    item = await store.get_state(_checked(params.namespace), stored_key(params.key))
    if item is None:
        raise McpToolError(f"state: '{params.key}' not found in namespace '{params.namespace}'")
    return item


async def _replace(store: Store, params: SetParams | ResetParams, change: Callable[[Json], Json]) -> None:
    """Change a value, and keep the one that was there before. Whoever changed it meanwhile is not overruled."""
    namespace, key = _checked(params.namespace), stored_key(params.key)
    while True:
        item = await store.get_state(namespace, key)
        value = change(None if item is None else item.value)
        try:
            await store.put_state(namespace, key, value, expected=0 if item is None else item.version)
        except StateConflictError:
            continue
        if item is not None:
            await store.put_state(namespace, stored_key(params.key + BACKUP), item.value)
        return


def _checked(namespace: str) -> str:
    if namespace.startswith(OWN):
        raise McpToolError(f"the namespace '{namespace}' belongs to the server itself, and is no state of strategies")
    return AD_HOC if namespace == OWN_NAMESPACE else namespace


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_state_list",
        "List kept values",
        "The keys of what strategies have kept with alc.state, in a namespace.",
        NamespaceParams,
        alc_state_list,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_state_show",
        "Show a kept value",
        "A value that strategies have kept with alc.state; one that is no object under `value`.",
        KeyParams,
        alc_state_show,
        read_only=True,
        idempotent=True,
    ),
    McpTool(
        "alc_state_set",
        "Set a kept value",
        f"Replace a value of alc.state. The one before is kept under the key with {BACKUP} at its end.",
        SetParams,
        alc_state_set,
        destructive=True,
        idempotent=True,
    ),
    McpTool(
        "alc_state_reset",
        "Undo steps of a kept value",
        "Take entries out of data.completed_steps, and fields out of data, of a value of alc.state, so that a strategy"
        f" does those steps again. The value before is kept under the key with {BACKUP} at its end.",
        ResetParams,
        alc_state_reset,
        destructive=True,
        idempotent=True,
    ),
    McpTool(
        "alc_state_delete",
        "Delete a kept value",
        f"Remove a value of alc.state. It is kept under the key with {BACKUP} at its end.",
        KeyParams,
        alc_state_delete,
        destructive=True,
        idempotent=True,
    ),
]
