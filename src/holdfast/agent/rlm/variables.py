"""The variables of an RLM session: what the journal keeps of them, and the table that follows from it.

A cell that ends leaves a record: a leaf for each variable that is new or has changed, the sources of what it defined,
what it dropped, and what could not be kept. Values that would make it long are in records of their own before it. The
table says where each value is; the values stay in the journal, and are read when a cell reads the variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from holdfast.agent.rlm.limits import RECORD_BYTES
from holdfast.core.values import Json, encode


class Definition(msgspec.Struct, frozen=True):
    """A top-level statement that defines something: a function, a class, or an import."""

    names: list[str]
    source: str
    """The statement as it was written."""


class Leaf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A variable's value, in the form that `values` reads."""

    value: Json = None
    text: str = ""
    """The JSON of a value that is not small, in its place: who reads the record need not read the value as well."""
    kind: str
    """The name of its type."""
    size: int
    """Bytes of its JSON."""
    digest: str
    preview: str = ""
    """The beginning of its text, for lists of variables."""
    is_special: bool = False
    """Whether the interpreter has to make it from its parts, because it cannot be passed in as it is."""
    back: int = 0
    """How many records before this one the value is in one of its own; 0 if it is here."""

    @property
    def json(self) -> str:
        """The JSON of a value that is here."""
        assert not self.back
        return self.text or encode(self.value).decode()


class Variable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A variable in the table."""

    position: int
    """The position of the record that has its value."""
    kind: str
    size: int
    digest: str
    preview: str = ""
    is_special: bool = False
    leaf: str = ""
    """The name that the value has in the record, if it is another: two names of one object share a leaf."""


class Bindings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a cell has left behind."""

    set: dict[str, Leaf] = {}
    """New and changed variables."""
    drop: list[str] = []
    """Variables that are gone."""
    definitions: list[Definition] = []
    """Functions, classes and imports that it defined."""
    aliases: list[list[str]] = []
    """Names of one object, of which only the first has a leaf here."""
    not_kept: dict[str, str] = {}
    """Variables whose values cannot be kept, and why."""
    is_fresh: bool = False
    """Whether nothing of before stays: a new frame begins."""

    def split(self) -> tuple[list[dict[str, str]], Bindings]:
        """The JSON of values for records that come before that of these bindings, in order, each with as much as one
        record should have; and the bindings without those values. As much as fits stays here.

        Whoever reads one variable reads the whole record that has it.
        """
        room, left = RECORD_BYTES, RECORD_BYTES
        records: list[dict[str, str]] = []
        numbers: dict[str, int] = {}
        for name, leaf in self.set.items():
            if leaf.size <= room:
                room -= leaf.size
                continue
            if not records or leaf.size > left:
                records.append({})
                left = RECORD_BYTES
            left -= leaf.size
            records[-1][name] = leaf.json
            numbers[name] = len(records) - 1
        if not records:
            return records, self
        leaves = {
            name: msgspec.structs.replace(leaf, value=None, text="", back=len(records) - numbers[name])
            if name in numbers
            else leaf
            for name, leaf in self.set.items()
        }
        return records, msgspec.structs.replace(self, set=leaves)


class VariableTable(msgspec.Struct):
    """All names that a session holds."""

    variables: dict[str, Variable] = msgspec.field(default_factory=dict)
    definitions: list[Definition] = msgspec.field(default_factory=list)
    """In the order in which they were made."""
    aliases: list[list[str]] = msgspec.field(default_factory=list)

    def bind(self, bindings: Bindings, position: int) -> None:
        """Take in what a cell has left behind, which is recorded at a position."""
        if bindings.is_fresh:
            self.clear()
        defined = {name for each in bindings.definitions for name in each.names}
        changed = {*bindings.set, *bindings.drop, *bindings.not_kept, *defined}
        changed |= {name for group in bindings.aliases for name in group[1:]}
        for name in changed:
            self.variables.pop(name, None)
        self.aliases = [left for group in self.aliases if len(left := [n for n in group if n not in changed]) > 1]
        kept = (_without(each, changed) for each in self.definitions)
        self.definitions = [each for each in kept if each is not None] + bindings.definitions
        for name, leaf in bindings.set.items():
            self.variables[name] = _variable(leaf, position)
        for group in bindings.aliases:
            first = self.variables.get(group[0])
            if first is None:
                continue
            self.aliases.append(list(group))
            for name in group[1:]:
                self.variables[name] = msgspec.structs.replace(first, leaf=first.leaf or group[0])

    def clear(self) -> None:
        self.variables, self.definitions, self.aliases = {}, [], []

    def copy(self) -> VariableTable:
        return VariableTable(dict(self.variables), list(self.definitions), [list(group) for group in self.aliases])

    @property
    def defined(self) -> set[str]:
        """The names of functions, classes and imports."""
        return {name for each in self.definitions for name in each.names}

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(each.size for each in self.variables.values() if not each.leaf)

    def group_of(self, name: str) -> list[str]:
        """The names of the object that a variable is, its own included."""
        return next((group for group in self.aliases if name in group), [name])

    def needed(self, code: str) -> tuple[list[Definition], set[str]]:
        """The definitions that a cell mentions, directly or through others, in their order; and all names that it and
        these mention."""
        from holdfast.agent.rlm.check import names_in  # which knows the sandbox

        mentioned, open_codes, used = set[str](), [code], list[Definition]()
        while open_codes:
            new = names_in(open_codes.pop()).read - mentioned
            mentioned |= new
            for each in self.definitions:
                if each not in used and not new.isdisjoint(each.names):
                    used.append(each)
                    open_codes.append(each.source)
        return [each for each in self.definitions if each in used], mentioned


SEED = "seed"
"""The key of the variables that a subagent begins with, among what its session is started with."""


def seeded_table(ctx: Json) -> VariableTable:
    """The table of a session that begins: empty, or with the seed that its parent gave it."""
    seed = ctx.get(SEED) if isinstance(ctx, dict) else None
    if not isinstance(seed, dict):
        return VariableTable()
    from holdfast.agent.rlm.values import leaf_of

    leaves = {name: leaf_of(encode(value).decode(), type(value).__name__) for name, value in seed.items()}
    return VariableTable({name: _variable(leaf, 1) for name, leaf in leaves.items() if name.isidentifier()})


def with_classes(table: VariableTable, names: Iterable[str], code: str) -> tuple[list[Definition], set[str]]:
    """As `VariableTable.needed`; with all classes as soon as a special value is mentioned, which may be of one."""
    definitions, mentioned = table.needed(code)
    if any(name in table.variables and table.variables[name].is_special for name in names):
        extra = " ".join(f"\n{name}" for each in table.definitions for name in each.names)
        return table.needed(f"{code}\n{extra}")
    return definitions, mentioned


def _variable(leaf: Leaf, position: int) -> Variable:
    """The variable of a leaf in the record at a position."""
    return Variable(
        position=position - leaf.back,
        kind=leaf.kind,
        size=leaf.size,
        digest=leaf.digest,
        preview=leaf.preview,
        is_special=leaf.is_special,
    )


def _without(definition: Definition, names: Collection[str]) -> Definition | None:
    """A definition without those of its names that are defined anew; None if none is left."""
    left = [name for name in definition.names if name not in names]
    return Definition(left, definition.source) if left else None
