"""How a chat is shown: the contract of a screen, and screens for pipes and for JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from holdfast.cli.display.calls import approval_commands, call_to_approve
from holdfast.cli.output import duration, one_line, plain, print_json

if TYPE_CHECKING:
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.results import TurnResult
    from holdfast.core.queries import Query

RESULT_CHARS = 1_000
"""Characters kept of a tool's result; of these, as many are shown as fit on a line."""


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as it is shown when it is opened."""

    session_id: str
    model: str
    """With its service."""
    tools: list[str]
    is_new: bool
    messages: int

    @property
    def extent(self) -> str:
        """How long the chat is."""
        return "new" if self.is_new else f"{self.messages} message{'' if self.messages == 1 else 's'}"


class Screen(Protocol):
    """Where a chat is shown."""

    def opened(self, chat: ChatSummary) -> None:
        """A chat begins or continues."""
        ...

    def input(self, turn: str, text: str) -> None:
        """A turn begins with this input."""
        ...

    async def event(self, event: LiveEvent) -> None:
        """Something happens in a turn."""
        ...

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        """A tool call has a result that no event announced, for example because it was answered from outside."""
        ...

    def waits(self, session_id: str, queries: list[Query]) -> None:
        """The turn waits for somebody outside."""
        ...

    def pause(self) -> None:
        """The person is asked something below: leave what is shown as it is until the next event."""
        ...

    def ended(self, result: TurnResult, hint: str) -> None:
        """A turn has ended; `hint` says what to do if it failed."""
        ...

    def note(self, text: str) -> None:
        """Show a remark."""
        ...

    async def clock(self) -> None:
        """Update what depends on time while a turn runs, until this is cancelled."""
        ...


def usage_line(result: TurnResult) -> str:
    """What a turn used: tokens, cost if it is known, time."""
    used = result.usage
    facts = []
    if used.total:
        cached = f" ({used.cache_read:,} cached)" if used.cache_read else ""
        thought = f" ({used.reasoning:,} reasoning)" if used.reasoning else ""
        facts += [f"{used.total - used.output:,} tokens in{cached}", f"{used.output:,} out{thought}"]
    if used.cost:
        facts.append(f"cost {used.cost:.4g}")
    if used.calls > 1:
        facts.append(f"{used.calls} calls")
    return " · ".join([*facts, duration(result.duration_ms)])


def stop_line(result: TurnResult, hint: str, *, has_spoken: bool) -> str:
    """Why a turn has no answer; `has_spoken`: some text was shown."""
    stopped = result.stopped
    if stopped is None:
        return ""
    if stopped.reason == "cancelled":
        return "Stopped. Your message is kept" + ("; the unfinished answer is not." if has_spoken else ".")
    detail = plain(stopped.detail) or "no reason given"
    return f"No answer ({stopped.reason}): {detail}" + (f". What to do: {hint}." if hint else "")


def answer_commands(session_id: str, query: Query) -> list[str]:
    """The commands that answer a query from outside."""
    if call_to_approve(query) is not None:
        return approval_commands(session_id, query.id)
    base = f"holdfast answer {session_id} --query {query.id}"
    return [f"{base} TEXT", f"{base} --fail WHY"]


def result_line(result: Any, is_error: bool) -> str:
    """The result of a tool on one line; of an error, its message."""
    if is_error and isinstance(result, dict) and isinstance(result.get("error"), str):
        result = result["error"]
    return one_line(result, RESULT_CHARS) or "(nothing)"


def compaction_line(summary: str, error: str) -> str:
    """The result of a compaction, on one line."""
    return f"✗ not summarised: {one_line(error, 400)}" if error else f"≡ summarised: {one_line(summary, 400)}"


FOLDED_LINES = 12
"""Lines of what a cell came to that a screen shows; `holdfast show --cells` has all."""


def folded(told: str) -> str:
    """What a cell came to, in a few lines."""
    lines = plain(told).strip().split("\n")
    more = len(lines) - FOLDED_LINES
    shown = lines if more <= 1 else [*lines[: FOLDED_LINES - 2], f"… {more + 2} more lines …", *lines[-2:]]
    return "\n".join(f"  │ {one_line(line, 200)}" for line in shown)


def has_value(result: TurnResult) -> bool:
    """Whether a turn has a value to show; a summary is shown already."""
    from holdfast.agent.machine.program import COMPACT
    from holdfast.agent.machine.turn import CommandOutcome

    is_summary = isinstance(result.outcome, CommandOutcome) and result.outcome.command == COMPACT
    return result.value is not None and not is_summary


# --- pipes -------------------------------------------------------------------------------------------


class _PlainScreen:
    """Prints what the model says to standard output as it arrives, and everything else to standard error."""

    def __init__(self) -> None:
        self._is_mid_line = False
        """Whether the last line is not ended yet."""
        self._has_spoken = False
        self._can_retract = False
        """Whether this attempt has printed text that may have to be retracted."""

    def opened(self, chat: ChatSummary) -> None:
        self.note(f"session {chat.session_id} ({chat.extent}, {chat.model})")

    def input(self, turn: str, text: str) -> None:
        self._has_spoken = False

    def note(self, text: str) -> None:
        self._end_line()
        click.echo(click.unstyle(text), err=True)

    async def event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        match event:
            case live.TextDeltaEvent(text=text):
                self._say(text)
                self._can_retract = True
            case live.ModelStartedEvent():
                self._end_line()
                self._can_retract = False
            case live.RetractedEvent() if self._can_retract:
                self._end_line()
                self._say("[the answer above is retracted]\n")
                self._has_spoken = self._can_retract = False
            case live.CompactionFinishedEvent(summary=summary, error=error):
                self.note(compaction_line(summary, error))
            case live.RetryEvent(why=why, delay_s=delay):
                self.note(f"↻ {plain(why)}; retrying in {delay:.1f} s")
            case live.ToolFinishedEvent(name=name, result=result, is_error=is_error):
                self.note(f"{'✗' if is_error else '⚙'} {plain(name)} → {result_line(result, is_error)[:200]}")
            case live.CellFinishedEvent(told=told):
                self.note(folded(told))
            case live.ToolStartedEvent(name=name, arguments=arguments):
                self.note(f"⚙ {plain(name)} {one_line(arguments, 200)}")
            case _:
                pass

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        call = f"{plain(name)} {one_line(arguments, 200)} → {result_line(result, is_error)[:200]}"
        self.note(f"{'✗' if is_error else '⚙'} {call}")

    def waits(self, session_id: str, queries: list[Query]) -> None:
        from holdfast.cli.display.timeline import query_line

        for query in queries:
            commands = " or ".join(f"`{command}`" for command in answer_commands(session_id, query))
            what = "approval" if call_to_approve(query) is not None else "an answer"
            self.note(f"the turn waits for {what}: {query_line(query, 200)}; answer with {commands}")

    def pause(self) -> None:
        self._end_line()

    def ended(self, result: TurnResult, hint: str) -> None:
        if not self._has_spoken and result.text:
            self._say(result.text)
        if has_value(result):
            self._end_line()
            self._say(result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode())
        self._end_line()
        if why := stop_line(result, hint, has_spoken=self._has_spoken):
            self.note(why)
        self.note(usage_line(result))

    async def clock(self) -> None:
        await asyncio.Event().wait()

    def _say(self, text: str) -> None:
        if text:
            click.echo(plain(text), nl=False)
            self._is_mid_line = not text.endswith("\n")
            self._has_spoken = True

    def _end_line(self) -> None:
        if self._is_mid_line:
            click.echo()
            self._is_mid_line = False


# --- JSON --------------------------------------------------------------------------------------------


class _JsonScreen:
    """Prints a JSON object per line: the events of turns as they are, and a few of the chat's own."""

    def opened(self, chat: ChatSummary) -> None:
        print_json({"type": "session", **msgspec.to_builtins(chat)})

    def input(self, turn: str, text: str) -> None:
        print_json({"type": "input", "turn": turn, "text": text})

    def note(self, text: str) -> None:
        click.echo(click.unstyle(text), err=True)

    async def event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        if not isinstance(event, live.TurnFinishedEvent):  # `ended` prints it, with the outcome
            print_json(event)

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        done = {"name": name, "arguments": arguments, "result": result, "is_error": is_error}
        print_json({"type": "tool_answered", **done})

    def waits(self, session_id: str, queries: list[Query]) -> None:
        return  # the event says it

    def pause(self) -> None:
        return

    def ended(self, result: TurnResult, hint: str) -> None:
        finished = {
            "type": "finished",
            "turn": result.turn,
            "outcome": result.outcome,
            "text": result.text,
            "usage": result.usage,
            "duration_ms": result.duration_ms,
        }
        print_json({**finished, "hint": hint} if hint else finished)

    async def clock(self) -> None:
        await asyncio.Event().wait()


def screen_for(*, as_json: bool, echoes: bool) -> Screen:
    """The screen for standard output; with `echoes`, a terminal also shows the inputs, as nobody types them there."""
    from holdfast.cli.display.live_block import can_redraw

    if as_json:
        return _JsonScreen()
    if not can_redraw():
        return _PlainScreen()
    from holdfast.cli.chat.terminal import TerminalScreen

    return TerminalScreen(echoes=echoes)
