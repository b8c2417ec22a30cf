"""The strategies in Python that can be run by name: what each says about itself, what it costs, where it is from."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.kinds import languages
from holdfast.programs.language import read_code
from holdfast.programs.names import did_you_mean, program_path
from holdfast.programs.parameters import Parameter, StrategyMeta, calls_of, filled, read_description
from holdfast.programs.sandbox.library import Origin, StrategyFile, find_strategy, list_strategies
from holdfast.programs.sandbox.source import KIND

NO_CATEGORY = "other"

MAX_SAMPLE_CHARS = 1_000_000
"""Characters of a text that stands in for one that is read in parts, however large a strategy says its parts are."""


class Cost(msgspec.Struct, frozen=True):
    """How many questions a strategy asks models, at most."""

    formula: str
    by_default: int | None
    """With the default parameters; None if that depends on a parameter that has no default."""


class StrategyEntry(msgspec.Struct, frozen=True):
    """A strategy that can be run by its name."""

    name: str
    path: str
    origin: Origin
    meta: StrategyMeta | None = None
    """None if it has none, or one that cannot be used."""
    doc: str = ""
    cost: Cost | None = None
    error: str | None = None
    """What is wrong with it."""
    hidden_by: str | None = None
    """The path of the program of another kind that is run under this name instead."""

    @property
    def category(self) -> str:
        return self.meta.category if self.meta is not None else NO_CATEGORY

    def to_json(self) -> dict[str, Any]:
        """The strategy as JSON; what it does not say is left out."""
        shown: dict[str, Any] = {"name": self.name, "origin": self.origin, "path": self.path, "category": self.category}
        if self.meta is not None:
            meta = msgspec.to_builtins(self.meta)
            shown |= {key: meta[key] for key in ("description", "parameters", "result", "paper") if key in meta}
        shown["calls"] = None if self.cost is None else msgspec.to_builtins(self.cost)
        optional = {"doc": self.doc, "error": self.error, "hidden_by": self.hidden_by}
        return shown | {key: value for key, value in optional.items() if value}


def catalog(project: Path | None = None, *, category: str | None = None) -> list[StrategyEntry]:
    """All strategies, by category and name. One that has a fault is among them, with the fault."""
    entries = [_entry(found, _hidden_by(found.name, project)) for found in list_strategies(project)]
    kept = [each for each in entries if category is None or each.category == category]
    return sorted(kept, key=lambda each: (each.category, each.name))


def find_entry(given: str, project: Path | None = None) -> StrategyEntry:
    """One strategy, by its name or as `FILE.py`; `ProgramNotFoundError` if there is none."""
    if given.endswith(".py"):
        return _entry(StrategyFile(Path(given).stem, Path(given), "path"), None)
    hidden_by = _hidden_by(given, project)
    if (found := find_strategy(given, project)) is not None:
        return _entry(found, hidden_by)
    if hidden_by is not None:
        raise ProgramNotFoundError(
            given, f"it is not in Python; it is in {hidden_by}. `holdfast pkg list` lists packages"
        )
    hint = did_you_mean(given, (each.name for each in list_strategies(project)))
    raise ProgramNotFoundError(
        given, f"no strategy in Python has that name; {hint}{' ' if hint else ''}`holdfast strategies` lists them"
    )


def _entry(found: StrategyFile, hidden_by: str | None) -> StrategyEntry:
    name, path, origin = found
    bare = StrategyEntry(name, str(path), origin, hidden_by=hidden_by)
    try:
        described = read_description(read_code(path))
        if described is None:
            return bare
        cost = cost_of(described.meta)
    except (ValueError, ProgramNotFoundError) as error:
        why = error.why if isinstance(error, ProgramNotFoundError) else str(error)
        return msgspec.structs.replace(bare, error=why)
    return msgspec.structs.replace(bare, meta=described.meta, doc=described.doc, cost=cost)


def _hidden_by(name: str, project: Path | None) -> str | None:
    """The path of the program that is run under this name instead of the one in Python; None if there is none."""
    for language in languages():
        if language.name == KIND:
            break
        with contextlib.suppress(HoldfastError):  # a pin that nothing satisfies: an error when it is run
            file = language.find_file(name, project)
            if file is not None:
                return str(program_path(file))
    return None


# --- costs and parameters ------------------------------------------------------------------------------


def cost_of(meta: StrategyMeta) -> Cost | None:
    """The cost that a strategy states; None if it states none. `MetaError` if that cannot be worked out."""
    if not meta.calls:
        return None
    most = calls_of(meta, filled(meta, samples(meta)))
    open_ended = {name for name, parameter in meta.parameters.items() if parameter.required}
    used = {node.id for node in ast.walk(ast.parse(meta.calls, mode="eval")) if isinstance(node, ast.Name)}
    return Cost(meta.calls, None if used & open_ended else most)


def samples(meta: StrategyMeta, given: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Stand-ins for the parameters that a strategy needs and that are not given: enough to rehearse it."""
    given = given or {}
    needed = {name: each for name, each in meta.parameters.items() if each.required and given.get(name) is None}
    size = meta.parameters.get("size")
    # A text that is read in parts of some size: long enough for several, or the rehearsal would show one question.
    length = min(size.default, MAX_SAMPLE_CHARS) if size is not None and isinstance(size.default, int) else 0
    return {name: _sample(name, parameter, length) for name, parameter in needed.items()}


def _sample(name: str, parameter: Parameter, length: int) -> Json:
    if parameter.choices:
        return parameter.choices[0]
    match parameter.type:
        case "str" if name == "text":
            return " ".join(["‹text›"] * max(1, length // 3))
        case "int":
            return int(_number(parameter))
        case "float":
            return _number(parameter)
        case "bool":
            return True
        case "list":
            return [f"‹{name} {number}›" for number in (1, 2, 3)]
        case "dict":
            return {"key": f"‹{name}›"}
        case "str" | "any":
            return f"‹{name}›"


def _number(parameter: Parameter) -> float:
    if parameter.min is not None:
        return parameter.min
    return 1 if parameter.max is None else min(1, parameter.max)
