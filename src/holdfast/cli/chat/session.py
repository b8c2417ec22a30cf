"""An open chat: its turns, approvals and commands, and resuming a turn that was left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.messages import ImageBlock, ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.cli.chat.command_arguments import command_arguments
from holdfast.cli.chat.screen import ChatSummary, Screen, result_line
from holdfast.cli.display.calls import call_to_approve
from holdfast.cli.models import find_model, hint_for
from holdfast.cli.output import count, dim, heading, one_line, plain, width
from holdfast.core.errors import AnswerConflictError, HoldfastError, StaleQueryError

if TYPE_CHECKING:
    from holdfast.agent.commands import CommandSpec
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.machine.turn_state import TurnState
    from holdfast.agent.results import ReadView, TokenUsage, TurnResult, ViewMessage
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.session import AgentSession
    from holdfast.agent.turn_builder import TurnBuilder
    from holdfast.core.queries import Query
    from holdfast.core.values import Json

POLL_S = 0.05
"""Seconds between two looks at a turn that is being stopped, or waits."""

SHOWN_TURNS = 2
"""Turns shown of a conversation that is continued: enough to know where it was."""

SHOWN_CHARS = 600
"""Characters shown of each text in those turns."""

_COMMANDS = {
    "/help": "this list",
    "/usage": "the usage of all turns, by model",
    "/history": "the whole conversation",
    "/compact [WISHES]": "summarise the conversation to make room; WISHES are instructions for it",
    "/tools": "the tools that the model can call",
    "/model [NAME]": "show the model; with NAME, use another one",
    "/quit": "leave; the session is kept",
}


class ChatSession:
    """An open session, and the screen that shows it. Everything happens in one event loop."""

    def __init__(self, runtime: Runtime, session: AgentSession, screen: Screen, *, asks: bool = False) -> None:
        """`asks`: there is a person who takes approvals from `approvals`."""
        self.session = session
        self.approvals: SimpleQueue[ApprovalQuery | None] = SimpleQueue()
        """Queries to ask the person about, then None when the turn is over."""
        self.waiting: list[Query] = []
        """The queries of the running turn that somebody outside has to answer."""
        self.is_cut_off = False
        """Whether nobody reads the output any more."""
        self._runtime = runtime
        self._screen = screen
        self._shown_calls: set[str] = set()
        """The tool calls of the running turn that were shown."""
        self._asks = asks
        self._held: list[LiveEvent] | None = None
        """Events that arrive while the person is asked, to be shown afterwards."""
        self._free = asyncio.Event()
        self._free.set()

    # --- the session -------------------------------------------------------------------------------

    async def begin(self, *, is_new: bool) -> None:
        """Show the session that was opened."""
        view = await self.session.read_view()
        tools = [spec.name for spec in self._runtime.tools.specs(self.session.policy.tools)]
        summary = ChatSummary(
            session_id=self.session.session_id,
            model=self.model,
            tools=tools,
            is_new=is_new,
            messages=len(view.messages),
        )
        self._screen.opened(summary)

    @property
    def model(self) -> str:
        """The model that answers next, with its service."""
        return f"{self.session.policy.provider}:{self.session.policy.model}"

    async def earlier(self) -> list[str]:
        """The last turns as lines, and the tools that are missing now."""
        messages = (await self.session.read_view()).messages
        inputs = [number for number, each in enumerate(messages) if each.role == "user"]
        first = inputs[-SHOWN_TURNS] if len(inputs) > SHOWN_TURNS else 0
        lines = _transcript(messages[first:], SHOWN_CHARS)
        before = [dim(f"… {first} earlier messages; /history shows all"), ""] if first else []
        missing = sorted(_tools_called(messages) - {spec.name for spec in self._runtime.tools.specs()})
        after = (
            ["", dim(f"Tools that were called earlier and are missing now: {', '.join(missing)}")] if missing else []
        )
        return [*before, *lines, *after]

    async def inputs(self) -> list[str]:
        """The inputs so far, oldest first."""
        return [each.text for each in (await self.session.read_view()).messages if each.role == "user"]

    # --- turns -------------------------------------------------------------------------------------

    async def turn(self, text: str, *, leaves_waiting: bool) -> TurnResult | None:
        """Take one turn, and show it; with `leaves_waiting`, None if it waits for somebody outside."""
        from holdfast.core.ids import new_turn_id

        turn_id = new_turn_id()
        self._show(self._screen.input, turn_id, text)
        return await self._take_turn(self.session.turn(text).id(turn_id), leaves_waiting)

    async def compact(self, wishes: str) -> TurnResult | None:
        """Summarise the conversation so far."""
        return await self._take_turn(self.session.command("compact", instructions=wishes or None), leaves_waiting=False)

    async def left_turn(self, *, leaves_waiting: bool) -> TurnResult | None:
        """Resume the turn that was running when the session was left, if there is one."""
        running = (await self.session.conversation(fresh=True)).running
        if running is None:
            return None
        self._show(self._screen.note, dim("\nThe last turn had not ended; it is resumed."))
        row = await self.session.mount.store.session(self.session.session_id)
        if row.owner is not None:
            why = f"{row.owner} is working on it, as shown here. If that process ends, the turn is taken over."
            self._show(self._screen.note, dim(why))
        text = "".join(block.text for block in running.content if isinstance(block, TextBlock))
        self._show(self._screen.input, running.id, text)
        return await self._take_turn(self._rejoin(running), leaves_waiting)

    def _rejoin(self, running: TurnState) -> TurnBuilder:
        """The same turn again, which joins the one that is running."""
        if running.command is not None:
            return self.session.command(running.command.name, **running.command.arguments).id(running.id)
        turn = self.session.turn(running.content).id(running.id)
        if running.output is not None:
            turn.output(running.output)
        if running.prompt is not None:
            turn.prompt(running.prompt)
        return turn

    async def stop(self, turn: Future[Any]) -> None:
        """Stop the running turn, as soon as it can be stopped."""
        await self.show_held()
        while not turn.done():
            with contextlib.suppress(HoldfastError):  # what it waited for was just answered
                if await self.session.stop():
                    return
            await asyncio.sleep(POLL_S)

    async def _take_turn(self, turn: TurnBuilder, leaves_waiting: bool) -> TurnResult | None:
        self.waiting, self._shown_calls = [], set()
        clock = asyncio.create_task(self._screen.clock())
        working = asyncio.create_task(turn.stream_to(self._show_event))
        leaving = asyncio.create_task(self._wait_for_outside()) if leaves_waiting else None
        try:
            await asyncio.wait([task for task in (working, leaving) if task], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return None
            result = working.result()
            await self._free.wait()
        finally:
            for task in (clock, working, leaving):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in (clock, working, leaving) if task), return_exceptions=True)
        await self._show_answered_calls(result.turn)
        self._show(self._screen.ended, result, await self._hint(result))
        return result

    async def _wait_for_outside(self) -> None:
        """Wait until only somebody outside can continue the turn."""
        while True:
            if self.waiting and set(await self._asked()) <= {query.id for query in self.waiting}:
                return
            await asyncio.sleep(POLL_S)

    async def _asked(self) -> list[str]:
        """What the turn and its subagents wait for beside subagents, by the ids under which it is answered here."""
        from holdfast.core.queries import ChildQuery
        from holdfast.engine.query_paths import pending_below

        own = (await self.session.conversation(fresh=True)).asked
        found = [asked for asked, query in own.items() if not isinstance(query, ChildQuery)]
        if len(found) == len(own):
            return found
        mount = self.session.mount
        below = await pending_below(mount.store, await mount.holdfast.session(self.session.session_id))
        return [*found, *(asked for asked, each in below.items() if not isinstance(each.query, ChildQuery))]

    async def _show_event(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        if self._held is not None:
            self._held.append(event)
            return
        match event:
            case live.ModelStartedEvent() | live.TurnFinishedEvent():
                await self._show_answered_calls(event.turn)
            case live.ToolStartedEvent(call=call):
                self._shown_calls.add(call)
            case live.WaitingEvent(queries=queries):
                self.waiting += queries
            case _:
                pass
        if not self.is_cut_off:
            try:
                await self._screen.event(event)
            except BrokenPipeError:
                self.is_cut_off = True  # the turn must not fail because nobody watches
        if isinstance(event, live.WaitingEvent):
            approvals = [query for query in event.queries if self._asks and call_to_approve(query) is not None]
            if others := [query for query in event.queries if query not in approvals]:
                self._show(self._screen.waits, self.session.session_id, others)
            if approvals:
                self._request_approvals(approvals)

    # --- approvals ---------------------------------------------------------------------------------

    def _request_approvals(self, approvals: Iterable[Query]) -> None:
        """Have the person asked, and hold back events until they have answered."""
        self._show(self._screen.pause)
        self._held = []
        self._free.clear()
        for query in approvals:
            assert isinstance(query, ApprovalQuery)
            self.approvals.put(query)

    async def still_asks(self, query: Query) -> bool:
        """Whether the query still waits: an earlier decision, or somebody elsewhere, may have settled it."""
        return query.id in await self._asked()

    async def decide(self, query: Query, decision: Json) -> bool:
        """Answer, and return False if somebody else did so before. Raises `InvalidDecisionError`."""
        try:
            await self.session.answer(query.id, decision)
        except (AnswerConflictError, StaleQueryError):
            return False
        return True

    async def show_held(self) -> None:
        """Show the events that were held back while the person was asked."""
        held, self._held = self._held or [], None
        self._free.set()
        for event in held:
            await self._show_event(event)

    async def _show_answered_calls(self, turn_id: str) -> None:
        """Show tool calls that were answered without an event: from outside, or because there is no such tool."""
        for each in (await self.session.conversation()).turns[turn_id].calls:
            call, done = each.call, each.done
            if done is not None and call.id not in self._shown_calls:
                self._shown_calls.add(call.id)
                self._show(self._screen.called, call.name, call.input, done.content, done.is_error)

    def _show(self, show: Any, *what: Any) -> None:
        if not self.is_cut_off:
            try:
                show(*what)
            except BrokenPipeError:
                self.is_cut_off = True

    async def _hint(self, result: TurnResult) -> str:
        """What to do about a model that failed, by the error class in the journal."""
        from holdfast.core.queries import Failure
        from holdfast.core.records import AnsweredRecord

        if result.stopped is None or result.stopped.reason != "provider_error":
            return ""
        end = result.receipt.position
        entries = await self.session.mount.store.read(self.session.session_id, max(0, end - 5), 5)
        codes = [
            entry.record.answer.code
            for entry in entries
            if isinstance(entry.record, AnsweredRecord) and isinstance(entry.record.answer, Failure)
        ]
        return hint_for(codes[-1]) if codes else ""

    # --- commands ----------------------------------------------------------------------------------

    async def own_commands(self) -> list[CommandSpec]:
        """The commands that plugins and the host have for this session, beside those of every chat."""
        return [each for each in await self.session.commands().list() if each.plugin]

    async def run_command(self, name: str, rest: str) -> TurnResult | None:
        """Run a command of a plugin or of the host; raises if its arguments do not fit."""
        spec = next(each for each in await self.own_commands() if each.name == name)
        turn = self.session.command(name, **command_arguments(spec, rest))
        return await self._take_turn(turn, leaves_waiting=False)

    async def command(self, name: str, rest: str) -> list[str]:
        """Run a command, and return the lines it prints."""
        match name:
            case "/help":
                own = {f"/{each.name}": each.description for each in await self.own_commands()}
                return [f"  {plain(name):<17} {dim(plain(what))}" for name, what in {**_COMMANDS, **own}.items()]
            case "/usage":
                return await self._usage()
            case "/history":
                return self._history(await self.session.read_view()) or ["Nothing has been said yet."]
            case "/tools":
                return self._tools()
            case "/model":
                return [await self._model(rest)]
            case _:
                return [f"There is no {plain(name)}; /help lists the commands. A space before the slash makes it text."]

    def _history(self, view: ReadView) -> list[str]:
        """The whole conversation, and where it was summarised."""
        lines: list[str] = []
        shown = 0
        for frame in view.frames:
            if frame.summary:
                lines += [*_transcript(view.messages[shown : frame.begins]), "", dim("── summarised here, as:")]
                lines += [*(dim(f"   {line}") for line in plain(frame.summary).strip().split("\n")), ""]
                shown = frame.begins
        return [*lines, *_transcript(view.messages[shown:])]

    async def _usage(self) -> list[str]:
        report = await self.session.usage_report()
        if not report.calls:
            return ["No usage has been reported yet."]
        rows = [(plain(model), used) for model, used in report.by_model.items()]
        rows += [("all", report.total)] if len(rows) > 1 else []
        return [f"  {name}  {dim(_usage_line(used))}" for name, used in rows]

    def _tools(self) -> list[str]:
        from holdfast.agent.tools.catalog import DeclaredTool

        specs = self._runtime.tools.specs(self.session.policy.tools)
        lines = []
        for spec in specs:
            is_declared = isinstance(self._runtime.tools.get(spec.name), DeclaredTool)
            outside = " (waits for an answer from outside)" if is_declared else ""
            about = spec.description.strip().partition("\n")[0]
            lines.append(f"  {heading(spec.name)}  {dim(plain(about) + outside)}")
        return lines or ["There are no tools; add some with --tool MODULE:FUNCTION or --mcp NAME=COMMAND."]

    async def _model(self, name: str) -> str:
        if not name:
            return f"The model is {self.model}. Change it with /model MODEL (same service) or /model SERVICE:MODEL."
        before = self.model
        try:
            if ":" in name:
                provider, model = find_model(name, None)
                self._runtime.add_provider(provider)
                await self.session.configure(provider=provider.id, model=model)
            else:
                await self.session.configure(model=name)
        except HoldfastError as error:
            return f"{click.style(plain(str(error)), fg='red')}\nThe model stays {before}."
        return f"{self.model} answers from the next turn on."


def _usage_line(used: TokenUsage) -> str:
    facts = [count(used.calls, "call"), f"{used.total - used.output:,} tokens in", f"{used.output:,} out"]
    facts += [f"{used.cache_read:,} read from cache"] if used.cache_read else []
    facts += [f"{used.reasoning:,} reasoning"] if used.reasoning else []
    facts += [f"cost {used.cost:.4g}"] if used.cost else []
    return " · ".join(facts)


def _tools_called(messages: Iterable[ViewMessage]) -> set[str]:
    """The tools that were called and existed."""
    blocks = [block for each in messages for block in each.content]
    unknown = {
        block.tool_use_id
        for block in blocks
        if isinstance(block, ToolResultBlock) and isinstance(block.content, dict)
        if block.content.get("code") == "unknown_tool"
    }
    return {block.name for block in blocks if isinstance(block, ToolUseBlock) and block.id not in unknown}


def _transcript(messages: Iterable[ViewMessage], most: int | None = None) -> list[str]:
    """Messages as lines, with at most so many characters of each text."""
    lines: list[str] = []
    for message in messages:
        shown = _message_lines(message, most)
        gap = [""] if lines and shown and message.role != "tool" else []
        lines += [*gap, *shown]
    return lines


def _message_lines(message: ViewMessage, most: int | None) -> list[str]:
    lines: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                text = plain(text).strip()
                shown = text if most is None or len(text) <= most else f"{text[:most].rstrip()} …"
                mark = heading("> ") if message.role == "user" else ""
                lines += f"{mark}{shown}".split("\n")
            case ToolUseBlock(name=name, input=arguments):
                room = width() - len(name) - 4
                lines.append(f"{click.style(f'⚙ {plain(name)}', fg='cyan')} {dim(one_line(arguments, room))}")
            case ToolResultBlock(content=content, is_error=is_error):
                result = one_line(result_line(content, is_error), width() - 6)
                lines.append(f"  {click.style(f'✗ {result}', fg='red')}" if is_error else f"  → {result}")
            case ReasoningBlock(text=text) if most is None:
                lines += [dim(line) for line in plain(text).strip().split("\n")]
            case ImageBlock(image=image):
                lines.append(dim(f"[an image, {image.media_type}, {len(image.data):,} bytes]"))
            case _:
                pass
    return lines
