"""Runs tools: turns a `Tool` into an effect that answers its queries. Time limits, repeats and live events are here.

Whatever a tool does, its call comes to an answer:

- It returns: its value, as JSON. It raises: a failure with the type and the words of the exception, no traceback.
- Its time runs out: a failure with what it had said until then. An async tool is cancelled and has `CLEANUP_S` to clean
  up; a function in a thread cannot be stopped, so it is left to itself and its outcome is ignored.
- It raises what is no `Exception` (a panic of a native library, say): a failure with the code `tool_panicked`. Only
  `KeyboardInterrupt` and `SystemExit` in the event loop go through: they may well be a signal to the process. In a
  thread they cannot be, and are contained like the rest.
- The call is cancelled, as when its turn is stopped: there is no answer, because nobody waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.agent.live_events import LiveEvent, ToolFinishedEvent, ToolOutputEvent, ToolStartedEvent
from holdfast.agent.plugins.hooks import Hooks, abort_failure
from holdfast.agent.plugins.plugin import AbortTurn, PluginCall
from holdfast.agent.tools.catalog import unknown_tool
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.errors import InvalidArgumentsError, ToolDefinitionError
from holdfast.agent.tools.output import OutputStream
from holdfast.agent.tools.results import (
    ToolFailure,
    ToolResult,
    answer_to_model,
    answer_to_strategy,
    exception_text,
    failure_of_exception,
    result_for_model,
    result_of_return,
)
from holdfast.agent.tools.threads import in_thread
from holdfast.agent.tools.tool import Tool
from holdfast.core.queries import Failure
from holdfast.core.values import Json, own_copy
from holdfast.engine.drivers import Attempt, Effect, NotDone, Probe
from holdfast.engine.holdfast import Holdfast

CLEANUP_S = 3.0
"""Seconds a tool that was cancelled has to clean up before it is left to itself: more than `ctx.run` takes to end a
process that will not."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """The model's call that a query stands for."""

    turn: str
    call_id: str
    arguments: dict[str, Json] = field(default_factory=dict)
    allowed: Collection[str] | None = None
    """The tools that the model has; None: all. It is not let have others, whatever it calls."""
    hooks: Hooks | None = None
    """The plugins that are asked before and after."""
    own: Mapping[str, Tool] = field(default_factory=dict)
    """Tools that are run in place of others of the same name: methods of the session's own plugins."""


About: TypeAlias = Callable[[Attempt], Awaitable[ModelCall | None]]
"""Which call of a model an attempt is for; None if a strategy asks."""

Emit: TypeAlias = Callable[[str, LiveEvent], Awaitable[None]]
"""Takes the live events of a session. It is awaited: whoever listens slowly slows the tool's turn down."""


class ToolRunner:
    """Runs the tools of a runtime."""

    def __init__(self, *, about: About | None = None, emit: Emit | None = None) -> None:
        self._about = about
        self._emit = emit

    def drive(self, hf: Holdfast, tool: Tool) -> None:
        """Let a tool answer the queries of strategies to it."""
        if "attempt" in tool.parameters.get("properties", {}):
            raise ToolDefinitionError(tool.name, "drivers get their attempt as 'attempt'; call that argument otherwise")
        hf.drive(
            tool.name,
            self.effect(tool),
            recovery=tool.recovery,
            probe=self.probe(tool),
            concurrency=tool.concurrency,
        )

    def effect(self, tool: Tool) -> Effect:
        """What answers the queries to a tool."""

        async def run(*, attempt: Attempt, **arguments: Json) -> Json | Failure:
            return await self.run(tool, attempt, arguments)

        return run

    def probe(self, tool: Tool) -> Probe | None:
        """What finds out whether a call went through whose process died; None if the tool cannot tell."""
        find_out = tool.probe
        if find_out is None:
            return None

        async def probe(attempt: Attempt) -> Json | Failure | NotDone:
            async with asyncio.timeout(tool.timeout_s):
                if inspect.iscoroutinefunction(find_out):
                    found = await find_out(attempt)
                else:
                    found = await in_thread(lambda: find_out(attempt))
                    found = await found if inspect.isawaitable(found) else found
            if isinstance(found, NotDone):
                return found
            ref = await self._ref(attempt)
            result = result_of_return(found, tool.name)
            if ref is not None:
                result = await _Call(tool, attempt, ref, None).left_by_plugins(ref.arguments, result)
            return _answer(tool, result, ref)

        return probe

    async def run(self, tool: Tool, attempt: Attempt, arguments: dict[str, Json]) -> Json | Failure:
        """Run a tool, and give the answer to its query."""
        try:
            ref = await self._ref(attempt)
            tool = tool if ref is None else ref.own.get(tool.name, tool)
            call = _Call(tool, attempt, ref, self._emit if ref is not None else None)
            await call.tell_start(arguments)
            result = await call.result(arguments)
        except AbortTurn as abort:
            return abort_failure(abort)
        await call.tell_end(result)
        return _answer(tool, result, ref)

    async def _ref(self, attempt: Attempt) -> ModelCall | None:
        return await self._about(attempt) if self._about is not None else None


