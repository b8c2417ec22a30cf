"""The plugin `OutputBudget`: of a tool's long output the model is shown beginning and end, and it can read the rest.

The whole output is a part of the answer to the tool's call, and so of the session's journal; a store keeps what is
large there once, compressed, beside the record. What the model is given to read by is the id of the query that the
answer is to. It means something in this session's journal and nowhere else, so no model can read what is another
session's; and it means the same after a restart, in another process, in a fork, and when the conversation has been
summed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Self

import msgspec

from holdfast.agent.plugins.plugin import Plugin, PluginCall
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.context import Finish, SwitchFrame, ToolError
from holdfast.agent.tools.function import FunctionTool
from holdfast.agent.tools.output import SHOWN_BYTES, SHOWN_LINES, OutputLimits, shortened
from holdfast.agent.tools.results import ToolFailure, ToolResult, ToolValue
from holdfast.agent.tools.tool import Tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json

READ_TOOL = "read_output"

KEPT_BYTES = 16 * 1024 * 1024
"""UTF-8 bytes of one output that are kept: half of what one value of the journal can be. Of more, beginning and end."""

MATCHES = 50
"""Lines that one search finds: a screen or two."""

LINE_CHARS = 300
"""Characters of a line that was found which are shown."""


_UNCUT = OutputLimits(max_bytes=2 * SHOWN_BYTES, max_lines=2 * SHOWN_LINES)
"""Of what the model reads: a piece is no longer than it may be, and there is a line before it."""


class _Config(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much the model is shown at most; None is what each tool allows."""

    max_bytes: Annotated[int, msgspec.Meta(ge=100)] | None = None
    max_lines: Annotated[int, msgspec.Meta(ge=3)] | None = None


class OutputBudget(Plugin):
    """Shows a model at most so much of each result of a tool, and lets it read the rest in pieces, or search in it.

    A tool's own `OutputLimits` apply as well, where they are lower. A configuration given with
    `.plugin(OutputBudget(), {…})` replaces the arguments here; either way it is recorded with the session.
    """

    id = "output_budget"
    config: dict[str, Json]

    def __init__(self, *, max_bytes: int | None = None, max_lines: int | None = None) -> None:
        given = {"max_bytes": max_bytes, "max_lines": max_lines}
        self.config = {name: value for name, value in given.items() if value is not None}
        self._limits = _limits(self.config)

    def configured(self, config: Json) -> Self:
        made = super().configured(self.config if config is None else config)
        made._limits = _limits(made.config)
        return made

    def tools(self) -> Sequence[Toolish]:
        return [_reader().calling(self.read_output)]

    def after_tool(self, call: PluginCall, result: ToolResult) -> ToolResult | None:
        """Cut what is too long. What the model reads of such an output is as long as it asked for."""
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
                return None  # another plugin has made a part of it to be shown

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
        """Read more of a tool's output of which a part was left out.

        Args:
            id: As it stands where something was left out.
            from_line: The first line to read, counted from 1.
            lines: How many lines to read.
            offset: Read from this character on instead, counted from 0.
            length: How many characters to read.
            search: Do not read, but list the lines that have this text, in upper or lower case, with their numbers.
        """
        output = await self.session.services.output(id)
        if output is None:
            raise ToolError(f"there is no output '{id[:40]}' of which a part was left out", code="not_found")
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
    """An output, and how much of it is shown at once."""

    def __init__(self, text: str, limit: OutputLimits) -> None:
        self.text = text
        self._limit = limit
        self._count = text.count("\n") + 1

    def lines(self, first: int, count: int | None) -> tuple[int, int]:
        """The characters of some lines: where they begin, and where the next line does."""
        start = _line_start(self.text, max(first, 1))
        count = min(count if count is not None else self._limit.max_lines, self._limit.max_lines)
        return start, start + _line_start(self.text[start:], max(count, 1) + 1)

    def piece(self, start: int, end: int | None) -> str:
        """Some characters, as many as may be shown, and how to go on after them."""
        start = min(max(start, 0), len(self.text))
        part = self.text[start : len(self.text) if end is None else max(end, start)]
        part = part.encode()[: self._limit.max_bytes].decode(errors="ignore")
        part = part[: _line_start(part, self._limit.max_lines + 1)]
        if not part:
            return f"[there is nothing from character {start} on: the output has {len(self.text)}, {self._count} lines]"
        end = start + len(part)
        first = self.text.count("\n", 0, start) + 1
        last = first + part.count("\n", 0, len(part) - 1)
        told = f"characters {start} to {end} of {len(self.text)}, lines {first} to {last} of {self._count}"
        following = f"go on with offset={end}" if end < len(self.text) else "this is the end"
        return f"[{told}; {following}]\n{part}"

    def search(self, wanted: str, first: int) -> str:
        """The lines that have a text, from one on."""
        folded = wanted.lower()
        found: list[str] = []
        left = self._limit.max_bytes
        for number, line in enumerate(self.text.split("\n"), 1):
            if number < first or (at := line.lower().find(folded)) < 0:
                continue
            shown = f"{number}: {_around(line, at)}"
            left -= len(shown.encode()) + 1
            if found and (len(found) == MATCHES or left < 0):
                return "\n".join([*found, f"[there is more: search again with from_line={number}]"])
            found.append(shown)
        return "\n".join(found) if found else f"[nothing in its {self._count} lines from line {first} on has this text]"


@cache
def _reader() -> FunctionTool[..., Any]:
    """The tool of all sessions: what it takes is worked out once."""
    return Tool.of(OutputBudget().read_output, recovery="safe", output=_UNCUT)


def _limits(config: object) -> _Config:
    try:
        return msgspec.convert(config, _Config)
    except msgspec.ValidationError as error:
        raise InvalidValueError("configuration of plugin 'output_budget'", str(error)) from None


def _hint(call: PluginCall) -> str:
    return f"read them with {READ_TOOL}, id '{call.query}'"


def _text(value: Any) -> str:
    """An output as it is read: text as it is, anything else as JSON with a line for each part of it."""
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def _kept(text: str) -> str:
    return shortened(text, OutputLimits(max_bytes=KEPT_BYTES, max_lines=len(text) + 3), "they were too many to be kept")


def _line_start(text: str, number: int) -> int:
    """Where a line begins, counted from 1; the end of the text if it has not so many."""
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
