"""Code that runs inside the interpreter: it takes the values of variables apart when a cell has ended, and puts those
together that cannot be passed in.

It is written in the Python of the sandbox, and fed to it as text.
"""

JSON = "import json as _holdfast_json\n"

PACK = """
_holdfast_scalars = {str, int, float, bool, type(None)}
_holdfast_containers = {list, dict}
_holdfast_all = _holdfast_scalars | _holdfast_containers
_holdfast_text = {str}

def _holdfast_is_json(v, nodes):
    if type(v) not in _holdfast_containers:
        return type(v) in _holdfast_scalars
    level = [v]
    while level:
        nodes -= len(level) + sum(map(len, level))
        if nodes < 0:
            return False
        items = []
        keys = []
        for x in level:
            if type(x) is dict:
                keys.extend(x)
                items.extend(x.values())
            else:
                items.extend(x)
        if not set(map(type, keys)) <= _holdfast_text:
            return False
        kinds = set(map(type, items))
        if kinds <= _holdfast_scalars:
            return True
        if not kinds <= _holdfast_all:
            return False
        level = [i for i in items if type(i) is list or type(i) is dict]
    return True

def _holdfast_json_of(v, nodes):
    try:
        return _holdfast_json.dumps(v) if _holdfast_is_json(v, nodes) else None
    except (ValueError, RecursionError):
        return None
"""
"""`_holdfast_json_of(value, nodes)` gives the JSON of a value of plain lists, dicts and scalars, which the interpreter
writes itself: that takes a twentieth of the time. It gives None for all others.

A value is looked through level by level, each in a few calls: the interpreter is slow at everything else. Whether it
has to be written exactly after all can be seen from the text: `values.is_doubtful`.
"""

PACK_EXACTLY = """
def _holdfast_plain(v, path, left):
    left[0] -= 1
    if left[0] < 0:
        raise ValueError("it has too many items")
    t = type(v).__name__
    if t in ("str", "bool", "NoneType"):
        return v
    if t == "int":
        return v if -9223372036854775808 <= v <= 9223372036854775807 else {"$": "int", "v": str(v)}
    if t == "float":
        if v != v or v in (float("inf"), float("-inf")):
            return {"$": "float", "v": str(v)}
        return v
    if t == "bytes":
        return {"$": "bytes", "v": v.hex()}
    if t == "complex":
        parts = [_holdfast_plain(v.real, path, left), _holdfast_plain(v.imag, path, left)]
        return {"$": "complex", "v": parts}
    if t == "ellipsis":
        return {"$": "ellipsis"}
    if t == "Decimal":
        return {"$": "Decimal", "v": str(v)}
    if t in ("date", "time", "datetime"):
        return {"$": t, "v": v.isoformat()}
    if t == "timedelta":
        return {"$": t, "v": [v.days, v.seconds, v.microseconds]}
    if t == "timezone":
        offset = v.utcoffset(None)
        return {"$": t, "v": [offset.days, offset.seconds]}
    if id(v) in path:
        raise ValueError("it contains itself")
    inner = path + [id(v)] if len(path) < 200 else None
    if inner is None:
        raise ValueError("it is nested too deeply")
    if t == "list":
        return [_holdfast_plain(x, inner, left) for x in v]
    if t == "dict":
        if all([type(k).__name__ == "str" and k != "$" for k in v]):
            return {k: _holdfast_plain(x, inner, left) for k, x in v.items()}
        return {"$": "dict", "v": _holdfast_pairs(v, inner, left)}
    if t in ("tuple", "set", "frozenset"):
        return {"$": t, "v": [_holdfast_plain(x, inner, left) for x in v]}
    if t == "deque":
        return {"$": t, "v": [_holdfast_plain(x, inner, left) for x in v], "m": v.maxlen}
    if t == "Counter":
        return {"$": t, "v": _holdfast_pairs(v, inner, left)}
    if t == "defaultdict":
        made = v.default_factory
        made = None if made is None else getattr(made, "__name__", "")
        if made not in (None, "list", "dict", "set", "int", "str", "float", "bool", "tuple"):
            raise ValueError("its default_factory is not a builtin type; use a dict")
        return {"$": t, "f": made, "v": _holdfast_pairs(v, inner, left)}
    if hasattr(v, "__dataclass_fields__") and t != "type":
        names = list(type(v).__dataclass_fields__)
        return {"$": "dataclass", "c": t, "v": [[n, _holdfast_plain(getattr(v, n), inner, left)] for n in names]}
    if hasattr(v, "_fields") and t != "type":
        return {"$": "namedtuple", "c": t, "v": [_holdfast_plain(x, inner, left) for x in v]}
    raise ValueError("a value of the type " + t + " is not kept")

def _holdfast_pairs(v, path, left):
    return [[_holdfast_plain(k, path, left), _holdfast_plain(x, path, left)] for k, x in v.items()]

def _holdfast_pack(v, nodes):
    try:
        return [True, _holdfast_json.dumps(_holdfast_plain(v, [], [nodes]))]
    except ValueError as error:
        return [False, str(error)]
    except RecursionError:
        return [False, "it is nested too deeply"]
"""
"""`_holdfast_pack(value, nodes)` gives `[True, JSON]`, or `[False, why it cannot be kept]`."""

