"""Changes one entry of a user's configuration file, and nothing else in it: JSON, with or without comments, and TOML.

The text is changed in place. The result is parsed and compared with what was intended before it is written, so a file
in an unexpected style is refused, and never damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError

Entry: TypeAlias = Mapping[str, Any]


class EditError(HoldfastError):
    """A file that cannot be changed without risk."""

    kind = "edit"


def merged(kept: Any, entry: Entry) -> dict[str, Any]:
    """The present value with an entry merged into it: its keys are set, in nested tables too, and all others stay."""
    found = dict(kept) if isinstance(kept, Mapping) else {}
    for key, value in entry.items():
        found[key] = merged(found.get(key), value) if isinstance(value, Mapping) else value
    return found


def _with(root: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    key, *rest = path
    return {**root, key: _with(root.get(key) or {}, rest, value) if rest else value}


def _at(root: Any, path: Sequence[str]) -> Any:
    for key in path:
        if root is None:
            return None
        if not isinstance(root, Mapping):
            raise EditError(f"'{key}' cannot be added to it: the value that should hold it is not a table")
        root = root.get(key)
    return root


@contextmanager
def _not_too_deep() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise EditError("it is nested too deeply") from None


# --- JSON ------------------------------------------------------------------------------------------


@dataclass
class _Node:
    """A value and its place in the text. An object has members: the place of each key, and its value."""

    start: int
    value: Any = None
    end: int = 0
    members: dict[str, tuple[int, _Node]] | None = None
    comma: int | None = None
    """Where the comma after the last member ends, if it has one."""
    last: str = ""


_DECODER = json.JSONDecoder(strict=False)


@dataclass
class _Reader:
    """JSON as editors read it: with comments, and commas after the last element."""

    text: str
    at: int = 0
    _gap: re.Pattern[str] = field(default=re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL))
    _plain: re.Pattern[str] = field(default=re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null"))

    def whole(self) -> _Node:
        node = self._value()
        self._skip()
        if self.at < len(self.text):
            raise self._unexpected()
        return node

    def _skip(self) -> str:
        found = self._gap.match(self.text, self.at)
        assert found is not None  # it matches nothing, too
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def _value(self) -> _Node:
        match self._skip():
            case "{":
                return self._object()
            case "[":
                return self._array()
            case '"':
                node = _Node(self.at)
                node.value = self._string()
            case _:
                node = _Node(self.at)
                found = self._plain.match(self.text, self.at)
                if found is None:
                    raise self._unexpected()
                try:
                    node.value = json.loads(found[0])
                except ValueError:  # more digits than Python reads
                    raise self._unexpected() from None
                self.at = found.end()
        node.end = self.at
        return node

    def _string(self) -> str:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except ValueError:
            raise self._unexpected() from None
        return str(value)

    def _object(self) -> _Node:
        node = _Node(self.at, {}, members={})
        assert node.members is not None
        self.at += 1
        while (sign := self._skip()) != "}":
            if sign != '"':
                raise self._unexpected()
            start = self.at
            key = self._string()
            if self._skip() != ":":
                raise self._unexpected()
            self.at += 1
            value = self._value()
            node.members[key] = (start, value)
            node.value[key] = value.value
            node.last, node.comma = key, self._comma("}")
        self.at += 1
        node.end = self.at
        return node

    def _array(self) -> _Node:
        node = _Node(self.at, [])
        self.at += 1
        while self._skip() != "]":
            node.value.append(self._value().value)
            self._comma("]")
        self.at += 1
        node.end = self.at
        return node

    def _comma(self, closing: str) -> int | None:
        sign = self._skip()
        if sign == ",":
            self.at += 1
            return self.at
        if sign != closing:
            raise self._unexpected()
        return None

    def _unexpected(self) -> EditError:
        line = self.text.count("\n", 0, self.at) + 1
        shown = repr(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "end of file"
        return EditError(f"it is not valid JSON: unexpected {shown} in line {line}")


def read_json(text: str) -> Any:
    """The value of a JSON file that may have comments."""
    return _Reader(text).whole().value if text.strip("\ufeff \t\r\n") else {}


def set_json(text: str, path: Sequence[str], entry: Entry) -> str:
    """The text with an entry at a path of keys. An existing entry keeps what the new one does not set."""
    with _not_too_deep():
        return _set_json(text, path, entry)


def _set_json(text: str, path: Sequence[str], entry: Entry) -> str:
    if not text.strip("\ufeff \t\r\n"):
        text = "{}\n"
    before = read_json(text)
    if not isinstance(before, Mapping):
        raise EditError("what it holds is not an object")
    wanted = merged(_at(before, path), entry)
    expected = _with(before, path, wanted)
    if expected == before:
        return text
    changed = _splice(text, path, wanted)
    if read_json(changed) != expected:
        raise EditError("it is written in a way that cannot be edited safely")
    return changed


def _splice(text: str, path: Sequence[str], wanted: Any) -> str:
    node, start = _Reader(text).whole(), 0
    for depth, key in enumerate(path):
        assert node.members is not None  # `_at` has checked it
        if key not in node.members or node.members[key][1].members is None:
            value = wanted
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return _put(text, node, key, value)
        start, node = node.members[key]
    return text[: node.start] + _written(text, wanted, _indent_at(text, start) or "") + text[node.end :]


def _put(text: str, node: _Node, key: str, value: Any) -> str:
    """Put a member into an object: in place of one with the same key, otherwise after the last."""
    assert node.members is not None
    if key in node.members:
        start, old = node.members[key]
        return text[: old.start] + _written(text, value, _indent_at(text, start) or "") + text[old.end :]
    newline = "\r\n" if "\r\n" in text else "\n"
    name = json.dumps(key, ensure_ascii=False)
    if not node.members:
        outer = _indent_of_line(text, node.start)
        inner = outer + _unit(text)
        rest = text[node.start + 1 :]
        closing = newline + outer if re.match(r"[ \t]*\}", rest) else ""
        member = f"{newline}{inner}{name}: {_written(text, value, inner)}"
        return f"{text[: node.start + 1]}{member}{closing}{rest.lstrip(' ') if closing else rest}"
    last_start, last = node.members[node.last]
    indent = _indent_at(text, last_start)
    if indent is None:
        member = f"{name}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[: last.end]}, {member}{text[node.comma or last.end :]}"
    comma = "" if node.comma else ","
    place = node.comma or last.end
    remark = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/)").match(text, place)  # it belongs to the last member
    end = remark.end() if remark else place
    member = f"{newline}{indent}{name}: {_written(text, value, indent)}"
    return f"{text[: last.end]}{comma}{text[last.end : end]}{member}{text[end:]}"


def _written(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return ("\r\n" if "\r\n" in text else "\n").join([lines[0], *(indent + line for line in lines[1:])])


def _unit(text: str) -> str:
    """What the file indents with."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def _indent_at(text: str, start: int) -> str | None:
    """The text before this place in its line, if that is only indentation."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return before if "\n" in text[:start] and not before.strip(" \t") else None


def _indent_of_line(text: str, start: int) -> str:
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- TOML ------------------------------------------------------------------------------------------

_HEADER = re.compile(r"^[ \t]*(?:\[[^\[\]\n]+\]|\[\[[^\[\]\n]+\]\])[ \t]*(?:#[^\n]*)?$", re.MULTILINE)


def set_toml(text: str, path: Sequence[str], entry: Entry) -> str:
    """The text with a table at a path of keys. An existing table keeps what the new one does not set."""
    with _not_too_deep():
        return _set_toml(text, path, entry)


def _set_toml(text: str, path: Sequence[str], entry: Entry) -> str:
    before = _read_toml(text)
    wanted = merged(_at(before, path), entry)
    expected = _with(before, path, wanted)
    if expected == before:
        return text
    changed = _with_table(text, path, wanted)
    try:
        is_right = tomllib.loads(changed) == expected
    except ValueError:
        is_right = False
    if not is_right:
        raise EditError("it is written in a way that cannot be edited safely")
    return changed


def _read_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number of more digits than Python reads
        raise EditError(f"it is not valid TOML: {error}") from None


def _with_table(text: str, path: Sequence[str], wanted: Mapping[str, Any]) -> str:
    own = {key: value for key, value in wanted.items() if _table(text, [*path, key]) is None}
    written = f"[{'.'.join(_key(key) for key in path)}]\n" + "".join(
        f"{_key(k)} = {_toml(v)}\n" for k, v in own.items()
    )
    found = _table(text, path)
    if found is None:
        text = f"{text.rstrip()}\n\n{written}" if text.strip() else written
    else:
        text = text[: found[0]] + written + text[found[1] :]
    for key, value in wanted.items():
        if key not in own:
            text = _with_table(text, [*path, key], value)
    return text


def _table(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """The place of a table, without the blank lines and comments at its end: they belong to the next one."""
    header = re.compile(
        r"^[ \t]*\[[ \t]*"
        + r"[ \t]*\.[ \t]*".join(rf"""(?:{re.escape(key)}|"{re.escape(key)}"|'{re.escape(key)}')""" for key in path)
        + r"[ \t]*\][ \t]*(?:#[^\n]*)?$",
        re.MULTILINE,
    ).search(text)
    if header is None:
        return None
    following = _HEADER.search(text, header.end())
    lines = text[header.start() : following.start() if following else len(text)].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return header.start(), header.start() + sum(map(len, lines))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case dict():
            return (
                f"{{ {', '.join(f'{_key(key)} = {_toml(item)}' for key, item in value.items())} }}" if value else "{}"
            )
        case _:  # numbers, dates and times, which Python writes as TOML does
            return str(value)
