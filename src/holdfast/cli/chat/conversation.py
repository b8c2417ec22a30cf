"""A chat under way: turns and their stopping, going on with a turn that was left, and the commands."""

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
from holdfast.cli.approval import approved_call
from holdfast.cli.chat.screen import Opened, Screen, shown_result
from holdfast.cli.models import find_model, hint_for
from holdfast.cli.output import dim, heading, one_line, plain, width
from holdfast.core.errors import AnswerConflictError, HoldfastError, StaleQueryError

if TYPE_CHECKING:
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.machine.conversation import TurnState
    from holdfast.agent.results import ReadView, TokenUsage, TurnResult, ViewMessage
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.session import AgentSession
    from holdfast.agent.turn_builder import TurnBuilder
    from holdfast.core.queries import Query
    from holdfast.core.values import Json

LOOK_S = 0.05
"""Seconds between two looks at a turn that is to be stopped, or waits."""

SHOWN_TURNS = 2
"""Turns shown of a conversation that is gone on with: enough to know where it stood."""

SHOWN_CHARS = 600
"""Characters shown of each text in them."""

_COMMANDS = {
    "/help": "this list",
    "/usage": "what all turns have used, by model",
    "/history": "all that was said",
    "/compact [WISHES]": "sum up what was said, to make room; WISHES say what to heed",
    "/tools": "the tools that the model can call",
    "/model [NAME]": "which model answers; with NAME, another one",
    "/quit": "leave; the session stays",
}