def _answer(tool: Tool, result: ToolResult, ref: ModelCall | None) -> Json | Failure:
    if ref is None:
        return answer_to_strategy(result, tool.name)
    return answer_to_model(result, *result_for_model(result, tool.output, stops=tool.on_error == "stop"))


class _Call:
    """One call under way."""

    def __init__(self, tool: Tool, attempt: Attempt, ref: ModelCall | None, emit: Emit | None) -> None:
        self._tool = tool
        self._attempt = attempt
        self._ref = ref
        self._emit = emit
        self._turn = ref.turn if ref is not None else ""
        self._id = ref.call_id if ref is not None else attempt.query_id

    async def result(self, arguments: dict[str, Json]) -> ToolResult:
        """What comes of it: what plugins want instead, or what the tool comes to, as they leave it."""
        allowed = self._ref.allowed if self._ref is not None else None
        hooks = self._ref.hooks if self._ref is not None else None
        if allowed is not None and self._tool.name not in allowed:
            unknown = unknown_tool(self._tool.name, sorted(allowed))
            return ToolFailure(message=unknown.message, code=unknown.code, ran=False)
        if hooks is None:
            return await self._run(arguments)
        verdict = await hooks.before_tool(self._seen(arguments))
        result = verdict.result if verdict.result is not None else await self._run(verdict.arguments)
        return await self.left_by_plugins(verdict.arguments, result)

    async def left_by_plugins(self, arguments: dict[str, Json], result: ToolResult) -> ToolResult:
        """What plugins make of a result."""
        hooks = self._ref.hooks if self._ref is not None else None
        return result if hooks is None else await hooks.after_tool(self._seen(arguments), result)

    def _seen(self, arguments: dict[str, Json]) -> PluginCall:
        """The call as plugins see it."""
        return PluginCall(
            session_id=self._attempt.session_id,
            turn=self._turn,
            id=self._id,
            tool=self._tool.name,
            arguments=arguments,
            key=self._attempt.key,
            query=self._attempt.query_id,
            output=self._tool.output,
        )

    async def _run(self, arguments: dict[str, Json]) -> ToolResult:
        """What comes of the tool itself, after as many tries as it allows."""
        try:
            accepted = self._tool.accept(own_copy(arguments))  # the query's own must stay as they are
        except Exception as error:  # types may have checks of their own, that do anything
            return ToolFailure(message=exception_text(error), code=InvalidArgumentsError.kind, ran=False)
        retry, failures = self._tool.retry, 0
        while True:
            result = await self._try(accepted, failures)
            if retry is None or not isinstance(result, ToolFailure) or not result.retryable:
                return result
            failures += 1
            delay = retry.delay_s(failures, result.retry_after_s)
            if delay is None:
                return result
            await self._say(f"{result.message}; it is tried again in {delay:g} s\n")
            await asyncio.sleep(delay)

    async def _try(self, accepted: dict[str, object], retry: int) -> ToolResult:
        limit = self._tool.timeout_s
        async with _Live(self._say if self._emit is not None else None) as output:
            ctx = ToolContext(
                session_id=self._attempt.session_id,
                turn=self._turn,
                call_id=self._id,
                tool=self._tool.name,
                key=self._attempt.key,
                attempt=self._attempt.number,
                retry=retry,
                deadline=None if limit is None else time.monotonic() + limit,
                _output=output,
            )
            return await self._once(accepted, ctx, output)

    async def _once(self, accepted: dict[str, object], ctx: ToolContext, output: OutputStream) -> ToolResult:
        limit = self._tool.timeout_s
        running = asyncio.create_task(_invoked(self._tool, accepted, ctx))
        try:
            await asyncio.wait([running], timeout=limit)
            if not running.done():
                await _give_up(running)
                told = f"'{self._tool.name}' was given up after {limit:g} s, its time limit"
                return ToolFailure(message=told, code="timeout", partial=output.kept)
        except asyncio.CancelledError:
            output.close()
            await _give_up(running)
            raise
        finally:
            output.close()
        if running.cancelled():
            return ToolFailure(
                message="CancelledError: the tool cancelled itself", code="tool_panicked", partial=output.kept
            )
        error = running.exception()
        return (
            result_of_return(running.result(), self._tool.name)
            if error is None
            else failure_of_exception(error, output.kept)
        )

    # --- telling -----------------------------------------------------------------------------------

    async def tell_start(self, arguments: dict[str, Json]) -> None:
        await self._tell(ToolStartedEvent(turn=self._turn, call=self._id, name=self._tool.name, arguments=arguments))

    async def tell_end(self, result: ToolResult) -> None:
        done, _ = result_for_model(result, self._tool.output, stops=False)
        await self._tell(
            ToolFinishedEvent(
                turn=self._turn, call=self._id, name=self._tool.name, result=done.content, is_error=done.is_error
            )
        )

    async def _say(self, text: str) -> None:
        await self._tell(ToolOutputEvent(turn=self._turn, call=self._id, text=text))

    async def _tell(self, event: LiveEvent) -> None:
        if self._emit is not None:
            # Whoever looks on cannot change what comes of a call that may have done something already.
            with contextlib.suppress(Exception):
                await self._emit(self._attempt.session_id, event)


