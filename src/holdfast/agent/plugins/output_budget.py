"""The plugin `OutputBudget`: the model sees the beginning and end of a tool's long output, and can read the rest.

The whole output is part of the answer to the tool's call, and so of the session's journal; a store keeps large values
once, compressed, beside the record. The model reads an output by the id of the query that the call answered. That id
is only valid in this session's journal, so no model can read the output of another session; and it stays valid after a
restart, in another process, in a fork, and after a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Self

import msgspec

from holdfast.agent.machine.delegation import READ_TOOL
from holdfast.agent.machine.excerpt import SHOWN_BYTES, SHOWN_LINES, OutputLimits, shortened
from holdfast.agent.plugins.plugin import Plugin, PluginCall
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.context import Finish, SwitchFrame, ToolError
from holdfast.agent.tools.function import FunctionTool
from holdfast.agent.tools.results import ToolFailure, ToolResult, ToolValue
from holdfast.agent.tools.tool import Tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json

KEPT_BYTES = 16 * 1024 * 1024
"""UTF-8 bytes of one output that are kept: half of the largest journal value. Of a longer one, beginning and end."""

MATCHES = 50
"""Lines that one search returns: a screen or two."""

LINE_CHARS = 300
"""Characters shown of a line that was found."""


_UNCUT = OutputLimits(max_bytes=2 * SHOWN_BYTES, max_lines=2 * SHOWN_LINES)
"""For pieces that the model reads: they are within the limits already, and a header line comes before them."""


class _Config(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much the model sees at most; None for what each tool allows."""

    max_bytes: Annotated[int, msgspec.Meta(ge=100)] | None = None
    max_lines: Annotated[int, msgspec.Meta(ge=3)] | None = None


class OutputBudget(Plugin):
    """Limits how much of each tool result a model sees, and lets it read the rest in pieces, or search it.

    A tool's own `OutputLimits` apply as well, where they are lower. A configuration given with
    `.plugin(OutputBudget(), {…})` replaces the arguments here; either way it is recorded with the session.
    """

    id = "output_budget"
    config: dict[str, Json]

    def __init__(self, *, max_bytes: int | None = None, max_lines: int | None = None) -> None:
        limits = {"max_bytes": max_bytes, "max_lines": max_lines}
        self.config = {name: value for name, value in limits.items() if value is not None}
        self._limits = _limits(self.config)

    def configured(self, config: Json) -> Self:
        made = super().configured(self.config if config is None else config)
        made._limits = _limits(made.config)
        return made

    def tools(self) -> Sequence[Toolish]:
        return [_reader().calling(self.read_output)]

    def after_tool(self, call: PluginCall, result: ToolResult) -> ToolResult | None:
        """Shorten a result that is too long. What the model reads of it later is not shortened again."""
        if call.tool == READ_TOOL:
            return None
        limit = self._limit(call.output)
        match result:
            case ToolValue(value=Finish() | SwitchFrame()) | ToolFailure(partial=""):
                return None
            case ToolValue(value=value, full=msgspec.UNSET):
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                if shortened(text, limit) is text:
                    return None
                shown = shortened(_text(value), limit, _hint(call))
                return ToolValue(shown, value if len(text.encode()) <= KEPT_BYTES else _kept(text))
            case ToolFailure(partial=partial, full=msgspec.UNSET):
                shown = shortened(partial, limit, _hint(call))
                if shown is partial:
                    return None
                return msgspec.structs.replace(result, partial=shown, full=_kept(partial))
            case _:
                return None  # another plugin has made an excerpt already

    async def read_output(
        self,
        id: str,
        *,
        from_line: int | None = None,
        lines: int | None = None,
        offset: int | None = None,
        length: int | None = None,
        search: str | None = None,
    ) -> str:
        """Read more of a tool output that was shortened.

        Args:
            id: The id given where the output was shortened.
            from_line: The first line to read, counted from 1.
            lines: How many lines to read.
            offset: Read from this character instead, counted from 0.
            length: How many characters to read.
            search: Instead of reading, list the lines that contain this text (ignoring case), with their numbers.
        """
        output = await self.session.services.output(id)
        if output is None:
            raise ToolError(f"there is no shortened output with the id '{id[:40]}'", code="not_found")
        whole = _Whole(_text(output), self._limit(OutputLimits()))
        if search is not None:
            return whole.search(search, from_line or 1)
        if offset is not None:
            return whole.piece(offset, None if length is None else offset + length)
        start, end = whole.lines(from_line or 1, lines)
        return whole.piece(start, end if length is None else min(end, start + length))

    def _limit(self, allowed: OutputLimits) -> OutputLimits:
        own = self._limits
        return OutputLimits(
            max_bytes=min(allowed.max_bytes, own.max_bytes or allowed.max_bytes),
            max_lines=min(allowed.max_lines, own.max_lines or allowed.max_lines),
        )


