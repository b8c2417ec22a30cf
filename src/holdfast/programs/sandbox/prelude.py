"""The part of the API that calls the strategy's own functions, and so runs beside it, in the interpreter.

Each definition is given to a program that uses it, without its annotations, so nothing here may need what monty has not
(docs/reference/python.md). The texts and limits that it imports come with it as
constants. The rest of the API is in `calls`; names with `_holdfast_` in front are for this page only.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

from holdfast.programs.prompts import JSON_ONLY, JSON_REPAIR, MAX_CACHED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    def llm(prompt: str, **options: Any) -> str: ...
    def llm_batch(items: Sequence[Any], **options: Any) -> list[str]: ...
    def child(program: str, ctx: Any = None) -> Any: ...
    def json_extract(text: str) -> Any: ...
    def fingerprint(text: str) -> str: ...
    def log(message: Any, level: str = "info") -> None: ...
    def _holdfast_as_text(value: Any, what: str) -> str: ...
    def _holdfast_parse_number(text: str) -> float | None: ...
    def _holdfast_state(op: str, **arguments: Any) -> Any: ...
    def _holdfast_card(op: str, **arguments: Any) -> Any: ...
    def _holdfast_stats(op: str, key: str = "", value: Any = None) -> Any: ...


def llm_safe(prompt: str, *, default: Any = "", **options: Any) -> Any:
    try:
        return llm(prompt, **options)
    except (RuntimeError, TimeoutError) as error:
        log(f"llm_safe: {error}", "warn")
        return default


def llm_json(prompt: str, **options: Any) -> Any:
    raw = llm(prompt, **options)
    value = json_extract(raw)
    if value is not None:
        return value
    log("llm_json: the answer is not JSON, asking once more", "warn")
    options["system"] = JSON_ONLY
    value = json_extract(llm(f"{JSON_REPAIR[0]}{prompt}{JSON_REPAIR[1]}{raw}", **options))
    if value is None:
        log("llm_json: the second answer is not JSON either", "warn")
    return value


def parallel(
    items: Sequence[Any],
    prompt: Callable[[Any], str | dict[str, Any]],
    *,
    post: Callable[[str, Any], Any] | None = None,
    **options: Any,
) -> list[Any]:
    items = list(items)
    answers = llm_batch([prompt(item) for item in items], **options)
    if post is None:
        return answers
    return [post(answer, item) for answer, item in zip(answers, items)]  # noqa: B905 - both have one an item


_cached: dict[str, str] = {}
_cache_counts: dict[str, int] = {"hits": 0, "misses": 0}


def cache(prompt: str, *, cache_key: str | None = None, cache_skip: bool = False, **options: Any) -> str:
    if cache_skip:
        return llm(prompt, **options)
    key = f"k{cache_key}" if cache_key is not None else "q" + json.dumps([prompt, options], sort_keys=True)
    if key in _cached:
        _cache_counts["hits"] += 1
        return _cached[key]
    answer = llm(prompt, **options)
    _cache_counts["misses"] += 1
    if len(_cached) >= MAX_CACHED:
        _cached.pop(list(_cached)[0])  # noqa: RUF015 - the interpreter has no iterators over dicts to take one from
    _cached[key] = answer
    return answer


def cache_info() -> dict[str, int]:
    return {
        "entries": len(_cached),
        "hits": _cache_counts["hits"],
        "misses": _cache_counts["misses"],
        "max_entries": MAX_CACHED,
    }


def cache_clear() -> None:
    _cached.clear()
    _cache_counts["hits"] = 0
    _cache_counts["misses"] = 0


def pipe(strategies: Sequence[Any], ctx: dict[str, Any], *, on_error: str = "abort") -> dict[str, Any]:
    if not strategies:
        raise ValueError("pipe: strategies must name at least one")
    if on_error not in ("abort", "skip", "continue"):
        raise ValueError(f"pipe: on_error must be 'abort', 'skip' or 'continue', got {on_error!r}")
    history: list[dict[str, Any]] = []
    current = {**ctx, "pipe_history": history}
    for number, stage in enumerate(strategies, 1):
        name = stage if isinstance(stage, str) else f"(inline-{number})"
        given = dict(current)
        try:
            left = child(stage, given) if isinstance(stage, str) else stage(given)
        except Exception as error:
            if on_error == "abort":
                raise
            log(f"pipe: stage '{name}' failed: {error}", "warn")
            history.append({"strategy": name, "error": str(error)})
            continue
        if not isinstance(left, dict):
            raise TypeError(f"pipe: strategy '{name}' must return its ctx, a dict, and gave {type(left).__name__}")
        result = left.get("result")
        history.append({"strategy": name, "result": result})
        current = {**left, "pipe_history": history}
        if result is not None and number < len(strategies):
            current["task"] = _holdfast_as_text(result, "pipe: result")
    return current


def parse_number(text: str, pattern: str | None = None) -> float | None:
    if pattern is not None:
        found = re.search(pattern, text)
        if not found:
            return None
        if not found.groups():
            raise ValueError("parse_number: the pattern must have a group, which is the number")
        text = found.group(1)
    return _holdfast_parse_number(text)


class _State:
    def get(self, key: str, default: Any = None) -> Any:
        item = _holdfast_state("get", key=key)
        return item["value"] if item["version"] else default

    def set(self, key: str, value: Any) -> None:
        _holdfast_state("put", key=key, value=value)

    def set_nx(self, key: str, value: Any) -> bool:
        return bool(_holdfast_state("put", key=key, value=value, expected=0))

    def has(self, key: str) -> bool:
        return bool(_holdfast_state("get", key=key)["version"])

    def keys(self) -> Any:
        return _holdfast_state("list")

    def delete(self, key: str) -> bool:
        return bool(_holdfast_state("delete", key=key))

    def incr(self, key: str, delta: float = 1, default: float = 0) -> Any:
        return _holdfast_state("incr", key=key, delta=delta, default=default)

    def update(self, key: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        while True:
            item = _holdfast_state("get", key=key)
            # A copy: `change` may change what it is given, and be called again.
            value = change(item["value"] if item["version"] else copy.deepcopy(default))
            if _holdfast_state("put", key=key, value=value, expected=item["version"]):
                return value

    def list(self, namespace: str | None = None) -> Any:
        return _holdfast_state("list", namespace=namespace)

    def show(self, namespace: str, key: str) -> Any:
        item = _holdfast_state("get", key=key, namespace=namespace)
        if not item["version"]:
            raise KeyError(f"state: '{key}' not found in namespace '{namespace}'")
        return item["value"]


state = _State()


class _Stats:
    def record(self, key: str, value: Any) -> None:
        _holdfast_stats("record", key, value)

    def get(self, key: str) -> Any:
        return _holdfast_stats("get", key)

    def llm_calls(self) -> Any:
        return _holdfast_stats("llm_calls")


stats = _Stats()


class _Card:
    def create(self, fields: dict[str, Any]) -> Any:
        return _holdfast_card("create", card=fields)

    def get(self, card_id: str) -> Any:
        return _holdfast_card("get", card_id=card_id)

    def list(self, *, pkg: str | None = None) -> Any:
        return _holdfast_card("list", pkg=pkg)

    def find(
        self,
        *,
        pkg: str | None = None,
        where: dict[str, Any] | None = None,
        order_by: Any = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Any:
        return _holdfast_card("find", pkg=pkg, where=where, order_by=order_by, limit=limit, offset=offset)

    def append(self, card_id: str, fields: dict[str, Any]) -> Any:
        return _holdfast_card("append", card_id=card_id, fields=fields)

    def write_samples(self, card_id: str, rows: Any) -> Any:
        return _holdfast_card("write_samples", card_id=card_id, rows=rows)

    def read_samples(
        self, card_id: str, *, where: dict[str, Any] | None = None, limit: int | None = None, offset: int = 0
    ) -> Any:
        return _holdfast_card("read_samples", card_id=card_id, where=where, limit=limit, offset=offset)

    def alias_set(self, name: str, card_id: str, *, pkg: str | None = None, note: str | None = None) -> Any:
        return _holdfast_card("alias_set", name=name, card_id=card_id, pkg=pkg, note=note)

    def alias_list(self, *, pkg: str | None = None) -> Any:
        return _holdfast_card("alias_list", pkg=pkg)

    def get_by_alias(self, name: str) -> Any:
        return _holdfast_card("get_by_alias", name=name)

    def lineage(
        self,
        card_id: str,
        *,
        direction: str = "up",
        depth: int = 10,
        include_stats: bool = True,
        relation_filter: Any = None,
    ) -> Any:
        return _holdfast_card(
            "lineage",
            card_id=card_id,
            direction=direction,
            depth=depth,
            include_stats=include_stats,
            relation_filter=relation_filter,
        )

    def sink_backfill(self, sink: str, *, dry_run: bool = False) -> Any:
        return _holdfast_card("sink_backfill", sink=sink, dry_run=dry_run)


card = _Card()
