"""Runs tools: makes a `Tool` an effect that answers its queries, with time limits, retries and live events.

Whatever a tool does, its call gets an answer:

- It returns: its value, as JSON. It raises: a failure with the type and message of the exception, no traceback.
- Its time runs out: a failure with its output until then. An async tool is cancelled and has `CLEANUP_S` to clean up; a
  function in a thread cannot be stopped, so it runs on and its outcome is ignored.
- It raises something that is not an `Exception` (such as a panic of a native library): a failure with the code
  `tool_panicked`. So is `SystemExit` or `KeyboardInterrupt`, unless a handler of signals raised it: that was meant for
  the process.
- The call is cancelled, as when its turn is stopped: no answer, because nobody waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from holdfast.agent.live_events import LiveEvent, ToolFinishedEvent, ToolOutputEvent, ToolStartedEvent
from holdfast.agent.machine.turn import ToolCallOutcome
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
from holdfast.core.large import is_large
from holdfast.core.queries import Failure
from holdfast.core.values import Json, own_copy
from holdfast.engine.containment import without_exit
from holdfast.engine.drivers import Attempt, Effect, NotDone, Probe
from holdfast.engine.holdfast import Holdfast
from holdfast.store.off_loop import off_loop

CLEANUP_S = 3.0
"""Seconds that a cancelled tool has to clean up before it is abandoned: more than `ctx.run` takes to kill a process."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """The model's call that a query stands for."""

    turn: str
    call_id: str
    arguments: dict[str, Json] = field(default_factory=dict)
    allowed: Collection[str] | None = None
    """The tools that the model may call, or None for all."""
    hooks: Hooks | None = None
    """The plugins that are asked before and after the call."""
    own: Mapping[str, Tool] = field(default_factory=dict)
    """Tools that replace others of the same name: methods of the session's own plugins."""


About: TypeAlias = Callable[[Attempt], Awaitable[ModelCall | None]]
"""Finds the model's call that an attempt is for; None if a strategy made it."""

Emit: TypeAlias = Callable[[str, LiveEvent], Awaitable[None]]
"""Takes the live events of a session. It is awaited: a slow listener slows the turn down."""


class ToolRunner:
    """Runs the tools of a runtime."""

    def __init__(self, *, about: About | None = None, emit: Emit | None = None) -> None:
        self._about = about
        self._emit = emit

    def drive(self, hf: Holdfast, tool: Tool) -> None:
        """Let a tool answer the queries of strategies."""
        if "attempt" in tool.parameters.get("properties", {}):
            raise ToolDefinitionError(tool.name, "drivers receive their attempt as 'attempt'; rename that argument")
        hf.drive(
            tool.name,
            self.effect(tool),
            recovery=tool.recovery,
            probe=self.probe(tool),
            concurrency=tool.concurrency,
        )

    def effect(self, tool: Tool) -> Effect:
        """The effect that answers the queries of a tool."""

        async def run(*, attempt: Attempt, **arguments: Json) -> Json | Failure:
            return await self.run(tool, attempt, arguments)

        return run

    def probe(self, tool: Tool) -> Probe | None:
        """The probe that finds out what a call did whose process died; None if the tool has none."""
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
            model_call = await self._model_call(attempt)
            result = await _result(found, tool.name)
            if model_call is None:
                return answer_to_strategy(result, tool.name)
            result = await _Call(tool, attempt, model_call, None).changed_by_plugins(model_call.arguments, result)
            return (await _for_model(tool, result))[1]

        return probe

    async def run(self, tool: Tool, attempt: Attempt, arguments: dict[str, Json]) -> Json | Failure:
        """Run a tool, and return the answer to its query."""
        try:
            model_call = await self._model_call(attempt)
            tool = tool if model_call is None else model_call.own.get(tool.name, tool)
            call = _Call(tool, attempt, model_call, self._emit if model_call is not None else None)
            await call.emit_start(arguments)
            result = await call.result(arguments)
        except AbortTurn as abort:
            return abort_failure(abort)
        if model_call is None:
            return answer_to_strategy(result, tool.name)
        done, answer = await _for_model(tool, result)
        await call.emit_end(done)
        return answer

    async def _model_call(self, attempt: Attempt) -> ModelCall | None:
        return await self._about(attempt) if self._about is not None else None


async def _result(returned: object, tool: str) -> ToolResult:
    """The result that a returned value means."""
    if is_large(returned):
        return await off_loop(lambda: result_of_return(returned, tool))
    return result_of_return(returned, tool)


async def _for_model(tool: Tool, result: ToolResult) -> tuple[ToolCallOutcome, Json | Failure]:
    """What the model sees of a result, and the answer to the query of its call."""

    def made() -> tuple[ToolCallOutcome, Json | Failure]:
        done, full = result_for_model(result, tool.output, stops=tool.on_error == "stop")
        return done, answer_to_model(result, done, full)

    return await off_loop(made) if is_large(result) else made()