class _Whole:
    """A whole output, and how much of it is shown at once."""

    def __init__(self, text: str, limit: OutputLimits) -> None:
        self.text = text
        self._limit = limit
        self._count = text.count("\n") + 1

    def lines(self, first: int, count: int | None) -> tuple[int, int]:
        """The range of characters of some lines."""
        start = _line_start(self.text, max(first, 1))
        count = min(count if count is not None else self._limit.max_lines, self._limit.max_lines)
        return start, start + _line_start(self.text[start:], max(count, 1) + 1)

    def piece(self, start: int, end: int | None) -> str:
        """A range of characters, as many as may be shown, with a header that says how to continue."""
        start = min(max(start, 0), len(self.text))
        part = self.text[start : len(self.text) if end is None else max(end, start)]
        part = part.encode()[: self._limit.max_bytes].decode(errors="ignore")
        part = part[: _line_start(part, self._limit.max_lines + 1)]
        if not part:
            return f"[nothing at character {start}: the output has {len(self.text)} characters, {self._count} lines]"
        end = start + len(part)
        first = self.text.count("\n", 0, start) + 1
        last = first + part.count("\n", 0, len(part) - 1)
        header = f"characters {start} to {end} of {len(self.text)}, lines {first} to {last} of {self._count}"
        following = f"continue with offset={end}" if end < len(self.text) else "this is the end"
        return f"[{header}; {following}]\n{part}"

    def search(self, wanted: str, first: int) -> str:
        """The lines that contain a text, from line `first` on."""
        folded = wanted.lower()
        found: list[str] = []
        left = self._limit.max_bytes
        for number, line in enumerate(self.text.split("\n"), 1):
            if number < first or (at := line.lower().find(folded)) < 0:
                continue
            shown = f"{number}: {_around(line, at)}"
            left -= len(shown.encode()) + 1
            if found and (len(found) == MATCHES or left < 0):
                return "\n".join([*found, f"[there are more: search again with from_line={number}]"])
            found.append(shown)
        return "\n".join(found) if found else f"[no match from line {first} on; the output has {self._count} lines]"


@cache
def _reader() -> FunctionTool[..., Any]:
    """The tool for all sessions; its schema is computed once."""
    return Tool.of(OutputBudget().read_output, recovery="safe", output=_UNCUT)


def _limits(config: object) -> _Config:
    try:
        return msgspec.convert(config, _Config)
    except msgspec.ValidationError as error:
        raise InvalidValueError("configuration of plugin 'output_budget'", str(error)) from None


def _hint(call: PluginCall) -> str:
    return f"read them with {READ_TOOL}, id '{call.query}'"


def _text(value: Any) -> str:
    """An output as text: text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def _kept(text: str) -> str:
    return shortened(text, OutputLimits(max_bytes=KEPT_BYTES, max_lines=len(text) + 3), "too long to be kept")


def _line_start(text: str, number: int) -> int:
    """Where a line begins, counted from 1; the end of the text if it has fewer lines."""
    start = 0
    for _ in range(number - 1):
        start = text.find("\n", start) + 1
        if not start:
            return len(text)
    return start


def _around(line: str, at: int) -> str:
    start = max(0, at - LINE_CHARS // 3)
    cut = line[start : start + LINE_CHARS]
    return f"{'…' if start else ''}{cut}{'…' if start + LINE_CHARS < len(line) else ''}"
