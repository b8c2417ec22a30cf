"""A package's metadata, read from the text of its `init.lua` without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.lua.tokens import LuaSyntaxError, Token, tokenize

MAX_SOURCE = 4 << 20
"""Bytes of a source file that is still read statically: far above any package, far below what would take a second."""
_MAX_DEPTH = 32
"""Nested tables in a literal, so that a hostile file cannot exhaust the stack."""

_OPENS = {"function", "if", "do", "repeat"}
_CLOSES = {"end", "until"}


class PackageMeta(msgspec.Struct, frozen=True):
    """What a package says of itself. Fields it does not give are None."""

    name: str | None = None
    version: str | None = None
    description: str | None = None
    category: str | None = None
    values: dict[str, Any] = {}
    """The whole table, these four included."""
    type: str = "library"
    """`runnable` where the module has a function `run`, else `library`."""
    docstring: str = ""
    """The leading `---` lines."""


class Required(msgspec.Struct, frozen=True):
    """A `require` of a literal name."""

    name: str
    line: int
    at_load: bool
    """Outside every function and `pcall`, so that loading the file fails without it."""


def read_meta(init_lua: Path) -> PackageMeta | None:
    """The metadata in a file; None if only running it would show it, or if the file cannot be read."""
    source = read_source(init_lua)
    return None if source is None else meta_of(source)


def read_source(path: Path) -> str | None:
    """The text of a Lua file, or None if it is unreadable or too large."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SOURCE + 1)
    except OSError:
        return None
    return None if len(data) > MAX_SOURCE else data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def meta_of(source: str) -> PackageMeta | None:
    """The metadata in the text of a module."""
    try:
        tokens = tokenize(source)
    except LuaSyntaxError:
        return None
    module = _Module(tokens)
    values = module.meta()
    if values is None:
        return None
    kind = "runnable" if module.runs() else "library"
    plain = {key: _text(values.get(key)) for key in ("name", "version", "description", "category")}
    return PackageMeta(**plain, values=values, type=kind, docstring=docstring(source))


def docstring(source: str) -> str:
    """The `---` lines at the top of a file, as text."""
    lines = []
    for line in source.lstrip().splitlines():
        if not line.startswith("---") or line.startswith("--[["):
            break
        lines.append(line[3:].removeprefix(" ").rstrip())
    return "\n".join(lines).strip().encode("utf-8", "replace").decode()


def requires_of(source: str) -> list[Required]:
    """Every `require` with a literal name, in order; none where the text is not Lua."""
    try:
        tokens = tokenize(source)
    except LuaSyntaxError:
        return []
    depths = _depths(tokens)
    found = []
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.value != "require" or (at and tokens[at - 1].value in (".", ":")):
            continue
        guarded = at >= 2 and tokens[at - 1].value == "(" and tokens[at - 2].value == "pcall"
        named = at + 1
        if tokens[named].kind == "op" and tokens[named].value == ("," if guarded else "("):
            named += 1
        if tokens[named].kind == "string":
            found.append(Required(tokens[named].value, token.line, depths[at] == 0 and not guarded))
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _depths(tokens: list[Token]) -> list[int]:
    """For each token, how many blocks (functions, conditions, loops) are open around it."""
    depths, depth = [], 0
    for token in tokens:
        keyword = token.value if token.kind == "name" else None
        if keyword in _CLOSES:
            depth -= 1
        depths.append(depth)
        if keyword in _OPENS:
            depth += 1
    return depths