class _Call:
    """One running call."""

    def __init__(self, tool: Tool, attempt: Attempt, model_call: ModelCall | None, emit: Emit | None) -> None:
        self._tool = tool
        self._attempt = attempt
        self._model_call = model_call
        self._emit = emit
        self._turn = model_call.turn if model_call is not None else ""
        self._id = model_call.call_id if model_call is not None else attempt.query_id

    async def result(self, arguments: dict[str, Json]) -> ToolResult:
        """The result: what plugins return instead, or the tool's own result, as plugins change it."""
        allowed = self._model_call.allowed if self._model_call is not None else None
        hooks = self._model_call.hooks if self._model_call is not None else None
        if allowed is not None and self._tool.name not in allowed:
            unknown = unknown_tool(self._tool.name, sorted(allowed))
            return ToolFailure(message=unknown.message, code=unknown.code, ran=False)
        if hooks is None:
            return await self._run(arguments)
        verdict = await hooks.before_tool(self._seen(arguments))
        result = verdict.result if verdict.result is not None else await self._run(verdict.arguments)
        return await self.changed_by_plugins(verdict.arguments, result)

    async def changed_by_plugins(self, arguments: dict[str, Json], result: ToolResult) -> ToolResult:
        """The result after all plugins have seen it."""
        hooks = self._model_call.hooks if self._model_call is not None else None
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
        """The result of the tool itself, after retries."""
        try:
            accepted = self._tool.accept(own_copy(arguments))  # the arguments of the query must not change
        except Exception as error:  # types may have checks of their own, which may raise anything
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
            await self._emit_output(f"{result.message}; retrying in {delay:g} s\n")
            await asyncio.sleep(delay)

    async def _try(self, accepted: dict[str, object], retry: int) -> ToolResult:
        limit = self._tool.timeout_s
        async with _Live(self._emit_output if self._emit is not None else None) as output:
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
        running = asyncio.create_task(without_exit(partial(_invoked, self._tool, accepted, ctx)))
        try:
            await asyncio.wait([running], timeout=limit)
            if not running.done():
                await _give_up(running)
                message = f"'{self._tool.name}' was stopped after {limit:g} s, its time limit"
                return ToolFailure(message=message, code="timeout", partial=output.kept)
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
        if error is not None:
            return failure_of_exception(error, output.kept)
        return await _result(running.result(), self._tool.name)

    # --- events ------------------------------------------------------------------------------------

    async def emit_start(self, arguments: dict[str, Json]) -> None:
        await self._emit_event(
            ToolStartedEvent(turn=self._turn, call=self._id, name=self._tool.name, arguments=arguments)
        )

    async def emit_end(self, done: ToolCallOutcome) -> None:
        await self._emit_event(
            ToolFinishedEvent(
                turn=self._turn, call=self._id, name=self._tool.name, result=done.content, is_error=done.is_error
            )
        )

    async def _emit_output(self, text: str) -> None:
        await self._emit_event(ToolOutputEvent(turn=self._turn, call=self._id, text=text))

    async def _emit_event(self, event: LiveEvent) -> None:
        if self._emit is not None:
            # A listener must not change the result of a call that may have had effects already.
            with contextlib.suppress(Exception):
                await self._emit(self._attempt.session_id, event)


async def _invoked(tool: Tool, accepted: dict[str, object], ctx: ToolContext) -> object:
    if tool.is_async:
        outcome = tool.invoke(accepted, ctx)
    else:
        outcome = await in_thread(lambda: tool.invoke(accepted, ctx))
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _give_up(running: asyncio.Task[object]) -> None:
    """Cancel a tool: it has some time to clean up, and its outcome is ignored."""
    running.cancel()
    running.add_done_callback(lambda task: task.cancelled() or task.exception())  # or asyncio would log it
    await asyncio.wait([running], timeout=CLEANUP_S)


class _Live:
    """Passes the output of a running tool to listeners: in order, and in as few pieces as they can take."""

    def __init__(self, send: Callable[[str], Awaitable[None]] | None) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._pump: asyncio.Task[None] | None = None
        self._is_over = False
        self.output = OutputStream(self._wake if send is not None else None)

    async def __aenter__(self) -> OutputStream:
        return self.output

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Pass on the rest before the call ends, unless it was cancelled."""
        self._is_over = True
        if kind is not None:
            if self._pump is not None:
                self._pump.cancel()
            return
        if self._pump is not None:
            await self._pump
        await self._send_all()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # an abandoned thread may outlive the loop
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self._is_over and (self._pump is None or self._pump.done()):
            self._pump = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._send is not None and (text := self.output.take()):
            await self._send(text)