async def _invoked(tool: Tool, accepted: dict[str, object], ctx: ToolContext) -> object:
    if tool.is_async:
        outcome = tool.invoke(accepted, ctx)
    else:
        outcome = await in_thread(lambda: tool.invoke(accepted, ctx))
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _give_up(running: asyncio.Task[object]) -> None:
    """Stop a tool: it may clean up, but not for long, and what comes of it then is nobody's concern."""
    running.cancel()
    running.add_done_callback(lambda task: task.cancelled() or task.exception())  # or asyncio complains of it
    await asyncio.wait([running], timeout=CLEANUP_S)


class _Live:
    """Brings what a tool says to whoever listens: in order, while it runs, and in as few pieces as they can take."""

    def __init__(self, say: Callable[[str], Awaitable[None]] | None) -> None:
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._pump: asyncio.Task[None] | None = None
        self._is_over = False
        self.output = OutputStream(self._wake if say is not None else None)

    async def __aenter__(self) -> OutputStream:
        return self.output

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """All of it is said before the call is over, unless nobody waits for that."""
        self._is_over = True
        if kind is not None:
            if self._pump is not None:
                self._pump.cancel()
            return
        if self._pump is not None:
            await self._pump
        await self._bring()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # a thread that was left to itself may outlive the loop
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self._is_over and (self._pump is None or self._pump.done()):
            self._pump = self._loop.create_task(self._bring())

    async def _bring(self) -> None:
        while self._say is not None and (text := self.output.take()):
            await self._say(text)
