"""What is made of a server's listing: the tools that can be offered, and why the others cannot. No I/O.

Schemas are looked at and passed on, and nothing in them is followed: neither references nor patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from holdfast.agent.mcp.limits import DESCRIPTION_CHARS, MAX_TOOLS, SCHEMA_BYTES, SCHEMA_DEPTH
from holdfast.agent.mcp.names import public_names
from holdfast.agent.tools.catalog import RESERVED
from holdfast.agent.tools.schema import Schema
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value, repaired
from holdfast.engine.drivers import Recovery

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

NAMED = 10
"""Tools that a warning names, of those that it is about."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool of a server that can be offered."""

    own: str
    """What the server calls it."""
    description: str
    parameters: Schema
    recovery: Recovery


class ToolFilter(msgspec.Struct, frozen=True):
    """Which tools of a server are wanted, by the names that the server has for them, or patterns such as `get_*`."""

    allow: Sequence[str] | None = None
    """None: all."""
    deny: Sequence[str] = ()
    """These are left out even if they are allowed."""

    def has(self, name: str) -> bool:
        is_allowed = self.allow is None or any(fnmatchcase(name, each) for each in self.allow)
        return is_allowed and not any(fnmatchcase(name, each) for each in self.deny)


class McpCatalog(msgspec.Struct, frozen=True):
    """The tools that are offered by the names they have here, and a sentence on each kind of those that are not."""

    tools: dict[str, OfferedTool]
    warnings: list[str]


class McpCatalogBuilder:
    """Takes up the tools of a listing, page by page."""

    def __init__(self, choice: ToolFilter) -> None:
        self.pages = 0
        self.size = 0
        """Bytes of all schemas so far."""
        self._choice = choice
        self._offered: dict[str, OfferedTool] = {}
        self._refused: dict[str, list[str]] = {}

    def take(self, page: Iterable[Listed]) -> None:
        self.pages += 1
        for tool in page:
            if not self._choice.has(tool.name):
                continue
            schema = {"type": "object", **tool.input_schema}
            why = self._problem(schema)
            if why is not None:
                self._refuse(f"are not offered: {why}", tool.name)
                continue
            offered = OfferedTool(tool.name, _description(tool), schema, _recovery(tool))
            if tool.name in self._offered:
                self._refuse("are there more than once, and one of each is offered", tool.name)
                offered = min(offered, self._offered[tool.name], key=msgspec.json.encode)  # whichever comes first
            self._offered[tool.name] = offered

    def done(self, prefix: str) -> McpCatalog:
        names = public_names(self._offered, prefix, RESERVED)
        by_name = dict(sorted((names[own], offered) for own, offered in self._offered.items()))
        for name in list(by_name)[MAX_TOOLS:]:
            why = f"are not offered: there are more than {MAX_TOOLS}; choose among them with allow= and deny="
            self._refuse(why, by_name.pop(name).own)
        warnings = [f"{len(which)} tools {why}: {_some(which)}" for why, which in self._refused.items()]
        return McpCatalog(by_name, warnings)

    def _refuse(self, why: str, name: str) -> None:
        self._refused.setdefault(why, []).append(name[:100])

    def _problem(self, schema: Schema) -> str | None:
        if _is_deeper(schema, SCHEMA_DEPTH):
            return f"their schemas have more than {SCHEMA_DEPTH} levels"
        try:
            check_value(schema, "schema")
        except InvalidValueError as error:
            return f"their schemas cannot be kept ({error.why})"
        size = len(msgspec.json.encode(schema))
        self.size += size
        if size > SCHEMA_BYTES:
            return f"their schemas have more than {SCHEMA_BYTES // 1024} KiB"
        if not _is_sound(schema):
            return "their schemas do not describe arguments by name"
        return None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(repr(name) for name in names[:NAMED]) + more


def _description(tool: Listed) -> str:
    text = repaired(tool.description or tool.title or "").strip()
    if len(text) <= DESCRIPTION_CHARS:
        return text
    return f"{text[:DESCRIPTION_CHARS].rstrip()} [… {len(text) - DESCRIPTION_CHARS} more characters]"


def _recovery(tool: Listed) -> Recovery:
    """What to do about a call of which nobody knows what came: as the server says, and otherwise never again."""
    said = tool.annotations
    if said is not None and said.read_only_hint:
        return "safe"
    return "idempotent" if said is not None and said.idempotent_hint else "never"


def _is_deeper(value: Json, levels: int) -> bool:
    layer: list[Json] = [value]
    for _ in range(levels + 1):
        layer = [
            inner
            for each in layer
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return any(isinstance(each, (dict, list)) for each in layer)


def _is_sound(schema: Schema) -> bool:
    """Whether arguments can be checked by it: the parts that are looked at then are what they have to be."""
    if schema["type"] != "object":
        return False
    rest: list[Json] = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, bool):
            continue  # `true` and `false` are schemas too
        if not isinstance(each, dict):
            return False
        types, properties = each.get("type", ""), each.get("properties", {})
        is_sound = isinstance(types, str) or _is_texts(types)
        is_sound = is_sound and isinstance(properties, dict) and _is_texts(each.get("required", []))
        if not is_sound or not isinstance(each.get("enum", []), list):
            return False
        rest += properties.values()
        if isinstance(each.get("items"), dict):
            rest.append(each["items"])
    return True


def _is_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
