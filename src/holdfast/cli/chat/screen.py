"""What a chat looks like: on a terminal, where it is piped, and for programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from holdfast.cli.approval import approved_call, commands_for
from holdfast.cli.output import duration, one_line, plain, print_json

if TYPE_CHECKING:
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.results import TurnResult
    from holdfast.core.queries import Query

RESULT_CHARS = 1_000
"""Characters of a tool's result that are looked at; of these, as many are shown as fit on a line."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A chat that was opened."""

    session_id: str
    model: str
    """With its service."""
    tools: list[str]
    is_new: bool
    messages: int

    @property
    def extent(self) -> str:
        """How much there is of it."""
        return "new" if self.is_new else f"{self.messages} message{'' if self.messages == 1 else 's'}"


class Screen(Protocol):
    """Where a chat is shown."""

    def opened(self, chat: Opened) -> None:
        """It begins, or goes on."""
        ...

    def given(self, turn: str, text: str) -> None:
        """An input is taken."""
        ...

    async def event(self, event: LiveEvent) -> None:
        """Something happens in a turn."""
        ...

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        """A call of a tool has come to something, and no event told of it: it was answered from outside, say."""
        ...

    def waits(self, session_id: str, queries: list[Query]) -> None:
        """The turn waits for somebody outside."""
        ...

    def pause(self) -> None:
        """Something is asked of the person below what is shown: that is to stay as it is until the next event."""
        ...

    def ended(self, result: TurnResult, hint: str) -> None:
        """A turn is over; `hint` says what to do if it came to nothing."""
        ...

    def note(self, text: str) -> None:
        """Something else is to be said."""
        ...

    async def clock(self) -> None:
        """Time passes while a turn is worked on, until this is cancelled."""
        ...


def usage_line(result: TurnResult) -> str:
    """What a turn took: tokens, money where that is known, time."""
    used = result.usage
    told = []
    if used.total:
        cached = f" ({used.cache_read:,} cached)" if used.cache_read else ""
        thought = f" ({used.reasoning:,} reasoning)" if used.reasoning else ""
        told += [f"{used.total - used.output:,} tokens in{cached}", f"{used.output:,} out{thought}"]
    if used.cost:
        told.append(f"cost {used.cost:.4g}")
    if used.calls > 1:
        told.append(f"{used.calls} calls")
    return " · ".join([*told, duration(result.duration_ms)])


def stop_line(result: TurnResult, hint: str, *, has_spoken: bool) -> str:
    """Why a turn came to no answer; `has_spoken`: though there was text to be seen."""
    stopped = result.stopped
    if stopped is None:
        return ""
    if stopped.reason == "cancelled":
        return "Stopped. Your message is kept" + (
            ", what the model has not said to its end is not." if has_spoken else "."
        )
    detail = plain(stopped.detail) or "no reason was given"
    return f"No answer ({stopped.reason}): {detail}" + (f". What to do: {hint}." if hint else "")


def how_to_answer(session_id: str, query: Query) -> list[str]:
    """The commands that answer a query from outside."""
    if approved_call(query) is not None:
        return commands_for(session_id, query.id)
    base = f"holdfast answer {session_id} --query {query.id}"
    return [f"{base} TEXT", f"{base} --fail WHY"]


def shown_result(result: Any, is_error: bool) -> str:
    """What a tool came to, in a line; of an error its words."""
    if is_error and isinstance(result, dict) and isinstance(result.get("error"), str):
        result = result["error"]
    return one_line(result, RESULT_CHARS) or "(nothing)"


def summed_up_line(summary: str, error: str) -> str:
    """What came of summing up, in a line."""
    return f"✗ not summed up: {one_line(error, 400)}" if error else f"≡ summed up: {one_line(summary, 400)}"


def has_value(result: TurnResult) -> bool:
    """Whether there is a value to show: one of the turn's own, and not what a command has told already."""
    from holdfast.agent.machine.turn import FinishedCommand

    return result.value is not None and not isinstance(result.outcome, FinishedCommand)


# --- no terminal -------------------------------------------------------------------------------------


