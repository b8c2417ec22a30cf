"""What a strategy says about itself in `META`, read without running it, and its parameters filled in and checked."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from holdfast.core.values import Json, preview

Type = Literal["str", "int", "float", "bool", "list", "dict", "any"]

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "any": (object,),
}


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of `ctx` that a strategy reads."""

    type: Type
    description: str
    default: Json = None
    required: bool = False
    min: float | None = None
    max: float | None = None
    choices: list[Json] = []


class ScriptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer for rehearsals: what is said to a prompt in which some words occur."""

    when: str
    answer: str


class _Paper(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a strategy comes from."""

    title: str
    authors: str
    year: int
    url: str


class StrategyMeta(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a strategy says about itself."""

    name: str
    description: str
    """One line."""
    category: str = "other"
    parameters: dict[str, Parameter] = {}
    calls: str = ""
    """How many questions it asks models, as arithmetic over its parameters; the most, where that depends on answers."""
    result: str = ""
    """What it leaves in `ctx["result"]`."""
    paper: _Paper | None = None
    script: list[ScriptLine] = []
    """Answers with which it can be rehearsed; the first that fits a prompt is given."""


class StrategyDescription(msgspec.Struct, frozen=True):
    """A strategy's `META`, and its documentation."""

    meta: StrategyMeta
    doc: str


class MetaError(ValueError):
    """`META` is not what it should be."""


def read_description(code: str) -> StrategyDescription | None:
    """The `META` and the docstring of a source, which is not run; None if it has no META. `MetaError` if it is bad."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(each, "id", "") for each in node.targets] == ["META"]:
            try:
                given = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                raise MetaError("META must be written out, as a dict of texts, numbers and lists") from None
            return StrategyDescription(as_meta(given), ast.get_docstring(tree) or "")
    return None


def as_meta(given: object) -> StrategyMeta:
    """A `META` as given; `MetaError` with the place of the fault."""
    try:
        meta = msgspec.convert(given, StrategyMeta)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise MetaError(f"META: {error}") from None
    for name, parameter in meta.parameters.items():
        if not all(math.isfinite(bound) for bound in (parameter.min, parameter.max) if bound is not None):
            raise MetaError(f"META: min and max of the parameter '{name}' must be finite")
    return meta


def filled(meta: object, ctx: Mapping[str, Json] | None) -> dict[str, Json]:
    """The parameters that `META` names, from `ctx` or by default. A missing or wrong one is a `ValueError`."""
    described = as_meta(meta)
    given = ctx if isinstance(ctx, Mapping) else {}
    return {name: _value(described.name, name, parameter, given) for name, parameter in described.parameters.items()}


def _value(strategy: str, name: str, parameter: Parameter, given: Mapping[str, Json]) -> Json:
    value = given.get(name)
    if value is None:
        if parameter.required:
            raise ValueError(f"{strategy}: ctx has no '{name}' ({parameter.description})")
        return parameter.default
    allowed = _TYPES[parameter.type]
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed and object not in allowed):
        raise ValueError(f"{strategy}: '{name}' must be {parameter.type}, got {preview(value)}")
    low, high = parameter.min, parameter.max
    if isinstance(value, int | float) and ((low is not None and value < low) or (high is not None and value > high)):
        most = "" if high is None else f" and at most {high:g}"
        least = "" if low is None else f"at least {low:g}"
        raise ValueError(f"{strategy}: '{name}' must be {least}{most if least else most[5:]}, got {value}")
    if parameter.choices and value not in parameter.choices:
        known = ", ".join(str(choice) for choice in parameter.choices)
        raise ValueError(f"{strategy}: '{name}' must be one of {known}; got {preview(value)}")
    return value


# --- how many calls ----------------------------------------------------------------------------------------


def calls_of(meta: StrategyMeta, values: Mapping[str, Json]) -> int | None:
    """How many questions a strategy asks models with these parameters, at most; None if it does not say."""
    if not meta.calls:
        return None
    try:
        return int(_arithmetic(ast.parse(meta.calls, mode="eval").body, values))
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise MetaError(f"META of '{meta.name}': calls: {error}") from None


def _arithmetic(node: ast.expr, values: Mapping[str, Json]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _arithmetic(left, values), _arithmetic(right, values)
            if not isinstance(first, int | float) or not isinstance(second, int | float):
                raise ValueError("only numbers can be calculated with")  # a text times a number may be of any length
            match op:
                case ast.Add():
                    return first + second
                case ast.Sub():
                    return first - second
                case ast.Mult():
                    return first * second
                case ast.FloorDiv():
                    return first // second
                case _:
                    pass
        case ast.Call(func=ast.Name(id="min" | "max" | "len" as name), args=args, keywords=[]):
            functions: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len}
            return functions[name](*(_arithmetic(each, values) for each in args))
        case _:
            pass
    raise ValueError(f"'{ast.unparse(node)}' is not a number, a parameter, + - * //, min, max or len")