class _Module:
    """The tokens of a module, and which table it returns."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._depths = _depths(tokens)
        self._variable, self._table = self._find_table()

    def meta(self) -> dict[str, Any] | None:
        """The table `meta` of the module: empty if there is surely none, None if it cannot be read."""
        places = self._assigned("meta")
        if not places:
            mentioned = any(t.kind in ("name", "string") and t.value == "meta" for t in self._tokens)
            return None if mentioned or self._table is None else {}
        if self._changed_later():
            return None
        value, end = self._literal(places[-1], 0)
        if not isinstance(value, (dict, list)) or (self._is_op(end) and self._tokens[end].value not in ("}", ",", ";")):
            return None
        return value if isinstance(value, dict) else ({} if not value else None)

    def runs(self) -> bool:
        """Whether the module has a function `run`."""
        name = self._variable
        for at, depth in enumerate(self._depths[:-3]):
            if depth == 0 and self._names(at, "function", name, (".", ":"), "run"):
                return True
        return any(self._tokens[at].value not in ("nil", "false") for at in self._assigned("run"))

    def _find_table(self) -> tuple[str | None, int | None]:
        """The variable the module returns, and where the constructor of the returned table begins."""
        returned = [at for at, depth in enumerate(self._depths) if depth == 0 and self._names(at, "return")]
        if not returned:
            return None, None
        at = returned[-1] + 1
        if self._is_op(at, "{"):
            return None, at
        alone = self._tokens[at].kind == "name" and (self._tokens[at + 1].kind == "end" or self._is_op(at + 1, ";"))
        if not alone:
            return None, None
        name = self._tokens[at].value
        for begin, depth in enumerate(self._depths):
            own = not self._is_op(begin - 1, ".") and not self._is_op(begin - 1, ":")
            made = self._is_op(begin + 1, "=") and self._is_op(begin + 2, "{")
            if depth == 0 and own and made and self._names(begin, name):
                return name, begin + 2
        return name, None

    def _assigned(self, field: str) -> list[int]:
        """Where the values begin that are given to a field of the module, in order."""
        found = self._in_constructor(field)
        if self._variable is None:
            return found
        for at, depth in enumerate(self._depths[:-4]):
            dotted = self._names(at, self._variable, (".",), field) and self._is_op(at + 3, "=")
            own = not at or self._tokens[at - 1].value not in (".", ":")
            if depth == 0 and dotted and own:
                found.append(at + 4)
        return found

    def _in_constructor(self, field: str) -> list[int]:
        """Where the value of a field begins in the constructor of the returned table."""
        if self._table is None:
            return []
        brackets, at = 0, self._table
        outer = self._depths[at]
        while self._tokens[at].kind != "end":
            value = self._tokens[at].value if self._tokens[at].kind == "op" else None
            brackets += (value in ("{", "(", "[")) - (value in ("}", ")", "]"))
            if brackets == 0:
                break
            if brackets == 1 and self._depths[at] == outer and value in ("{", ",", ";"):
                if self._names(at + 1, field) and self._is_op(at + 2, "="):
                    return [at + 3]
                quoted = self._tokens[at + 2 : at + 3]
                if self._is_op(at + 1, "[") and quoted and quoted[0][:2] == ("string", field):
                    return [at + 5] if self._is_op(at + 4, "=") else []
            at += 1
        return []

    def _changed_later(self) -> bool:
        """Whether single fields of `meta` are set apart from its table."""
        for at, _ in enumerate(self._tokens[:-5]):
            field = self._names(at, self._variable, (".",), "meta", (".", "["))
            if field and (self._is_op(at + 3, "[") or self._is_op(at + 5, "=")):
                return True
        return False

    def _names(self, at: int, *wanted: str | tuple[str, ...] | None) -> bool:
        """Whether the tokens from here on are these names, or one of these operators where a tuple stands."""
        for offset, want in enumerate(wanted):
            token = self._tokens[min(at + offset, len(self._tokens) - 1)]
            if isinstance(want, tuple):
                if token.kind != "op" or token.value not in want:
                    return False
            elif token.kind != "name" or token.value != want:
                return False
        return True

    def _is_op(self, at: int, value: str | None = None) -> bool:
        token = self._tokens[max(0, min(at, len(self._tokens) - 1))]
        return token.kind == "op" and (value is None or token.value == value)

    def _literal(self, at: int, depth: int) -> tuple[Any, int]:
        """The literal that begins here and the place after it; `_NOT_LITERAL` for anything else."""
        token = self._tokens[min(at, len(self._tokens) - 1)]
        if token.kind == "op" and token.value == "{":
            return self._table_literal(at, depth) if depth < _MAX_DEPTH else (_NOT_LITERAL, at)
        if token.kind == "op" and token.value == "-":
            number = self._tokens[at + 1]
            return (-number.value if number.kind == "number" else _NOT_LITERAL), at + 2
        if token.kind == "name" and token.value in _WORDS:
            return _WORDS[token.value], at + 1
        if token.kind == "number":
            return token.value, at + 1
        if token.kind != "string":
            return _NOT_LITERAL, at
        parts, at = [token.value], at + 1
        while self._is_op(at, "..") and self._tokens[at + 1].kind == "string":
            parts.append(self._tokens[at + 1].value)
            at += 2
        return "".join(parts), at

    def _table_literal(self, at: int, depth: int) -> tuple[Any, int]:
        items: list[Any] = []
        fields: dict[str, Any] = {}
        at += 1
        while not self._is_op(at, "}"):
            key = None
            if self._tokens[at].kind == "name" and self._is_op(at + 1, "="):
                key, at = self._tokens[at].value, at + 2
            elif self._is_op(at, "[") and self._is_op(at + 2, "]") and self._is_op(at + 3, "="):
                if self._tokens[at + 1].kind not in ("string", "number"):
                    return _NOT_LITERAL, at
                key, at = str(self._tokens[at + 1].value), at + 4
            value, at = self._literal(at, depth + 1)
            closed = self._is_op(at) and self._tokens[at].value in (",", ";", "}")
            if value is _NOT_LITERAL or not closed:
                return _NOT_LITERAL, at
            if key is None:
                items.append(value)
            elif value is not None:
                fields[key] = value
            if not self._is_op(at, "}"):
                at += 1
        if items and not fields:
            return items, at + 1
        return {**{str(number): item for number, item in enumerate(items, 1)}, **fields}, at + 1


_NOT_LITERAL = object()
_WORDS = {"true": True, "false": False, "nil": None}
