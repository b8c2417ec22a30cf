"""What a cell leaves behind when it ends: which names there are, which of them changed, and which cannot be kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pydantic_monty import MontyRuntimeError, MontySession

from holdfast.agent.rlm.cell_state import CellState
from holdfast.agent.rlm.feedback import sized
from holdfast.agent.rlm.functions import CELL_FUNCTIONS, HISTORY
from holdfast.agent.rlm.inside import HELPERS, JSON, KINDS, PACK, PACK_EXACTLY
from holdfast.agent.rlm.limits import MAX_ALL_BYTES, MAX_VALUE_BYTES, MAX_VALUE_NODES, MAX_VARIABLES
from holdfast.agent.rlm.values import digest_of, is_doubtful, leaf_of
from holdfast.agent.rlm.variables import Bindings, Definition, Leaf, VariableTable
from holdfast.core.values import repaired

_DEFINED = frozenset(["function", "type", "module", "builtin_function_or_method"])
"""Types of values that only a definition can bring back."""

_SCALARS = frozenset(["str", "int", "float", "bool", "NoneType"])
"""Types whose JSON the interpreter writes as it is."""

_NODES = f", {MAX_VALUE_NODES}"

_IMMUTABLE = frozenset(
    ["str", "int", "float", "bool", "NoneType", "bytes", "complex", "ellipsis", "tuple", "frozenset"]
)
"""Types of which it does not matter whether two names are the same object."""

_INSTEAD = {
    "function": "define it with `def` at the top of a cell",
    "builtin_function_or_method": "use it by its own name",
    "type": "define it with `class` at the top of a cell",
    "module": "import it at the top of a cell",
    "range": "keep list(…) of it",
    "dict_keys": "keep list(…) of it",
    "dict_values": "keep list(…) of it",
    "dict_items": "keep list(…) of it",
    "Pattern": "keep the pattern as a text, and compile it where it is used",
    "Match": "keep what its groups are",
}


class NamesOfCode(Protocol):
    """What is known of a cell's names."""

    @property
    def definitions(self) -> tuple[Definition, ...]: ...

    def has_projection(self, name: str) -> bool: ...


def leave_cell(session: MontySession, state: CellState, table: VariableTable, names_of: NamesOfCode) -> Bindings | str:
    """What a cell that has ended leaves behind; or why that cannot be found out."""
    try:
        kinds: dict[str, list[Any]] = session.feed_run(KINDS)
        defined = _definitions(names_of.definitions, kinds)
        names = [
            name
            for name in kinds
            if not name.startswith(HELPERS)
            and name not in CELL_FUNCTIONS
            and name != HISTORY
            and not names_of.has_projection(name)
            and not (kinds[name][0] in _DEFINED and (name in table.defined or _is_defined(name, defined)))
        ]
        packed = _packed(session, names, kinds)
    except MontyRuntimeError:
        return "The cell was stopped: its variables need too much memory, or take too long to be stored."
    return _bindings(state, table, kinds, packed, defined)


def _packed(session: MontySession, names: list[str], kinds: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The JSON of the values of these names, or why they have none.

    What does that is fed only as far as it is needed: for a small cell the interpreter takes longer to read it than for
    all the rest.
    """
    if not names:
        return {}
    scalars = {name for name in names if kinds[name][0] in _SCALARS}
    calls = [f"_holdfast_json{'.dumps' if n in scalars else '_of'}({n}{'' if n in scalars else _NODES})" for n in names]
    helpers = JSON if len(scalars) == len(names) else JSON + PACK
    texts: list[str | None] = session.feed_run(f"{helpers}\n[{', '.join(calls)}]")
    packed: dict[str, list[Any]] = {name: [True, text] for name, text in zip(names, texts, strict=True)}
    inexact = [name for name, (_, text) in packed.items() if text is None or is_doubtful(text)]
    if inexact:
        exact = ", ".join(f"_holdfast_pack({name}{_NODES})" for name in inexact)
        found: list[list[Any]] = session.feed_run(f"{JSON}{PACK_EXACTLY}\n[{exact}]")
        packed.update(zip(inexact, found, strict=True))
    return packed


def _definitions(definitions: Iterable[Definition], kinds: dict[str, list[Any]]) -> list[Definition]:
    """The definitions of a cell that are there: it may have failed before it came to them, or have replaced them."""
    there = [each for each in definitions if all(_is_there(name, kinds) for name in each.names)]
    last = {name: each for each in there for name in each.names}
    return [each for each in there if any(last[name] is each for name in each.names)]


def _is_there(name: str, kinds: dict[str, list[Any]]) -> bool:
    return name in kinds and kinds[name][0] in _DEFINED


def _is_defined(name: str, definitions: Iterable[Definition]) -> bool:
    return any(name in each.names for each in definitions)


def _bindings(
    state: CellState,
    table: VariableTable,
    kinds: dict[str, list[Any]],
    packed: dict[str, list[Any]],
    defined: list[Definition],
) -> Bindings:
    known = [each for each in defined if each not in table.definitions]
    leaves: dict[str, Leaf] = {}
    not_kept: dict[str, str] = {}
    same: dict[int, list[str]] = {}
    size = table.size
    for name, (is_kept, text) in packed.items():
        kind, identity = kinds[name]
        if name in state.forgotten:
            continue
        if not is_kept:
            not_kept[name] = _why(kind, text)
            continue
        if kind not in _IMMUTABLE:
            same.setdefault(identity, []).append(name)
        before = table.variables.get(name)
        if before is not None and before.digest == digest_of(text) and before.kind == kind:
            continue
        size += len(text) - (before.size if before is not None else 0)
        if (why := _too_large(len(text), size, len(table.variables) + len(leaves))) is not None:
            not_kept[name] = why
            continue
        leaves[name] = leaf_of(text, kind)
    aliases = _aliases(table, same, leaves, not_kept)
    drop = [name for name in state.forgotten if name in table.variables or name in table.defined]
    return Bindings(set=leaves, drop=list(dict.fromkeys(drop)), definitions=known, aliases=aliases, not_kept=not_kept)


def _aliases(
    table: VariableTable, same: dict[int, list[str]], leaves: dict[str, Leaf], not_kept: dict[str, str]
) -> list[list[str]]:
    """The names of one object, where that is new; the leaves of all but the first are taken out."""
    groups: list[list[str]] = []
    for names in same.values():
        group = [name for name in names if name not in not_kept]
        if len(group) < 2 or (group in table.aliases and not leaves.keys() & {*group}):
            continue
        first = next((name for name in group if name in leaves), None)
        if first is None:  # none has changed: they have become one object, and have equal values
            group = sorted(group, key=lambda name: name not in table.variables)
        else:
            group = [first, *(name for name in group if name != first)]
            for name in group[1:]:
                leaves.pop(name, None)
        groups.append(group)
    return groups


def _why(kind: str, text: str) -> str:
    why = repaired(text).splitlines()[0] if text else "it cannot be kept"
    instead = _INSTEAD.get(kind)
    if instead is None and "is not kept" in why:
        instead = "keep its parts in a dict or a list"
    return f"{why}; {instead}" if instead else why


def _too_large(chars: int, size: int, count: int) -> str | None:
    if chars > MAX_VALUE_BYTES:
        return f"it has {sized(chars)}, and a variable may have {sized(MAX_VALUE_BYTES)}; keep less of it"
    if size > MAX_ALL_BYTES:
        return f"all variables together would have more than {sized(MAX_ALL_BYTES)}; forget('name') what is not needed"
    if count >= MAX_VARIABLES:
        return f"there are {MAX_VARIABLES:,} variables already; forget('name') what is not needed"
    return None