class Chat:
    """An open session, and where it is shown. All of it happens in one event loop."""

    def __init__(self, runtime: Runtime, session: AgentSession, screen: Screen, *, asks: bool = False) -> None:
        """`asks`: there is a person who takes what has to be approved from `asked`."""
        self.session = session
        self.asked: SimpleQueue[ApprovalQuery | None] = SimpleQueue()
        """Approvals that the person is to be asked for, and None when the turn is over."""
        self.waiting: list[Query] = []
        """What the running turn waits for from outside."""
        self.is_cut_off = False
        """Whether nobody reads what is printed any more."""
        self._runtime = runtime
        self._screen = screen
        self._told: set[str] = set()
        """Calls of tools of the running turn that were shown."""
        self._asks = asks
        self._held: list[LiveEvent] | None = None
        """What happens while the person is asked, to be shown afterwards."""
        self._free = asyncio.Event()
        self._free.set()

    # --- the session -------------------------------------------------------------------------------

    async def begin(self, *, is_new: bool) -> None:
        """Show what was opened."""
        view = await self.session.read_view()
        tools = [spec.name for spec in self._runtime.tools.specs(self.session.policy.tools)]
        opened = Opened(
            session_id=self.session.session_id,
            model=self.model,
            tools=tools,
            is_new=is_new,
            messages=len(view.messages),
        )
        self._screen.opened(opened)

    @property
    def model(self) -> str:
        """The model that answers next, with its service."""
        return f"{self.session.policy.provider}:{self.session.policy.model}"

    async def earlier(self) -> list[str]:
        """The last turns, as lines; and what is not as it was."""
        messages = (await self.session.read_view()).messages
        inputs = [number for number, each in enumerate(messages) if each.role == "user"]
        first = inputs[-SHOWN_TURNS] if len(inputs) > SHOWN_TURNS else 0
        lines = _transcript(messages[first:], SHOWN_CHARS)
        before = [dim(f"… {first} earlier messages; /history shows all"), ""] if first else []
        missing = sorted(_tools_called(messages) - {spec.name for spec in self._runtime.tools.specs()})
        after = ["", dim(f"Tools that were called and are not given now: {', '.join(missing)}")] if missing else []
        return [*before, *lines, *after]

    async def inputs(self) -> list[str]:
        """What was said to the model, the oldest first."""
        return [each.text for each in (await self.session.read_view()).messages if each.role == "user"]

    # --- turns -------------------------------------------------------------------------------------

    async def turn(self, text: str, *, leaves_waiting: bool) -> TurnResult | None:
        """Work one turn, and show it; None if it waits for somebody outside, and that is not waited for."""
        from holdfast.core.ids import new_turn_id

        turn_id = new_turn_id()
        self._show(self._screen.given, turn_id, text)
        return await self._worked(self.session.turn(text).id(turn_id), leaves_waiting)

    async def compact(self, wishes: str) -> TurnResult | None:
        """Sum up what was said."""
        return await self._worked(self.session.command("compact", instructions=wishes or None), leaves_waiting=False)

    async def left_turn(self, *, leaves_waiting: bool) -> TurnResult | None:
        """Go on with the turn that was under way when the session was left, if there is one."""
        running = (await self.session.conversation(fresh=True)).running
        if running is None:
            return None
        self._show(self._screen.note, dim("\nThe last turn was under way, and goes on."))
        row = await self.session.mount.store.session(self.session.session_id)
        if row.owner is not None:
            why = f"It is held by {row.owner}, and is joined. It is taken over as soon as that process is gone."
            self._show(self._screen.note, dim(why))
        said = "".join(block.text for block in running.content if isinstance(block, TextBlock))
        self._show(self._screen.given, running.id, said)
        return await self._worked(self._again(running), leaves_waiting)

    def _again(self, running: TurnState) -> TurnBuilder:
        """The same turn once more, which joins it."""
        if running.command is not None:
            return self.session.command(running.command.name, **running.command.arguments).id(running.id)
        turn = self.session.turn(running.content).id(running.id)
        if running.output is not None:
            turn.output(running.output)
        if running.prompt is not None:
            turn.prompt(running.prompt)
        return turn

    async def stop(self, turn: Future[Any]) -> None:
        """Stop the running turn, as soon as there is something to stop."""
        await self.show_held()
        while not turn.done():
            with contextlib.suppress(HoldfastError):  # what it waited for was answered just now
                if await self.session.stop():
                    return
            await asyncio.sleep(LOOK_S)

    async def _worked(self, turn: TurnBuilder, leaves_waiting: bool) -> TurnResult | None:
        self.waiting, self._told = [], set()
        clock = asyncio.create_task(self._screen.clock())
        working = asyncio.create_task(turn.stream_to(self._take))
        leaving = asyncio.create_task(self._until_nothing_else()) if leaves_waiting else None
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
        await self._tell_answered(result.turn)
        self._show(self._screen.ended, result, await self._hint(result))
        return result

    async def _until_nothing_else(self) -> None:
        """Wait until all that the turn waits for is to come from outside."""
        while True:
            asked = (await self.session.conversation()).asked
            if self.waiting and asked and set(asked) <= {query.id for query in self.waiting}:
                return
            await asyncio.sleep(LOOK_S)

    async def _take(self, event: LiveEvent) -> None:
        from holdfast.agent import live_events as live

        if self._held is not None:
            self._held.append(event)
            return
        match event:
            case live.ModelStartedEvent() | live.TurnFinishedEvent():
                await self._tell_answered(event.turn)
            case live.ToolStartedEvent(call=call):
                self._told.add(call)
            case live.WaitingEvent(queries=queries):
                self.waiting += queries
        if not self.is_cut_off:
            try:
                await self._screen.event(event)
            except BrokenPipeError:
                self.is_cut_off = True  # the turn must not fail because nobody looks on
        if isinstance(event, live.WaitingEvent):
            approvals = [query for query in event.queries if self._asks and approved_call(query) is not None]
            if others := [query for query in event.queries if query not in approvals]:
                self._show(self._screen.waits, self.session.session_id, others)
            if approvals:
                self._ask_for(approvals)

    # --- approvals ---------------------------------------------------------------------------------

    def _ask_for(self, approvals: Iterable[Query]) -> None:
        """Have the person asked; what happens until they have answered is shown then."""
        self._show(self._screen.pause)
        self._held = []
        self._free.clear()
        for query in approvals:
            assert isinstance(query, ApprovalQuery)
            self.asked.put(query)

    async def still_asks(self, query: Query) -> bool:
        """Whether an answer is waited for: the person may have given it with another, or somebody elsewhere has."""
        return query.id in (await self.session.conversation(fresh=True)).asked

    async def decide(self, query: Query, decision: Json) -> bool:
        """Answer. False if somebody has before. Raises `InvalidDecisionError`."""
        try:
            await self.session.answer(query.id, decision)
        except (AnswerConflictError, StaleQueryError):
            return False
        return True

    async def show_held(self) -> None:
        """Show what has happened while the person was asked."""
        held, self._held = self._held or [], None
        self._free.set()
        for event in held:
            await self._take(event)

    async def _tell_answered(self, turn_id: str) -> None:
        """Show calls of tools that were answered without an event: from outside, or because there is no such tool."""
        for each in (await self.session.conversation()).turns[turn_id].calls:
            call, done = each.call, each.done
            if done is not None and call.id not in self._told:
                self._told.add(call.id)
                self._show(self._screen.called, call.name, call.input, done.content, done.is_error)

    def _show(self, show: Any, *what: Any) -> None:
        if not self.is_cut_off:
            try:
                show(*what)
            except BrokenPipeError:
                self.is_cut_off = True

    async def _hint(self, result: TurnResult) -> str:
        """What to do about a model that failed: by the class of the error, which the journal has."""
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

    async def command(self, name: str, rest: str) -> list[str]:
        """Do what a command asks; what it says."""
        match name:
            case "/help":
                return [f"  {name:<17} {dim(what)}" for name, what in _COMMANDS.items()]
            case "/usage":
                return await self._usage()
            case "/history":
                return self._history(await self.session.read_view()) or ["Nothing was said yet."]
            case "/tools":
                return self._tools()
            case "/model":
                return [self._model(rest)]
            case _:
                return [f"There is no {plain(name)}; /help lists the commands. A space before the slash makes it text."]

    def _history(self, view: ReadView) -> list[str]:
        """All that was said, and where it was summed up."""
        lines: list[str] = []
        shown = 0
        for frame in view.frames:
            if frame.summary:
                lines += [*_transcript(view.messages[shown : frame.begins]), "", dim("── summed up here, as:")]
                lines += [*(dim(f"   {line}") for line in plain(frame.summary).strip().split("\n")), ""]
                shown = frame.begins
        return [*lines, *_transcript(view.messages[shown:])]

    async def _usage(self) -> list[str]:
        report = await self.session.usage_report()
        if not report.calls:
            return ["No call has reported its usage yet."]
        rows = [(plain(model), used) for model, used in report.by_model.items()]
        rows += [("all", report.total)] if len(rows) > 1 else []
        return [f"  {name}  {dim(_buckets(used))}" for name, used in rows]

    def _tools(self) -> list[str]:
        from holdfast.agent.tools.catalog import DeclaredTool

        specs = self._runtime.tools.specs(self.session.policy.tools)
        lines = []
        for spec in specs:
            is_declared = isinstance(self._runtime.tools.get(spec.name), DeclaredTool)
            outside = " (waits for an answer from outside)" if is_declared else ""
            about = spec.description.strip().partition("\n")[0]
            lines.append(f"  {heading(spec.name)}  {dim(plain(about) + outside)}")
        return lines or ["There are none; give some with --tool MODULE:FUNCTION, or --mcp NAME=COMMAND."]

    def _model(self, name: str) -> str:
        if not name:
            return f"{self.model} answers. Another one: /model MODEL of the same service, or /model SERVICE:MODEL"
        before = self.model
        try:
            if ":" in name:
                provider, model = find_model(name, None)
                self._runtime.add_provider(provider)
                self.session.configure(provider=provider.id, model=model)
            else:
                self.session.configure(model=name)
        except HoldfastError as error:
            return f"{click.style(plain(str(error)), fg='red')}\n{before} stays."
        return f"{self.model} answers from the next turn on."


