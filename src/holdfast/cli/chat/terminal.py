"""A chat on a terminal: text is drawn as Markdown while it arrives, and retracted text vanishes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, assert_never

import click
import msgspec

from holdfast.cli.chat.screen import (
    RESULT_CHARS,
    ChatSummary,
    answer_commands,
    compaction_line,
    folded,
    has_value,
    result_line,
    stop_line,
    usage_line,
)
from holdfast.cli.display.calls import call_to_approve
from holdfast.cli.display.live_block import LiveBlock, Renderer
from holdfast.cli.output import dim, one_line, plain, say

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.results import TurnResult
    from holdfast.cli.chat.markdown import MarkdownStream
    from holdfast.core.queries import Query

DRAW_S = 0.04
"""Seconds between two drawings: no eye can tell faster ones apart."""

CLOCK_S = 0.25
"""Seconds between two updates of the time that something has taken."""

PATIENCE_S = 0.5
"""Seconds of waiting after which the screen says so."""


class _Call(msgspec.Struct):
    """A tool call that is running or has ended."""

    name: str
    arguments: Any
    since: float
    output: str = ""
    result: str | None = None
    is_error: bool = False


class TerminalScreen:
    """Draws a chat on a terminal."""

    def __init__(self, *, echoes: bool) -> None:
        """`echoes`: inputs are shown, as nobody types them here."""
        self._echoes = echoes
        self._renderer = Renderer()
        self._block = LiveBlock()
        self._stream: MarkdownStream | None = None
        self._calls: dict[str, _Call] = {}
        self._left: dict[str, _Call] = {}
        """Running calls further up, where they can no longer be redrawn."""
        self._waiting = ""
        self._since = 0.0
        self._drawn_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._has_spoken = False
        self._retraction = ""
        """What the next retry says about text that was retracted."""

    def opened(self, chat: ChatSummary) -> None:
        tools = f" · {len(chat.tools)} tool{'s' if len(chat.tools) > 1 else ''}" if chat.tools else ""
        say(f"{click.style('Session', bold=True)} {chat.session_id}  {dim(f'{chat.extent} · {chat.model}{tools}')}")
        say(dim('/help lists commands · Ctrl-C stops a turn · Ctrl-D leaves · """ for several lines'))

    def input(self, turn: str, text: str) -> None:
        self._has_spoken = False
        self._left.clear()
        if self._echoes:
            self._keep(_styled(("> ", "bold"), (plain(text), "")))
        self._wait_for("")

    def note(self, text: str) -> None:
        self._settle()
        say(text)

    async def event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        match event:
            case live.ModelStartedEvent(model=model):
                self._settle()
                self._wait_for(model)
            case live.CompactionStartedEvent():
                self._settle()
                self._wait_for("summarising the conversation")
            case live.CompactionFinishedEvent(summary=summary, error=error):
                self._settle()
                self._keep(_styled((compaction_line(summary, error), "yellow" if error else "dim")))
            case live.TextDeltaEvent(text=text):
                self._say(text, is_thought=False)
            case live.ReasoningDeltaEvent(text=text):
                self._say(text, is_thought=True)
            case live.RetractedEvent():
                self._retract()
            case live.RetryEvent(why=why, delay_s=delay):
                self._settle()
                soon = f"in {delay:.1f} s" if delay >= 0.05 else "now"
                notice = f"↻ {one_line(why, RESULT_CHARS)}; {self._retraction}retrying {soon}"
                self._retraction = ""
                self._keep(_styled((notice, "yellow")))
                self._wait_for("retrying")
            case live.ToolStartedEvent(call=call, name=name, arguments=arguments):
                self._begin_calls()
                self._calls[call] = _Call(name, arguments, time.monotonic())
                self._draw()
            case live.ToolOutputEvent(call=call, text=text):
                if call in self._calls:
                    self._calls[call].output = text.strip().rpartition("\n")[2]
                    self._draw_soon()
            case live.ToolFinishedEvent(call=call, result=result, is_error=is_error):
                if call in self._calls:
                    self._calls[call].result = result_line(result, is_error)
                    self._calls[call].is_error = is_error
                    self._draw()
                elif (left := self._left.pop(call, None)) is not None:
                    self.called(left.name, left.arguments, result, is_error)
            case live.CellFinishedEvent(told=told):
                self._settle()
                self._keep(_styled((folded(told), "red" if "[ERROR]" in told else "dim")))
            case live.CellStartedEvent(cell=cell):
                self._settle()
                self._wait_for(f"cell {cell}")
            case live.PluginFailedEvent(plugin=plugin, hook=hook, error=error):
                self._settle()
                notice = f"⚠ plugin '{plugin}' failed in '{hook}': {one_line(error, RESULT_CHARS)}"
                self._keep(_styled((notice, "yellow")))
            case live.CellPrintedEvent() | live.WaitingEvent() | live.UsageEvent() | live.TurnFinishedEvent():
                pass
            case _:
                assert_never(event)

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        self._settle()
        done = _Call(name, arguments, 0, result=result_line(result, is_error), is_error=is_error)
        self._block.show(["", *self._call_lines(done)])
        self._block.keep()

    def waits(self, session_id: str, queries: list[Query]) -> None:
        from holdfast.cli.display.timeline import query_line

        self._settle()
        say()
        for query in queries:
            what = "approval" if call_to_approve(query) is not None else "an answer"
            for line in self._renderer.lines(
                _styled((f"⏸ waits for {what}: ", "yellow"), (query_line(query, 300), ""))
            ):
                say(line)
            for command in answer_commands(session_id, query):
                say(f"    {command}")
        say(dim("  The turn continues once this is answered, from any terminal. Ctrl-C stops it."))

    def pause(self) -> None:
        self._settle()
        say()

    def ended(self, result: TurnResult, hint: str) -> None:
        if not self._has_spoken and result.text:
            self._stream = None
            self._say(result.text, is_thought=False)
        self._settle()
        if why := stop_line(result, hint, has_spoken=self._has_spoken):
            is_stopped = result.stopped is not None and result.stopped.reason == "cancelled"
            self._keep(_styled((why, "yellow" if is_stopped else "red")))
        elif has_value(result):
            say()
            is_text = isinstance(result.value, str)
            for line in plain(result.value).split("\n") if is_text else [one_line(result.value, RESULT_CHARS)]:
                say(line)
        say()
        say(dim(usage_line(result)))

    async def clock(self) -> None:
        try:
            while True:
                await asyncio.sleep(CLOCK_S)
                if self._waiting or any(call.result is None for call in self._calls.values()):
                    self._draw()
        finally:
            self._settle()

    # --- drawing -----------------------------------------------------------------------------------

    def _say(self, text: str, *, is_thought: bool) -> None:
        from holdfast.cli.chat.markdown import MarkdownStream

        if self._stream is None:
            self._settle()
            self._stream = MarkdownStream(self._renderer)
        self._waiting = ""
        self._has_spoken = self._has_spoken or not is_thought
        self._stream.add(text, is_thought=is_thought)
        self._draw_soon()

    def _retract(self) -> None:
        is_all = self._block.show([])
        self._stream = None
        self._settle()
        self._has_spoken = False
        self._retraction = f"its unfinished answer{'' if is_all else ', also further up,'} is retracted; "

    def _begin_calls(self) -> None:
        if not self._calls:
            self._settle()

    def _wait_for(self, what: str) -> None:
        self._waiting, self._since = what or "working", time.monotonic()

    def _keep(self, text: Text) -> None:
        """Print a paragraph that stays."""
        self._block.show(["", *self._renderer.lines(text)])
        self._block.keep()

    def _settle(self) -> None:
        """Leave what is shown as it is; whatever comes next goes below."""
        self._waiting = ""
        self._draw()
        self._block.keep()
        self._left.update((call, each) for call, each in self._calls.items() if each.result is None)
        self._stream, self._calls = None, {}

    def _draw_soon(self) -> None:
        """Draw, but not more often than is useful."""
        left = self._drawn_at + DRAW_S - time.monotonic()
        if left <= 0:
            self._draw()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(left, self._draw)

    def _draw(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._drawn_at = time.monotonic()
        lines = self._stream.lines() if self._stream is not None else []
        if self._calls:
            lines = ["", *(line for call in self._calls.values() for line in self._call_lines(call))]
        waited = time.monotonic() - self._since
        if self._waiting and waited >= PATIENCE_S:
            waiting = _styled((f"⋯ {plain(self._waiting)} · {waited:.0f} s", "dim"))
            lines = [*lines, "", *self._renderer.lines(waiting, is_cut=True)]
        self._block.show(lines)

    def _call_lines(self, call: _Call) -> list[str]:
        arguments = f" {one_line(call.arguments, RESULT_CHARS)}" if call.arguments else ""
        head = _styled(("⚙ ", "cyan"), (plain(call.name), "bold cyan"), (arguments, "dim"))
        if call.result is not None:
            mark, style = ("✗", "red") if call.is_error else ("→", "")
            below = _styled((f"{mark} {call.result}", style))
        else:
            took = time.monotonic() - call.since
            output = f" {one_line(call.output, RESULT_CHARS)}" if call.output else ""
            below = _styled((f"⋯{f' {took:.0f} s' if took >= 1 else ''}{output}", "dim"))
        return [*self._renderer.lines(head, is_cut=True), *self._renderer.lines(below, indent=2, is_cut=True)]


def _styled(*parts: tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)