UNPACK = """
import json as _holdfast_json
import collections as _holdfast_collections
import datetime as _holdfast_datetime
from decimal import Decimal as _holdfast_decimal

def _holdfast_made(v, classes):
    t = type(v).__name__
    if t == "list":
        return [_holdfast_made(x, classes) for x in v]
    if t != "dict":
        return v
    if "$" not in v:
        return {k: _holdfast_made(x, classes) for k, x in v.items()}
    kind = v["$"]
    if kind == "ellipsis":
        return ...
    raw = v["v"]
    if kind == "int":
        return int(raw)
    if kind == "float":
        return float(raw)
    if kind == "bytes":
        return bytes.fromhex(raw)
    if kind == "Decimal":
        return _holdfast_decimal(raw)
    if kind == "date":
        return _holdfast_datetime.date.fromisoformat(raw)
    if kind == "time":
        return _holdfast_datetime.time.fromisoformat(raw)
    if kind == "datetime":
        return _holdfast_datetime.datetime.fromisoformat(raw)
    if kind == "timedelta":
        return _holdfast_datetime.timedelta(days=raw[0], seconds=raw[1], microseconds=raw[2])
    if kind == "timezone":
        return _holdfast_datetime.timezone(_holdfast_datetime.timedelta(days=raw[0], seconds=raw[1]))
    if kind == "dataclass":
        return classes[v["c"]](**{n: _holdfast_made(x, classes) for n, x in raw})
    items = [_holdfast_made(x, classes) for x in raw]
    if kind == "complex":
        return complex(items[0], items[1])
    if kind == "tuple":
        return tuple(items)
    if kind == "set":
        return set(items)
    if kind == "frozenset":
        return frozenset(items)
    if kind == "deque":
        return _holdfast_collections.deque(items, v["m"])
    if kind == "namedtuple":
        return classes[v["c"]](*items)
    made = {k: x for k, x in items}
    if kind == "Counter":
        return _holdfast_collections.Counter(made)
    if kind == "defaultdict":
        factories = {"list": list, "dict": dict, "set": set, "int": int, "str": str, "float": float, "bool": bool}
        factories["tuple"] = tuple
        filled = _holdfast_collections.defaultdict(factories.get(v["f"]))
        for k, x in made.items():
            filled[k] = x
        return filled
    return made
"""
"""`_holdfast_made(value, classes)` makes the value that a leaf stands for."""

AGENT_BATCH = """
import asyncio as _holdfast_asyncio

async def _holdfast_one(name, task, options):
    try:
        return {"status": "ok", "value": await agent_async(name, task, **options)}
    except TimeoutError as error:
        return {"status": "timeout", "error": str(error)}
    except RuntimeError as error:
        status, _, why = str(error).partition(": ")
        return {"status": status, "error": why}

def agent_batch(name, tasks, *, seed=None, schema=None):
    options = {"seed": seed, "schema": schema, "parts": len(tasks)}
    work = [_holdfast_one(name, task, options) for task in tasks]
    return _holdfast_asyncio.run(_holdfast_asyncio.gather(*work)) if work else []
"""
"""`agent_batch`: many subagents at once, each with how it ended."""

KINDS = "{_n: [type(_v).__name__, id(_v)] for _n, _v in locals().items()}"
"""An expression: every global name, with the name of its value's type, and its identity."""

HELPERS = "_holdfast_"
"""The beginning of the names that this code uses."""