class PlainScreen:
    """What the model says goes to standard output as it comes, everything else to standard error."""

    def __init__(self) -> None:
        self._is_within = False
        """Whether the last line has no end yet."""
        self._has_spoken = False
        self._is_takeable = False
        """Whether the attempt has said something, which may have to be taken back."""

    def opened(self, chat: Opened) -> None:
        self.note(f"session {chat.session_id} ({chat.extent}, {chat.model})")

    def given(self, turn: str, text: str) -> None:
        self._has_spoken = False

    def note(self, text: str) -> None:
        self._end_line()
        click.echo(click.unstyle(text), err=True)

    async def event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        match event:
            case live.TextDeltaEvent(text=text):
                self._say(text)
                self._is_takeable = True
            case live.ModelStartedEvent():
                self._is_takeable = False
            case live.RetractedEvent() if self._is_takeable:
                self._end_line()
                self._say("[the answer above is taken back]\n")
                self._has_spoken = self._is_takeable = False
            case live.CompactionFinishedEvent(summary=summary, error=error):
                self.note(summed_up_line(summary, error))
            case live.RetryEvent(why=why, delay_s=delay):
                self.note(f"↻ {plain(why)}; asked again in {delay:.1f} s")
            case live.ToolFinishedEvent(name=name, result=result, is_error=is_error):
                self.note(f"{'✗' if is_error else '⚙'} {plain(name)} → {shown_result(result, is_error)[:200]}")
            case live.ToolStartedEvent(name=name, arguments=arguments):
                self.note(f"⚙ {plain(name)} {one_line(arguments, 200)}")
            case _:
                pass

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        told = f"{plain(name)} {one_line(arguments, 200)} → {shown_result(result, is_error)[:200]}"
        self.note(f"{'✗' if is_error else '⚙'} {told}")

    def waits(self, session_id: str, queries: list[Query]) -> None:
        from holdfast.cli.timeline import query_line

        for query in queries:
            commands = " or ".join(f"`{command}`" for command in how_to_answer(session_id, query))
            what = "approval" if approved_call(query) is not None else "an answer"
            self.note(f"the turn waits for {what}: {query_line(query, 200)}; answer with {commands}")

    def pause(self) -> None:
        self._end_line()

    def ended(self, result: TurnResult, hint: str) -> None:
        if not self._has_spoken and result.text:
            self._say(result.text)
        elif not result.text and has_value(result):
            self._say(msgspec.json.encode(result.value).decode())
        self._end_line()
        if why := stop_line(result, hint, has_spoken=self._has_spoken):
            self.note(why)
        self.note(usage_line(result))

    async def clock(self) -> None:
        await asyncio.Event().wait()

    def _say(self, text: str) -> None:
        if text:
            click.echo(plain(text), nl=False)
            self._is_within = not text.endswith("\n")
            self._has_spoken = True

    def _end_line(self) -> None:
        if self._is_within:
            click.echo()
            self._is_within = False


# --- programs ----------------------------------------------------------------------------------------


class JsonScreen:
    """A JSON object a line: the events of turns as they are, and a few of the chat's own."""

    def opened(self, chat: Opened) -> None:
        print_json({"type": "session", **msgspec.to_builtins(chat)})

    def given(self, turn: str, text: str) -> None:
        print_json({"type": "input", "turn": turn, "text": text})

    def note(self, text: str) -> None:
        click.echo(click.unstyle(text), err=True)

    async def event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        if not isinstance(event, live.TurnFinishedEvent):  # told by `ended`, with what came of it
            print_json(event)

    def called(self, name: str, arguments: Any, result: Any, is_error: bool) -> None:
        done = {"name": name, "arguments": arguments, "result": result, "is_error": is_error}
        print_json({"type": "tool_answered", **done})

    def waits(self, session_id: str, queries: list[Query]) -> None:
        return  # the event has said it

    def pause(self) -> None:
        return

    def ended(self, result: TurnResult, hint: str) -> None:
        told = {
            "type": "finished",
            "turn": result.turn,
            "outcome": result.outcome,
            "text": result.text,
            "usage": result.usage,
            "duration_ms": result.duration_ms,
        }
        print_json({**told, "hint": hint} if hint else told)

    async def clock(self) -> None:
        await asyncio.Event().wait()


def screen_for(*, as_json: bool, echoes: bool) -> Screen:
    """The screen that fits where standard output leads; on a terminal it shows inputs that were not typed there."""
    from holdfast.cli.tail import can_move

    if as_json:
        return JsonScreen()
    if not can_move():
        return PlainScreen()
    from holdfast.cli.chat.terminal import TerminalScreen

    return TerminalScreen(echoes=echoes)
