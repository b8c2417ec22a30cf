"""The tools of a server that can be offered, and why the others cannot. No I/O.

Schemas are checked and passed on; nothing in them is followed, neither references nor patterns.
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
"""Tools that one warning names."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool of a server that can be offered."""

    own: str
    """The server's own name for it."""
    description: str
    parameters: Schema
    recovery: Recovery


class ToolFilter(msgspec.Struct, frozen=True):
    """Which tools of a server to offer, by the server's own names or patterns such as `get_*`."""

    allow: Sequence[str] | None = None
    """None for all."""
    deny: Sequence[str] = ()
    """Left out even if they are allowed."""

    def has(self, name: str) -> bool:
        is_allowed = self.allow is None or any(fnmatchcase(name, each) for each in self.allow)
        return is_allowed and not any(fnmatchcase(name, each) for each in self.deny)


class McpCatalog(msgspec.Struct, frozen=True):
    """The offered tools by their names here, and a warning for each reason why others are not offered."""

    tools: dict[str, OfferedTool]
    warnings: list[str]


class McpCatalogBuilder:
    """Collects the tools of a server, page by page."""

    def __init__(self, filter: ToolFilter) -> None:
        self.pages = 0
        self.size = 0
        """Bytes of all schemas so far."""
        self._filter = filter
        self._offered: dict[str, OfferedTool] = {}
        self._refused: dict[str, list[str]] = {}

    def take(self, page: Iterable[Listed]) -> None:
        self.pages += 1
        for tool in page:
            if not self._filter.has(tool.name):
                continue
            schema = {"type": "object", **tool.input_schema}
            why = self._problem(schema)
            if why is not None:
                self._refuse(f"are not offered: {why}", tool.name)
                continue
            offered = OfferedTool(tool.name, _description(tool), schema, _recovery(tool))
            if tool.name in self._offered:
                self._refuse("are listed more than once, and one of each is offered", tool.name)
                offered = min(offered, self._offered[tool.name], key=msgspec.json.encode)  # in any order
            self._offered[tool.name] = offered

    def refuse_malformed(self, names: Iterable[str]) -> None:
        """Note tools that violate the protocol."""
        for name in names:
            if self._filter.has(name):
                self._refuse("are not offered: they violate the protocol", name)

    def build(self, prefix: str) -> McpCatalog:
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
            return f"their schemas cannot be stored ({error.why})"
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
    """What to do about a call with an unknown outcome: by default never repeat it, unless a hint allows it."""
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "safe"
    return "idempotent" if hints is not None and hints.idempotent_hint else "never"


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
    """Whether arguments can be checked against it: the keywords used for that have the right types."""
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