def _buckets(used: TokenUsage) -> str:
    told = [f"{used.calls} calls", f"{used.total - used.output:,} tokens in", f"{used.output:,} out"]
    told += [f"{used.cache_read:,} read from cache"] if used.cache_read else []
    told += [f"{used.reasoning:,} reasoning"] if used.reasoning else []
    told += [f"cost {used.cost:.4g}"] if used.cost else []
    return " · ".join(told)


def _tools_called(messages: Iterable[ViewMessage]) -> set[str]:
    """The tools that were called and were there."""
    blocks = [block for each in messages for block in each.blocks]
    unknown = {
        block.tool_use_id
        for block in blocks
        if isinstance(block, ToolResultBlock) and isinstance(block.content, dict)
        if block.content.get("code") == "unknown_tool"
    }
    return {block.name for block in blocks if isinstance(block, ToolUseBlock) and block.id not in unknown}


def _transcript(messages: Iterable[ViewMessage], most: int | None = None) -> list[str]:
    """Messages for a person; of each text at most so many characters."""
    lines: list[str] = []
    for message in messages:
        told = _message(message, most)
        gap = [""] if lines and told and message.role != "tool" else []
        lines += [*gap, *told]
    return lines


def _message(message: ViewMessage, most: int | None) -> list[str]:
    lines: list[str] = []
    for block in message.blocks:
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
                told = one_line(shown_result(content, is_error), width() - 6)
                lines.append(f"  {click.style(f'✗ {told}', fg='red')}" if is_error else f"  → {told}")
            case ReasoningBlock(text=text) if most is None:
                lines += [dim(line) for line in plain(text).strip().split("\n")]
            case ImageBlock(image=image):
                lines.append(dim(f"[an image, {image.media_type}, {len(image.data):,} bytes]"))
            case _:
                pass
    return lines
